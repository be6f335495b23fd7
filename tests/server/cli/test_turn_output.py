"""What `refold run` tells of a turn: which text goes where, in which order, and that lines end where they must."""

from __future__ import annotations

from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.codec import seal
from refold_protocol.session.event_data import COMPLETED, MAX_TOKENS
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalSubject,
    AssistantChunk,
    AssistantMessage,
    CompactEnd,
    CompactStart,
    Draft,
    EventData,
    LlmRetry,
    StepStart,
    ToolCall,
    ToolResult,
    TurnEnd,
    TurnError,
)
from refold_protocol.session.messages import Chunk, ReasoningDelta, TextDelta, Usage, UsageChunk, text_content
from refold_server.cli.formatting import subject_lines
from refold_server.cli.terminal import Style
from refold_server.cli.turn_output import SignOfLife, Target, TurnFormatter
from tests.support.logs import HEADER


def chunk(given: Chunk) -> AssistantChunk:
    return AssistantChunk(1, 1, 1, given)


def says(text: str) -> AssistantChunk:
    return chunk(TextDelta(0, text))


def thinks(text: str) -> AssistantChunk:
    return chunk(ReasoningDelta(0, text))


REPLY = AssistantMessage(1, 1, (), "fake", "small", "stop")
CALL = ToolCall(1, 1, CallId("c0"), "read_file", '{"path":"a"}')
FAILED = ToolResult(1, 1, CallId("c0"), text_content("no such\nfile\x07"), True)
WORKED = ToolResult(1, 1, CallId("c0"), text_content("text"), False)


def told(*events: EventData, terminal: bool = False, colour: bool = False) -> dict[Target, str]:
    """Everything that is told of some events, by where it goes."""
    words = TurnFormatter(terminal=terminal, style=Style(colour=colour))
    pieces = [piece for data in events for piece in words.event(seal(_draft(data), 0, 0))]
    pieces += words.line("session s1")
    return {target: "".join(piece.text for piece in pieces if piece.target is target) for target in Target}


def as_one(*events: EventData) -> str:
    """What a terminal shows on which both streams end up."""
    words = TurnFormatter(terminal=True, style=Style(colour=False))
    pieces = [piece for data in events for piece in words.event(seal(_draft(data), 0, 0))]
    return "".join(piece.text for piece in [*pieces, *words.line("session s1")])


def _draft(data: EventData) -> Draft:
    if isinstance(data, AssistantMessage | ToolResult):
        return Draft(data, surface_op="append", sources=())
    return Draft(data)


def test_the_reply_is_the_output_and_all_else_stands_beside_it() -> None:
    everything = told(StepStart(1, 1), thinks("Hm."), says("I "), says("look."), REPLY, CALL, FAILED, says("No."), REPLY)
    assert everything[Target.OUT] == "I look.\nNo.\nsession s1\n"
    assert everything[Target.NOTES] == 'Hm.\n→ read_file {"path":"a"}\n✗ no such file\\x07\n'


def test_on_one_terminal_nothing_runs_into_a_line_of_something_else() -> None:
    events = (thinks("Hm."), says("Part"), thinks("Wait."), says("ly."), CALL, says("Un"), TurnEnd(1, MAX_TOKENS))
    assert as_one(*events).split("\n")[:6] == ["Hm.", "Part", "Wait.", "ly.", '→ read_file {"path":"a"}', "Un"]
    assert as_one(says("done\n"), REPLY) == "done\nsession s1\n"
    assert as_one() == "session s1\n"


def test_a_program_gets_the_exact_text_and_a_terminal_none_that_steers_it() -> None:
    assert told(says("\x1b[2Ja\r\n"))[Target.OUT] == "\x1b[2Ja\r\nsession s1\n"
    assert told(says("\x1b[2Ja\r\n"), terminal=True)[Target.OUT] == "\\x1b[2Ja\nsession s1\n"
    assert told(thinks("\x1b[2J"))[Target.NOTES] == "\\x1b[2J\n"


def test_what_went_well_or_says_nothing_is_not_told() -> None:
    quiet = told(StepStart(1, 1), chunk(UsageChunk(Usage(1, 1))), says(""), thinks(""), WORKED, TurnEnd(1, COMPLETED))
    assert quiet == {Target.OUT: "session s1\n", Target.NOTES: ""}


def test_a_wait_for_another_attempt_is_told_when_it_begins() -> None:
    said = told(LlmRetry(1, 1, 1, "provider.rateLimited", 1_500), says("Hi."))
    assert said[Target.NOTES] == "provider.rateLimited; attempt 2 in 1.5 s\n"


def test_a_bad_end_is_told_in_a_sentence() -> None:
    assert told(TurnEnd(1, MAX_TOKENS))[Target.NOTES].startswith("turn was cut off at the limit of output tokens")


def test_colours_stand_where_they_are_wanted_only() -> None:
    assert "\x1b[2m" in told(CALL, colour=True)[Target.NOTES]
    assert "\x1b" not in told(CALL, thinks("Hm."), FAILED, TurnEnd(1, MAX_TOKENS))[Target.NOTES]


ASKED = ApprovalAsked(
    ApprovalId("a1"), CallId("c0"), "write_file\x1b", ApprovalSubject("diff", "-one\r\n+two\x1b[2J\n context\n")
)


def asked_on(words: TurnFormatter) -> str:
    """What a question looks like, with the line that the person ends, and what follows."""
    pieces = [*words.event(seal(_draft(says("Well")), 0, 0)), *words.question(ASKED), *words.prompt("May it? ")]
    return "".join(piece.text for piece in pieces)


def test_a_question_stands_on_lines_of_its_own_with_its_whole_subject_harmless() -> None:
    words = TurnFormatter(terminal=True, style=Style(colour=False))
    assert asked_on(words) == "Well\n? write_file\\x1b asks to run\n-one\n+two\\x1b[2J\n context\nMay it? "
    words.answered()
    assert words.note("x")[0].text == "x\n", "the person ended the line"


def test_a_question_that_was_left_is_ended_before_anything_follows() -> None:
    words = TurnFormatter(terminal=True, style=Style(colour=False))
    asked_on(words)
    assert [piece.text for piece in words.note("x")] == ["\n", "x\n"]


def test_a_diff_is_shown_in_its_colours() -> None:
    lines = list(subject_lines(ASKED.subject, Style(colour=True)))
    assert lines == ["\x1b[31m-one\x1b[0m", "\x1b[32m+two\\x1b[2J\x1b[0m", " context"]
    assert list(subject_lines(ApprovalSubject("command", "-a"), Style(colour=True))) == ["-a"]


def test_a_compaction_is_told_while_it_runs_and_how_it_ended() -> None:
    start = CompactStart("pressure", (1, 2), "Sum up.", HEADER.config, 1)
    assert told(start)[Target.NOTES] == "(the older part of the history is being summed up)\n"
    assert told(CompactEnd())[Target.NOTES] == "(it was summed up)\n"
    failed = CompactEnd(TurnError("compaction.failed", "The summary says\nnothing."))
    assert told(failed)[Target.NOTES] == "(it was not summed up: The summary says nothing.)\n"


def quietly(*events: EventData) -> dict[Target, str]:
    """Everything that is told of some events where the answer is wanted alone."""
    words = TurnFormatter(terminal=False, style=Style(colour=False), quiet=True)
    pieces = [piece for data in events for piece in words.event(seal(_draft(data), 0, 0))]
    return {target: "".join(piece.text for piece in pieces if piece.target is target) for target in Target}


def test_quietly_the_answer_alone_is_told_without_what_was_said_before_calls() -> None:
    events = (says("I look."), thinks("hm"), REPLY, CALL, FAILED, says("Forty"), says("-two."), REPLY, TurnEnd(1, COMPLETED))
    assert quietly(*events) == {Target.OUT: "Forty-two.\n", Target.NOTES: ""}


def test_quietly_a_bad_end_is_told_beside_what_there_is_of_the_answer() -> None:
    assert quietly(says("Forty"), REPLY, TurnEnd(1, MAX_TOKENS)) == {
        Target.OUT: "Forty\n",
        Target.NOTES: told(TurnEnd(1, MAX_TOKENS))[Target.NOTES],
    }


def test_the_sign_of_life_says_what_is_waited_for_and_since_when() -> None:
    now = 100.0
    life = SignOfLife(lambda: now)
    seen: list[str] = []
    summing = CompactStart("pressure", (1, 2), "Sum up.", HEADER.config, 1)
    for data in (
        StepStart(1, 1),
        LlmRetry(1, 1, 1, "provider.timeout", 9),
        summing,
        CompactEnd(),
        CALL,
        WORKED,
        TurnEnd(1, COMPLETED),
    ):
        life.event(seal(_draft(data), 0, 0))
        now += 3
        seen.append(life.line())
    assert seen == [
        "… waiting for the model (3 s)",
        "… waiting for the model, attempt 2 (3 s)",
        "… the older part of the history is being summed up (3 s)",
        "… waiting for the model (3 s)",
        "… running read_file (3 s)",
        "… waiting for the model (3 s)",
        "",
    ]
