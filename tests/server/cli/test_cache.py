"""`refold cache`: a line for each request, the reasons below a break, a summary; the same for programs."""

from __future__ import annotations

from refold_server.cli.cli_cache import VERDICTS, table_lines
from refold_server.cli.terminal import Style
from refold_server.rpc.proof_methods import ExplainedRequest, RequestExplainResult
from tests.support.commands import Here

PLAIN = Style(colour=False)


def result(turn: int, verdict: str, *reasons: str, size: int = 1000, **others: int | None) -> RequestExplainResult:
    """Give an explanation of the first step of a turn, whose body has `size` bytes."""
    against = None if verdict == "first" else ExplainedRequest(turn - 1, 1, 1, 1, size)
    asked = ExplainedRequest(turn, 1, 1, 2, size)
    made: RequestExplainResult = RequestExplainResult(asked, verdict, (), reasons, against, **others)  # pyright: ignore
    return made


def test_the_table_of_a_session_with_every_verdict() -> None:
    shown = table_lines(
        [
            result(1, "first", size=12345, prompt_tokens=3000, cached_tokens=0),
            result(2, "kept", common=900, prompt_tokens=3100, cached_tokens=2990),
            result(3, "break", "event 9 request/header: tool look added", "from byte 7 on", common=7, prompt_tokens=1),
            result(4, "unknown", common=990),
            result(5, "moved", "event 12 request/header: config provider: “a” → “b”", common=1000),
            result(6, "provider", "it was lost", common=None, prompt_tokens=3000, cached_tokens=10),
            result(7, "summary", "event 40 request/sent", common=1000),
        ],
        PLAIN,
    )
    assert list(shown) == [
        "step   bytes  shared  prompt  cached  verdict",
        "1.1   12,345       -   3,000       0  first",
        "2.1    1,000    90 %   3,100   2,990  kept",
        "3.1    1,000     0 %       1       ?  break",
        "      event 9 request/header: tool look added",
        "      from byte 7 on",
        "4.1    1,000    99 %       ?       ?  kept, as far as bytes tell",
        "5.1    1,000   100 %       ?       ?  kept, but sent to another provider",
        "      event 12 request/header: config provider: “a” → “b”",
        "6.1    1,000       ?   3,000      10  kept, but lost by the provider",
        "      it was lost",
        "7.1    1,000   100 %       ?       ?  kept, but a summary's request came between",
        "      event 40 request/sent",
        "7 requests: 2 kept, 1 broken, 1 behind a request for a summary, 1 lost by the provider, 1 sent to another provider; "
        "3,000 of 9,100 prompt tokens were cached (32 %)",
    ]


def test_a_request_for_a_summary_has_a_line_of_its_own() -> None:
    summary = RequestExplainResult(ExplainedRequest(0, 0, 2, 39, 1000, 38), "apart", (), (), prompt_tokens=900)
    assert list(table_lines([result(1, "first"), summary], PLAIN)) == [
        "step           bytes  shared  prompt  cached  verdict",
        "1.1            1,000       -       ?       ?  first",
        "summary try 2  1,000       -     900       ?  a request for a summary, by itself",
        "2 requests: 0 kept, 0 broken, 1 for summaries; cached tokens were not reported",
    ]


def test_every_verdict_has_its_words() -> None:
    assert set(VERDICTS) == {"first", "kept", "break", "moved", "summary", "provider", "unknown", "apart"}


def test_what_a_log_holds_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in "".join(table_lines([result(2, "break", "tool \x1b[2J added", common=7)], PLAIN))


def test_a_provider_that_reports_nothing_is_said_so() -> None:
    *_, last = table_lines([result(1, "first", prompt_tokens=10), result(2, "unknown", common=1000)], PLAIN)
    assert last == "2 requests: 1 kept, 0 broken; cached tokens were not reported"


def test_a_session_is_shown_with_what_the_rehearsal_provider_cached(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    done = refold("cache", session)
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.lines[1:-1]] == ["1.1", "1.2", "1.3", "1.4"]
    assert [line.split()[-1] for line in done.lines[1:-1]] == ["first", "kept", "kept", "kept"]
    assert done.lines[-1].startswith("4 requests: 3 kept, 0 broken; ")
    values = refold("cache", session, "--json").values
    assert [value["request"]["step"] for value in values] == [1, 2, 3, 4]
    assert [value.get("common") for value in values[1:]] == [value["request"]["bytes"] - 2 for value in values[:-1]]


def test_another_process_of_the_same_session_has_lost_the_cache_and_a_changed_configuration_breaks_it(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    refold("run", "And now?", "--session", session)
    refold.place.configure('[models."rehearsal/workspace"]\nmax_output = 777\n')
    refold("run", "And now?", "--session", session)
    shown = refold("cache", session).lines
    assert [line.split("  ")[-1] for line in shown if line.startswith(("2.1", "3.1"))] == [
        "kept, but lost by the provider",
        "break",
    ]
    assert any("request/header, the first of instance 3: config maxTokens" in line for line in shown)
