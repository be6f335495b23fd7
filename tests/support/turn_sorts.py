"""Turns of every sort for tests: what stands between a prompt and its end, the ordinary way or another."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from refold_protocol.ids import ApprovalId, CallId, InputId
from refold_protocol.json_text import JsonText
from refold_protocol.session.events import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalSubject,
    ContextMessage,
    Draft,
    ForeignData,
    InputAccepted,
    InputSettled,
    LimitSettings,
    PluginFailed,
    SessionSettings,
    SessionTitle,
    SteeringMessage,
    ToolResult,
)
from refold_protocol.session.messages import text_content
from tests.support.logs import CLIENT, LOOP, Log, call, spoken


def ordinary(turn: Callable[[Log], None]) -> Log:
    """A log of three turns, the second of which `turn` writes from its prompt on, without its end."""
    log = Log()
    log.instance()
    log.whole_turn()
    log.turn(given=log.accept("i-2"))
    turn(log)
    log.end_turn()
    log.whole_turn()
    return log


def answered(log: Log) -> None:
    log.step()
    log.stream(*spoken("Yes."))
    log.reply("Yes.")
    log.end_step()


def with_tools(log: Log) -> None:
    log.step()
    log.stream(*spoken("I look."))
    log.reply(call("c1"), call("c2"), finish="tool-calls")
    for name in ("c1", "c2"):
        log.call(name)
        log.result(name)
    log.append(ContextMessage(text_content("More."), LOOP, "context"))
    log.end_step()
    answered(log)


def with_an_approval(log: Log) -> None:
    log.step()
    log.reply(call("c1"), finish="tool-calls")
    log.add(ApprovalAsked(ApprovalId("a1"), CallId("c1"), "read_file", ApprovalSubject("path", "a.txt")))
    log.add(ApprovalDecided(ApprovalId("a1"), "allowed", "session", CLIENT))
    log.call("c1")
    log.result("c1", "found")
    log.end_step()


def with_inputs(log: Log) -> None:
    log.step()
    log.stream(*spoken("So"))
    log.add(InputAccepted(InputId("i-3"), "steer", text_content("Wait."), CLIENT, "k3"))
    log.add(InputAccepted(InputId("i-4"), "prompt", text_content("And then?"), CLIENT))
    log.reply("So")
    log.add(InputSettled(InputId("i-4"), "withdrawn"))
    log.end_step()
    log.append(SteeringMessage(2, text_content("Wait."), CLIENT, InputId("i-3")))
    answered(log)


def with_what_no_fold_looks_at(log: Log) -> None:
    log.add(SessionTitle("On folding", CLIENT))
    log.step()
    log.add(SessionTitle("On folds", CLIENT))
    log.reply("Yes.")
    log.add(PluginFailed("p", "tools/execute", "It was late."))
    log.add(SessionSettings(limits=LimitSettings(3)))
    log.end_step()


def without_a_reply(log: Log) -> None:
    log.step()
    log.stream(*spoken("ha"))
    log.end_step("error")


def retried(log: Log) -> None:
    log.step()
    log.stream(*spoken("ha"))
    log.send(attempt=2)
    log.stream(*spoken("again"), attempt=2)
    log.reply("again")
    log.end_step()


def with_a_foreign_event(log: Log) -> None:
    log.write(Draft(ForeignData(JsonText("{}")), type="someone/note", ignorable=True))
    answered(log)


def with_a_foreign_event_whose_name_begins_like_one_of_ours(log: Log) -> None:
    log.write(Draft(ForeignData(JsonText("{}")), type="steering/messages", ignorable=True))
    answered(log)


def with_a_replace(log: Log) -> None:
    with_tools(log)
    node = next(event for event in log.events if event.type == "tool/result")
    log.replace(ToolResult(2, 1, CallId("c1"), text_content("cut"), is_error=False), node.seq, node.seq)
    answered(log)


def without_a_step(_: Log) -> None:
    pass


@st.composite
def talks(draw: st.DrawFn) -> Log:
    """Draw a log in which inputs of every sort come, wait, join turns, are taken back, or stay."""
    log, waiting, number = Log(), list[InputId](), 0

    def come() -> None:
        nonlocal number
        for _ in range(draw(st.integers(0, 2))):
            number += 1
            key = draw(st.sampled_from((None, None, "k", f"k{number}")))
            mode = draw(st.sampled_from(("prompt", "steer", "inject")))
            given = InputId(draw(st.sampled_from((f"i-{number}", f"i-{number}", f'i"{number}'))))
            log.add(InputAccepted(given, mode, text_content('A "key":"x".'), CLIENT, key))
            waiting.append(given)

    def taken() -> InputId | None:
        return waiting.pop(draw(st.integers(0, len(waiting) - 1))) if waiting and draw(st.booleans()) else None

    def join() -> None:
        if (given := taken()) is not None:
            log.append(draw(st.sampled_from((ContextMessage(text_content("So."), CLIENT, "context", given),))))
        if (given := taken()) is not None:
            log.append(SteeringMessage(log.work.last_turn, text_content("No."), CLIENT, given))

    for _ in range(draw(st.integers(0, 6))):
        come()
        if (gone := taken()) is not None and draw(st.booleans()):
            log.add(InputSettled(gone, "withdrawn"))
        log.turn(given=taken())
        for _ in range(draw(st.integers(1, 2))):
            join()
            log.step()
            come()
            log.reply("Yes.")
            log.end_step()
        if draw(st.integers(0, 5)) == 0:
            log.step()
            log.end_step("error")
        log.end_turn()
    come()
    return log
