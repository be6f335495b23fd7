"""How a header event is put for a person: what changed, on one line, whatever a log holds."""

from __future__ import annotations

import pytest
from hypothesis import given
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.events import EventData, RequestHeader, RequestHeaderDelta
from refold_protocol.session.messages import EpochHeader, Message, SystemDelta, ToolSchema, ToolsDelta, text_content
from refold_server.cli.formatting import header_changes, header_sentence
from tests.support.commands import Here
from tests.support.copies import Change, copied
from tests.support.header_strategies import related_headers
from tests.support.logs import HEADER

READ, RUN, LIST = (ToolSchema(name, "Does it.", JsonText("{}")) for name in ("read", "run", "list"))
RULES = Message("user", text_content("House rules"))
BASE = EpochHeader(HEADER.config, "Be brief.\nMind the tests.\nBe kind.", (READ, RUN), (RULES,))


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (
            replace(BASE, system="Be brief.\nMind the style.\nBe kind."),
            'system at line 2: −"Mind the tests." +"Mind the style."',
        ),
        (replace(BASE, system=f"{BASE.system}\nAnd\nso on."), 'system at line 4: +"And" (and 1 more)'),
        (replace(BASE, system=None), 'system at line 1: −"Be brief." (and 2 more)'),
        (replace(BASE, tools=(replace(RUN, description="Runs."), LIST)), "tools −read ~run +list"),
        (replace(BASE, tools=(RUN, READ)), "tools in another order"),
        (replace(BASE, message_prefix=None), "prefix of 0 messages, before 1"),
        (
            replace(BASE, config=replace(HEADER.config, model="random", temperature=0.5, stop=("E",))),
            'config model "chain" → "random", temperature (none) → 0.5, stop (none) → ["E"]',
        ),
        (
            replace(BASE, system="\x1b[2J", tools=None),
            'tools −read −run; system at line 1: −"Be brief." (and 2 more) +"\\x1b[2J"',
        ),
        (BASE, ""),
    ],
)
def test_what_changed_is_said_by_part(after: EpochHeader, said: str) -> None:
    assert "; ".join(header_changes(BASE, after)) == said


def test_a_snapshot_says_why_it_was_written_and_what_it_changed() -> None:
    other = replace(BASE, tools=(RUN, READ))
    assert header_sentence(RequestHeader(BASE, "initial"), None, BASE) == (
        "initial: engine/chain, system of 3 lines, 2 tools, prefix of 1 message"
    )
    assert header_sentence(RequestHeader(BASE, "resume"), BASE, BASE) == "resume: unchanged"
    assert header_sentence(RequestHeader(other, "fallback"), BASE, other) == "fallback: tools in another order"
    assert header_sentence(RequestHeaderDelta(), BASE, BASE) == "unchanged"


@given(related_headers())
def test_equal_headers_and_no_others_have_nothing_to_say(pair: tuple[EpochHeader, ...]) -> None:
    before, after = pair
    said = list(header_changes(before, after))
    assert (said == []) == (before == after)
    assert not any("\n" in phrase for phrase in said)


def _of_two_instances(refold: Here) -> str:
    refold.place.script({"text": "Two."}, {"text": "Three."})
    session = refold("run", "How many?").session
    refold("run", "--session", session, "And now?")
    return session


def _with_delta(reason: str, delta: RequestHeaderDelta) -> Change:
    def change(data: EventData) -> EventData:
        return delta if isinstance(data, RequestHeader) and data.reason == reason else data

    return change


def test_the_events_for_a_person_say_what_a_header_changed(refold: Here) -> None:
    lines = refold("log", _of_two_instances(refold), "--view", "events").lines
    first, second = (line for line in lines if " request/header" in line)
    assert "initial: rehearsal/" in first
    assert second.endswith("resume: unchanged")


def test_a_delta_of_a_log_shows_what_changed_and_the_header_behind_it(refold: Here) -> None:
    delta = RequestHeaderDelta(SystemDelta(0, ("Be kind.",), 0), ToolsDelta(("list_files",), (), ()))
    session = copied(refold.place, _of_two_instances(refold), _with_delta("resume", delta))
    (line,) = (line for line in refold("log", session, "--view", "events").lines if " request/header-delta " in line)
    assert 'tools −list_files; system at line 1: −"' in line
    shown = refold("log", session, "--view", "header").lines
    assert "Be kind." in shown
    assert "tool list_files" not in shown
    assert refold("log", session).code == refold("log", session, "--view", "surface").code == 0


def test_a_delta_that_does_not_fit_is_shown_as_it_stands_and_refused_where_it_would_count(refold: Here) -> None:
    delta = RequestHeaderDelta(SystemDelta(900, (), 900))
    session = copied(refold.place, _of_two_instances(refold), _with_delta("resume", delta))
    (line,) = (line for line in refold("log", session, "--view", "events").lines if " request/header-delta " in line)
    assert line.endswith('{"system":{"keepStart":900,"insert":[],"keepEnd":900}}')
    done = refold("log", session, "--view", "header")
    assert done.code != 0
    assert "does not fit the header that it changes" in done.err
    verified = refold("verify", session)
    assert verified.code == 1
    assert "it keeps 900 and 900 lines" in verified.text
