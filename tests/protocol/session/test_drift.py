"""What differs between two headers is told part by part, and nothing is told exactly when they are equal."""

from __future__ import annotations

from hypothesis import given
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.messages import CallConfig, EpochHeader, ToolSchema
from refold_protocol.session.prefix_cache import drifts
from tests.support.requests import headers, user

CONFIG = CallConfig("p", "m", "chat-completions")
PLAIN = EpochHeader(CONFIG)
LOOK = ToolSchema("look", "Looks.", JsonText("{}"))
READ = ToolSchema("read", "Reads.", JsonText("{}"))
SYSTEM = "You are refold.\nBe brief.\nNever guess."


def told(before: EpochHeader, after: EpochHeader) -> list[str]:
    return [drift.sentence for drift in drifts(before, after)]


@given(headers(), headers())
def test_nothing_differs_exactly_when_the_headers_are_equal(before: EpochHeader, after: EpochHeader) -> None:
    found = drifts(before, after)
    assert (found == ()) == (before == after)
    assert drifts(after, after) == ()
    parts = ["config", "tools", "system", "prefix"]
    assert [drift.part for drift in found] == sorted((drift.part for drift in found), key=parts.index)
    assert all(drift.sentence.isprintable() for drift in found if drift.part != "tools")


def test_members_of_the_config_are_named_as_they_are_recorded() -> None:
    warmer = replace(CONFIG, model="n", temperature=0.5, max_tokens=9, dialect_options=JsonText('{"a":1}'))
    assert told(PLAIN, EpochHeader(warmer)) == [
        "config model: “m” → “n”",
        'config dialectOptions added: “{"a":1}”',
        "config temperature added: “0.5”",
        "config maxTokens added: “9”",
    ]
    assert told(EpochHeader(warmer), EpochHeader(replace(warmer, temperature=None))) == ["config temperature removed: “0.5”"]


def test_lines_of_the_system_text_are_told_where_they_changed() -> None:
    def changed(text: str | None) -> list[str]:
        return told(replace(PLAIN, system=SYSTEM), replace(PLAIN, system=text))

    assert changed(SYSTEM.replace("brief", "thorough")) == ["system text, line 2: “Be brief.” → “Be thorough.”"]
    assert changed(SYSTEM.replace("Be brief.\n", "")) == ["system text, line 2 removed: “Be brief.”"]
    assert changed(f"{SYSTEM}\nAsk.") == ["system text, line 4 added: “Ask.”"]
    assert changed(None)[0].startswith("system text, line 1 removed: “You are refold.\\n")
    assert told(PLAIN, replace(PLAIN, system="Be.")) == ["system text, line 1 added: “Be.”"]


def test_a_repeated_line_is_counted_once() -> None:
    assert told(replace(PLAIN, system="a\na"), replace(PLAIN, system="a\na\na")) == ["system text, line 3 added: “a”"]
    assert told(replace(PLAIN, system="a\n\nb"), replace(PLAIN, system="a\nb")) == ["system text, line 2 removed: “”"]


def test_tools_are_told_by_name() -> None:
    other = replace(LOOK, description="Looks well.")
    assert told(replace(PLAIN, tools=(LOOK,)), replace(PLAIN, tools=(other, READ))) == [
        "tool look: “Looks.\\n{}” → “Looks well.\\n{}”",
        "tool read added",
    ]
    assert told(replace(PLAIN, tools=(LOOK, READ)), replace(PLAIN, tools=(READ,))) == ["tool look removed"]
    assert told(replace(PLAIN, tools=(LOOK, READ)), replace(PLAIN, tools=(READ, LOOK))) == ["tools reordered"]


def test_the_first_message_of_the_prefix_that_differs_is_told() -> None:
    def prefixed(*texts: str) -> EpochHeader:
        return replace(PLAIN, message_prefix=tuple(user(text) for text in texts))

    assert told(prefixed("a", "rules: one"), prefixed("a", "rules: two")) == [
        'prefix message 2: “…,"text":"rules: one"}]}” → “…,"text":"rules: two"}]}”'
    ]
    assert told(prefixed("a"), prefixed("a", "b"))[0].startswith("prefix message 2 added: ")
    assert told(prefixed("a"), PLAIN)[0].startswith("prefix message 1 removed: ")
