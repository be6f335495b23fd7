"""How things are put for a person: text that cannot steer a terminal, calls on one line, ends of turns, transcripts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold_protocol.ids import ApprovalId, CallId
from refold_protocol.session.event_data import TURN_ENDS, aborted, blocked, failed
from refold_protocol.session.events import AbortCause, ApprovalAsked, ApprovalSubject, TurnEndReason, TurnError
from refold_protocol.session.messages import ReasoningBlock, TextBlock, ToolCallBlock, text_content
from refold_protocol.session.transcript import TranscriptEntry
from refold_server.cli.formatting import (
    asked_sentence,
    call_line,
    end_sentence,
    entry_lines,
    one_line,
    printable,
    question_of,
    subject_lines,
)
from refold_server.cli.terminal import Style
from refold_server.tools.text_change import unified_diff

PLAIN = Style(colour=False)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x1b]0;owned\x07", "\\x1b[2J\\x1b]0;owned\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("over\rwritten", "over\\x0dwritten"),
        ("back\x08space \x7f \0", "back\\x08space \\x7f \\x00"),
        ("if \u202e} \u2066 evil", "if \\u202e} \\u2066 evil"),
        ("one\u2028two", "one\\u2028two"),
        ("a file \udcff", "a file \\udcff"),
        ("dos\r\nline", "dos\nline"),
    ],
)
def test_what_steers_a_terminal_is_shown_and_not_sent(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["tab\tand\nline", "日本語\u3000全角", "10\xa0000", "👩‍👩‍👧 🏴󠁧󠁢󠁥󠁮󠁧󠁿 é", "שלום\u200f", "\ue0b0"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert printable(text) == text


@given(st.text())
def test_printable_text_is_stable_and_harmless(text: str) -> None:
    shown = printable(text)
    assert printable(shown) == shown
    assert not any((ord(mark) < 32 and mark not in "\t\n") or 0x7F <= ord(mark) < 0xA0 for mark in shown)
    shown.encode()


@given(st.text(), st.integers(1, 300))
def test_one_line_is_one_line_of_bounded_length(text: str, characters: int) -> None:
    line = one_line(text, characters)
    assert "\n" not in line
    assert len(line) <= characters


def test_a_text_that_was_cut_says_so() -> None:
    assert one_line("four words of text", 10) == "four word…"
    assert one_line("x" + " " * 10_000 + "y", 10) == "x…"
    assert one_line("four  words\n of\ttext", 18) == "four words of text"


def test_a_call_is_one_line_however_long_its_arguments_are() -> None:
    assert call_line("read_file", '{"path":\n"a\x1b.txt"}') == 'read_file {"path": "a\\x1b.txt"}'
    assert len(call_line("n" * 10_000_000, "a" * 10_000_000)) < 400


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        (failed(TurnError("provider.auth", "no key\x1b[2J", 2)), "failed in step 2: provider.auth: no key\\x1b[2J"),
        (failed(TurnError("log.full", "no space")), "failed: log.full: no space"),
        (aborted(AbortCause("user")), "was stopped by the user"),
        (aborted(AbortCause("disposed", "SIGTERM")), "was stopped together with what ran it: SIGTERM"),
        (aborted(AbortCause("hook", "too\x07 late")), "was stopped by hook: too\\x07 late"),
        (blocked("not here"), "blocked: not here"),
        (TurnEndReason("weather\x07"), "weather\\x07"),
    ],
)
def test_each_end_of_a_turn_is_a_sentence(reason: TurnEndReason, sentence: str) -> None:
    assert end_sentence(reason) == sentence


@pytest.mark.parametrize("kind", ["max-steps", "max-tokens", "interrupted", "forked"])
def test_ends_without_a_payload_are_explained(kind: str) -> None:
    assert kind in TURN_ENDS
    assert end_sentence(TurnEndReason(kind)).startswith("was ")


def shown(entry: TranscriptEntry) -> str:
    return "\n".join(entry_lines(entry, PLAIN))


def test_a_reply_shows_its_thinking_its_text_and_its_calls() -> None:
    content = (ReasoningBlock("Hm\x07."), TextBlock("I look."), ToolCallBlock("c0", "list_files", "{}"))
    assert shown(TranscriptEntry(5, 0, "assistant", 1, 1, content)) == "Hm\\x07.\nI look.\n→ list_files {}"


def test_a_partial_reply_says_that_it_is_one() -> None:
    entry = TranscriptEntry(5, 0, "assistant", 1, 1, text_content("Half a"), interrupted=True)
    assert shown(entry) == "Half a [interrupted]"
    thought = TranscriptEntry(5, 0, "assistant", 1, 1, (ReasoningBlock("Hm."),), interrupted=True)
    assert shown(thought) == "Hm.\n[interrupted]"


def test_a_long_result_shows_its_beginning_and_how_much_is_left_out() -> None:
    text = "\n".join(f"line {number}" for number in range(10))
    lines = shown(TranscriptEntry(6, 0, "tool", 1, 1, text_content(text))).split("\n")
    assert lines[0] == "│ line 0"
    assert lines[-1] == "│ … 4 more lines"
    assert shown(TranscriptEntry(6, 0, "tool", content=text_content("no"), is_error=True)) == "✗ no"


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (TranscriptEntry(1, 0, "user", content=text_content("Where?\x1b")), "> Where?\\x1b"),
        (TranscriptEntry(1, 0, "context", content=text_content("a note")), "[context] a note"),
        (TranscriptEntry(1, 0, "steering", content=text_content("left")), "[steering] left"),
        (TranscriptEntry(1, 0, "blocked", content=text_content("rm"), note="no"), "blocked: no > rm"),
        (TranscriptEntry(1, 0, "compaction"), "--- the older part of what stands above was summarised for the model ---"),
        (TranscriptEntry(1, 0, "end", 3, reason=aborted(AbortCause("user"))), "[turn 3 was stopped by the user]"),
        (TranscriptEntry(1, 0, "of\x07later", content=text_content("x")), "[of\\x07later] x"),
    ],
)
def test_each_kind_of_entry_is_shown(entry: TranscriptEntry, text: str) -> None:
    assert shown(entry) == text


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a\nb\n", "a\r\nb\n", ["-a", "+a\\x0d", " b"]),
        ("-- a\nb\n", "-- a\r\nb\n", ["--- a", "+-- a\\x0d", " b"]),
        (None, "a\r\nb\n", ["+a\\x0d", "+b"]),
        ("a\r\nb\r\n", "a\r\nc\r\n", [" a", "-b", "+c"]),
        ("a\r\nb", "a\r\nc", [" a", "-b", "\\ No newline at end of file", "+c", "\\ No newline at end of file"]),
        ("a\nb\n", "a\nc\n", [" a", "-b", "+c"]),
    ],
)
def test_a_question_shows_where_a_line_s_end_is_what_changes(old: str | None, new: str, lines: list[str]) -> None:
    subject = ApprovalSubject("diff", unified_diff("f", old, new))
    assert list(subject_lines(subject, PLAIN))[3:] == lines


def test_the_text_of_another_question_is_shown_whole() -> None:
    shown_lines = list(subject_lines(ApprovalSubject("text", "one\r\ntwo\x1b\n\n"), PLAIN))
    assert shown_lines == ["one", "two\\x1b", ""]


@pytest.mark.parametrize(
    "hidden", [*"\u00ad\u034f\u061c\u115f\u200b\u200c\u200d\u200f\u2060\u2800\u3164\ufe00\ufeff\uffa0", "\U000e0041"]
)
def test_what_shows_nothing_is_visible_in_what_a_person_decides_about(hidden: str) -> None:
    shown = "".join(subject_lines(ApprovalSubject("diff", f"+pass{hidden}word\n"), PLAIN))
    assert shown == f"+pass\\{'U' if ord(hidden) > 0xFFFF else 'u' if ord(hidden) > 0xFF else 'x'}{_digits(hidden)}word"
    assert hidden not in question_of(asked("edit" + hidden, "text", ""))
    assert hidden not in asked_sentence(asked("edit" + hidden, "text", f"go{hidden}on")), "also afterwards, in the log"
    assert printable(f"a{hidden}b") == f"a{hidden}b", "prose is left alone"


def _digits(character: str) -> str:
    number = ord(character)
    return f"{number:08x}" if number > 0xFFFF else f"{number:04x}" if number > 0xFF else f"{number:02x}"


def asked(tool: str, kind: str, text: str) -> ApprovalAsked:
    return ApprovalAsked(ApprovalId("ap"), CallId("c"), tool, ApprovalSubject(kind, text))


@pytest.mark.parametrize(
    ("question", "tool", "kind", "text"),
    [
        ("Write .envrc (+2 lines, new)?", "write_file", "diff", unified_diff(".envrc", None, "a\nb\n")),
        ("Change a/b.sql (+1 −1 lines)?", "edit_file", "diff", unified_diff("a/b.sql", "-- x\n", "++ y\n")),
        ("May run_command run?", "run_command", "command", "+++ b/x"),
        ("May edit_file run?", "edit_file", "diff", "no head"),
    ],
)
def test_the_question_names_the_file_and_how_much_comes_and_goes(question: str, tool: str, kind: str, text: str) -> None:
    assert question_of(asked(tool, kind, text)) == question


def test_a_line_break_in_a_foreign_name_begins_no_line() -> None:
    forged = "acme/end\nrefold: all is well"
    shown = [
        end_sentence(TurnEndReason(forged)),
        end_sentence(TurnEndReason(forged, reason="as I say\n$ ")),
        end_sentence(aborted(AbortCause("hook", "as\nI say"))),
        end_sentence(failed(TurnError("acme\nbad", "one\ntwo", 1))),
        *entry_lines(TranscriptEntry(1, 0, forged), PLAIN),
        *entry_lines(TranscriptEntry(1, 0, "end", turn=1, reason=TurnEndReason(forged)), PLAIN),
        *entry_lines(TranscriptEntry(1, 0, "blocked", note="no\nway"), PLAIN),
    ]
    assert [line for line in shown if "\n" in line] == []


def test_a_prompt_whose_turn_was_cut_off_is_shown_with_what_can_be_done() -> None:
    entry = TranscriptEntry(1, 0, "pending", content=text_content("do it"), note="It waits.")
    assert list(entry_lines(entry, PLAIN)) == ["pending: It waits. > do it"]
