"""`refold meter`: a line for each request, a picture, the same for programs."""

from __future__ import annotations

from pathlib import Path

import anyio

from refold_protocol.session.messages import Usage
from refold_protocol.session.meter import PressureRow
from refold_server.cli.cli_meter import table_lines
from refold_server.cli.terminal import Style
from refold_server.cli.text_tables import HEIGHT, plot_lines
from refold_server.clock import epoch_ms, uuid7
from refold_storage.lmdb_store import open_store
from tests.support.commands import Here
from tests.support.stores import NEW, prompt

PLAIN = Style(colour=False)
CHAIN = "engine/chain"


def row(turn: int, tokens: int, *, window: int = 1_000, anchor: int | None = None, usage: Usage | None = None) -> PressureRow:
    """Give a row of the first step of a turn."""
    return PressureRow(turn, 1, 1, turn * 10, CHAIN, CHAIN, window, tokens, tokens + 100, anchor, usage)


def test_the_table_of_a_session_with_every_kind_of_row() -> None:
    shown = table_lines(
        [
            row(1, 90, usage=Usage(100, 5)),
            row(2, 210, anchor=17, usage=Usage(50, 5, 150)),
            PressureRow(2, 1, 2, 25, "engine/other", "engine/other", usage=Usage(70, 5)),
            row(3, 1_200),
            PressureRow(4, 2, 1, 40, "engine/other", CHAIN, 1_000, 300, 300, None, Usage(400, 1)),
        ],
        PLAIN,
    )
    assert list(shown) == [
        "step       pressure  window  from         estimate  reported   error",
        "engine/chain, window 1,000",
        "1.1              90    9.0%  estimate          190       100  -10.0%",
        "2.1             210   21.0%  usage at 17       310       200   +5.0%",
        "engine/other, window unknown",
        "2.1 try 2         ?       ?  -                   ?        70       ?",
        "engine/chain, window 1,000",
        "3.1           1,200  120.0%  estimate        1,300         ?       ?",
        "engine/other, metered as engine/chain, window 1,000",
        "4.2             300   30.0%  estimate          300       400       ?",
        "5 requests; at most 120.0% of the window; from usage 5.0% off on average; by estimate alone 72.5% off on average",
    ]


def test_a_request_that_does_not_fit_is_marked() -> None:
    fits, not_fits = list(table_lines([row(1, 1_000), row(2, 1_001)], Style(colour=True)))[2:4]
    assert "\x1b" not in fits
    assert not_fits.startswith("\x1b[31m")


def test_no_requests_are_no_lines() -> None:
    assert list(table_lines([], PLAIN)) == []
    assert list(plot_lines([], 80)) == []
    assert list(plot_lines([PressureRow(1, 1, 1, 9, CHAIN, CHAIN)], 80)) == []


def test_a_model_s_name_cannot_steer_the_terminal() -> None:
    odd = PressureRow(1, 1, 1, 9, "a/\x1b[2J", "b/\x1b[2J")
    assert "\x1b" not in "".join(table_lines([odd], PLAIN))


def test_the_picture_has_a_column_for_each_request_and_says_what_its_top_is() -> None:
    rows = [row(1, 300, window=10_000), row(2, 600, window=10_000, anchor=17), row(3, 1, window=10_000)]
    assert list(plot_lines(rows, 80)) == [
        *("600 │ █", "    │ █", "    │ █", "    │ █", "400 │ █", "    │ █"),
        *("    │██", "    │██", "200 │██", "    │██", "    │██", "    │██▁"),
        "  0 └───",
        "     · ·",
        "requests 1.1 to 3.1; highest 600 of 10,000 tokens; · estimated",
    ]


def test_nothing_of_the_picture_is_wider_than_a_narrow_terminal() -> None:
    rows = [row(number, 30 * number, window=10_000) for number in range(1, 41)]
    lines = list(plot_lines(rows, 24))
    assert max(map(len, lines)) <= 24
    assert " ".join(lines[HEIGHT + 2 :]) == "requests 1.1 to 40.1, 2.4 a column; highest 1,200 of 10,000 tokens; · estimated"


def test_the_top_is_the_window_where_pressure_comes_near_it() -> None:
    assert next(iter(plot_lines([row(1, 600)], 80))).strip().startswith("1,000 │")
    assert next(iter(plot_lines([row(1, 400)], 80))).strip().startswith("400 │█")
    assert next(iter(plot_lines([row(1, 1_300)], 80))).strip().startswith("1,300 │█")


def test_many_requests_share_columns_and_none_of_the_highest_is_lost() -> None:
    rows = [row(number, 900 if number == 777 else 10, anchor=1) for number in range(1, 1_001)]
    lines = list(plot_lines(rows, 60))
    assert max(map(len, lines)) <= 60
    assert sum(line.count("█") for line in lines[:HEIGHT]) >= HEIGHT * 0.8
    assert " ".join(lines[-2:]) == "requests 1.1 to 1000.1, 18.9 a column; highest 900 of 1,000 tokens"


def test_a_session_of_the_rehearsal_provider_is_metered_from_its_usage(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    done = refold("meter", session)
    assert (done.code, done.err) == (0, "")
    assert done.lines[1] == "rehearsal/workspace, window 128,000"
    assert [line.split()[0] for line in done.lines[2:-1]] == ["1.1", "1.2", "1.3", "1.4"]
    assert ["usage at" in line for line in done.lines[2:-1]] == [False, True, True, True]
    values = refold("meter", session, "--json").values
    assert [value["step"] for value in values] == [1, 2, 3, 4]
    for value in values[1:]:
        usage = value["usage"]
        prompt = usage["inputTokens"] + usage["cacheReadTokens"]
        assert abs(value["tokens"] - prompt) < 0.1 * prompt
    assert refold("meter", session, "--plot").lines[-1].startswith("requests 1.1 to 1.4; highest ")


def test_a_model_without_a_window_is_shown_without_figures_and_why_is_told_aside(refold: Here) -> None:
    session = refold("run", "--model", "rehearsal/other", "Where is the zebra?").session
    done = refold("meter", session)
    assert done.code == 0
    assert done.lines[1] == "rehearsal/other, window unknown"
    assert done.lines[2].split() == ["1.1", "?", "?", "-", "?", done.lines[2].split()[5], "?"]
    assert '[models."rehearsal/other"]' in done.err
    asked = refold("meter", session, "--model", "deepseek/deepseek-v4-pro")
    assert asked.lines[1] == "rehearsal/other, metered as deepseek/deepseek-v4-pro, window 128,000"
    refused = refold("meter", session, "--model", "no/such")
    assert (refused.code, refused.out) == (2, b"")
    assert "'no/such'" in refused.err


def test_the_window_that_is_configured_now_counts(refold: Here) -> None:
    session = refold("run", "Where is the zebra?").session
    refold.place.configure('[models."rehearsal/workspace"]\ncontext_window = 500\nchars_per_token = 2\n')
    values = refold("meter", session, "--json").values
    assert {value["window"] for value in values} == {500}
    assert "at most" in refold("meter", session).lines[-1]


def test_a_session_without_requests_says_so(refold: Here) -> None:
    session = anyio.run(unasked, refold.place.store)
    for form in ((), ("--plot",), ("--json",)):
        done = refold("meter", session, *form)
        assert (done.code, done.out, done.err) == (0, b"", "(no request was sent yet)\n")


async def unasked(folder: Path) -> str:
    """Put a session there whose prompt was accepted and never ran."""
    store = await open_store(folder, new_uuid=uuid7, clock=epoch_ms, client="test")
    handle = await store.create(NEW)
    handle.append([prompt()])
    await handle.close()
    await store.close()
    return NEW.id
