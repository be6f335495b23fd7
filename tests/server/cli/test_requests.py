"""`refold requests`: a line for each request that was sent, a sum without what a fork inherited; the same for programs."""

from __future__ import annotations

from refold_protocol.session.messages import Usage
from refold_protocol.session.request_rows import SentRow
from refold_server.cli.cli_requests import table_lines
from refold_server.cli.terminal import Style
from tests.support.commands import Here

PLAIN = Style(colour=False)


def test_the_table_shows_steps_summaries_and_what_was_inherited() -> None:
    def row(seq: int, purpose: str = "step", attempt: int = 1, inherited: bool = False, **more: object) -> SentRow:
        made: SentRow = SentRow(seq, 0, purpose, attempt, "a/m", "d", 1_000, "0", "1", 1, 1, inherited=inherited, **more)  # pyright: ignore
        return made

    shown = table_lines(
        [
            row(4, inherited=True, usage=Usage(50, 1), duration_ms=900, end="stop"),
            row(9, usage=Usage(100, 20, 1_000), duration_ms=1_250, end="tool-calls"),
            row(20, attempt=2),
            row(31, "summary", usage=Usage(7, 3), end="stop", duration_ms=0),
        ],
        PLAIN,
    )
    assert list(shown) == [
        "step       seq  input   read  written  output  bytes  seconds  end         model",
        "1.1          4     50      -        -       1  1,000      0.9  stop        a/m (inherited)",
        "1.1          9    100  1,000        -      20  1,000      1.2  tool-calls  a/m",
        "1.1 try 2   20      ?      ?        ?       ?  1,000        ?  (none yet)  a/m",
        "summary     31      7      -        -       3  1,000      0.0  stop        a/m",
        "3 requests; 1,107 tokens in, 23 out; 1 without a report; 1 inherited, not counted",
    ]
    assert list(table_lines([], PLAIN)) == []


def test_programs_get_one_object_a_request_and_its_digests_are_those_of_the_log(refold: Here) -> None:
    refold.place.script({"calls": [{"name": "list_files"}]}, *[{"text": "Done."}] * 2)
    session = refold("run", "go").session
    found = refold("requests", session, "--json").values
    sent = [event for event in refold.events(session) if event["type"] == "request/sent"]
    assert [row["seq"] for row in found] == [event["seq"] for event in sent]
    assert [row["sha256"] for row in found] == [event["data"]["sha256"] for event in sent]
    assert [row["digest"] for row in found] == [event["data"]["requestSha256"] for event in sent]
    assert [(row["turn"], row["step"], row["end"]) for row in found] == [(1, 1, "tool-calls"), (1, 2, "stop")]
    (child,) = refold("fork", session).lines
    assert refold("run", "on", "--session", child).code == 0
    inherited = [row.get("inherited", False) for row in refold("requests", child, "--json").values]
    assert inherited[:3] == [True, True, False]
    (verified,) = refold("verify", child, "--json").values
    assert (verified["requests"], verified["inherited"], verified["verified"]) == (len(inherited), 2, True)
    assert f"{len(inherited)}/{len(inherited)} requests (2 inherited)" in refold("verify", child).text


def test_a_fork_s_row_in_the_list_says_what_it_inherited_before_and_after_it_is_opened(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    (parent,) = refold("sessions", "--json").values
    (child,) = refold("fork", session).lines
    for own in (False, True):
        row = {row["session"]: row for row in refold("sessions", "--json").values}[child]
        assert row["inherited"] == parent["usage"]
        assert bool(row["usage"]) == own
        assert refold("run", "And the horse?", "--session", child).code == 0


def test_every_view_counts_the_same_requests_and_tokens_after_a_compaction(refold: Here) -> None:
    refold.place.script({"text": "The parser lives in core.py and the bug is in line 40. " * 60})
    session = refold("run", "Where is the parser?").session
    assert refold("run", "And the bug?", "--session", session).code == 0
    refold.place.script({"text": "The user asked for the parser, which is core.py, and its bug: line 40. Nothing changed."})
    assert refold("compact", session).code == 0
    refold.place.script({"text": "fine"})
    assert refold("run", "Go on", "--session", session).code == 0
    requests = refold("requests", session, "--json").values
    assert [row["purpose"] for row in requests] == ["step", "step", "summary", "step"]
    (verified,) = refold("verify", session, "--json").values
    assert (verified["requests"], verified["equal"]) == (4, 4)
    cache, meter = (refold(command, session, "--json").values for command in ("cache", "meter"))
    assert [row["request"]["seq"] for row in cache] == [row["seq"] for row in meter] == [row["seq"] for row in requests]
    assert [row["usage"] for row in meter] == [row["usage"] for row in requests]
    usages = [row["usage"] for row in requests]
    prompts = [sum(usage.get(name, 0) for name in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")) for usage in usages]
    assert [row["promptTokens"] for row in cache] == prompts
    (listed,) = refold("sessions", "--json").values
    for bucket in ("inputTokens", "outputTokens", "cacheReadTokens"):
        assert listed["usage"].get(bucket, 0) == sum(usage.get(bucket, 0) for usage in usages)
    assert requests[2]["compaction"] == cache[2]["request"]["compaction"] == meter[2]["compaction"]
