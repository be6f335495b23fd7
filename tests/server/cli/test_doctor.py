"""`refold doctor`: what it looks at, what it finds, what it advises, and that it neither changes nor gives away anything."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from refold_server.cli.cli_doctor import report_lines, size_text
from refold_server.cli.doctor_findings import (
    MAX_LAG,
    MIN_FREE_BYTES,
    ConfigInForce,
    Examination,
    OpenReader,
    SessionWriter,
    StoreState,
    Versions,
    findings,
)
from refold_server.cli.terminal import Style
from refold_server.sessions.session_reports import ProviderRow
from tests.support.chat_stream import text
from tests.support.commands import Done, Here, finish, start
from tests.support.fake_provider import Answer, FakeProvider, Gate, answer
from tests.support.store_child import StoreChild

KEYED = '[providers.far]\ndialect = "chat-completions"\nbase_url = "http://127.0.0.1:9/v1"\nkey_env = "FAR_KEY"\n'
STORE = StoreState(0, 4096, 4096, 1 << 20, 1, 0, ())
FACTS = Examination(Versions("0.1.0", "3.11.0", "1.6.2", "0.19.0"), ConfigInForce("/c.toml", True), "/s", STORE, 1 << 40)


def codes(examined: Examination) -> list[str]:
    return [found.code for found in findings(examined, {"far": "FAR_KEY"})]


def test_a_new_installation_is_healthy_and_gets_no_store(refold: Here) -> None:
    done = refold("doctor", "--offline")
    assert (done.code, done.err) == (0, "")
    assert done.lines[-1] == "all is well"
    assert f"store     {refold.place.store} (none yet, or it cannot be opened)" in done.lines
    assert f"config    {refold.place.config} (named by REFOLD_CONFIG)" in done.lines
    assert not refold.place.store.exists()


def test_a_store_is_told_with_its_format_and_sizes(refold: Here) -> None:
    refold.place.script({"text": "Hi."})
    assert refold("run", "Hello").code == 0
    (state,) = refold("doctor", "--offline", "--json").values
    assert state["store"]["format"] == 0
    assert state["store"]["sessions"] == 1
    assert state["store"]["usedBytes"] >= 4096
    assert state["freeBytes"] > 0
    assert state["versions"].keys() == {"refold", "python", "lmdb", "msgspec"}
    assert "format 0, 1 session, " in refold("doctor", "--offline").text


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    """A provider that plays what the test says."""
    with FakeProvider() as played:
        yield played


def test_who_writes_a_session_is_named(refold: Here, provider: FakeProvider) -> None:
    gate = Gate()
    provider.play([answer(text("Half a sent"), gate, end="hang")])
    refold.place.provider(provider.base_url)
    process = start(refold.place, "run", "go", "--json", bufsize=0)
    assert process.stdout is not None
    session = Done(0, process.stdout.readline(), "").session
    gate.reached.wait()
    (lease,) = refold("doctor", "--offline", "--json").values[0]["leases"]
    assert (lease["session"], lease["pid"], lease["client"]) == (session, process.pid, "refold command")
    line = next(line for line in refold("doctor", "--offline").lines if line.startswith("written"))
    assert re.fullmatch(rf"written   session {session}, by process {process.pid} \(refold command\) since [-\d]+ [:\d]+", line)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 6
    assert "leases" not in refold("doctor", "--offline", "--json").values[0]


def test_who_reads_the_store_is_named_with_how_far_it_lags(refold: Here) -> None:
    refold.place.script(*[{"text": "Hi."}] * 2)
    assert refold("run", "Hello").code == 0
    with StoreChild("pin", refold.place.store) as child:
        assert child.answer() == "ready"
        assert refold("run", "Hello again").code == 0
        ((reader,),) = [value["store"]["readers"] for value in refold("doctor", "--offline", "--json").values]
        assert (reader["pid"], reader["lives"]) == (child.pid, True)
        assert 1 <= reader["lag"] <= MAX_LAG
    assert refold("doctor", "--offline", "--json").values[0]["store"]["readers"] == []


def test_a_missing_key_is_found_and_a_present_one_never_shown(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    refold.place.configure(KEYED)
    monkeypatch.delenv("FAR_KEY", raising=False)
    done = refold("doctor", "--offline")
    assert done.code == 1
    assert done.lines[-2:] == [
        "✗ the provider far has no key: FAR_KEY is not set",
        "  → set FAR_KEY, or take [providers.far] out of the configuration",
    ]
    monkeypatch.setenv("FAR_KEY", "sk-very-secret")
    for arguments in (["doctor", "--offline"], ["doctor", "--offline", "--json"]):
        done = refold(*arguments)
        assert (done.code, done.err) == (0, "")
        assert "sk-very-secret" not in done.text
    assert "provider  far: chat-completions at http://127.0.0.1:9/v1, its key is there" in refold("doctor", "--offline").lines


def test_a_wrong_configuration_is_a_finding(refold: Here) -> None:
    refold.place.configure("modle = 3\n")
    done = refold("doctor", "--offline")
    assert (done.code, done.err) == (1, "")
    assert done.lines[-2].startswith("✗ modle: ")
    assert done.lines[-1] == "  → correct the setting that the sentence names"
    (state,) = refold("doctor", "--offline", "--json").values
    assert [found["code"] for found in state["findings"]] == ["config.invalid"]


def test_a_store_that_cannot_be_opened_is_a_finding_beside_the_others(refold: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    refold.place.configure(KEYED)
    monkeypatch.delenv("FAR_KEY", raising=False)
    refold.place.store.mkdir()
    (refold.place.store / "data.mdb").write_bytes(b"no database" * 100)
    (state,) = refold("doctor", "--offline", "--json").values
    assert [found["code"] for found in state["findings"]] == ["session.format", "credentials.missing"]


def test_a_store_that_cannot_even_be_looked_at_is_a_finding(refold: Here) -> None:
    """A name too long is refused as a folder is that may not be entered; root may enter each."""
    done = refold("doctor", "--store", str(refold.place.store.parent / ("long" * 100)))
    assert (done.code, done.err) == (1, "")
    assert done.lines[-2].endswith("cannot be looked at: File name too long")


def test_healthy_facts_have_no_findings() -> None:
    assert codes(FACTS) == []
    assert codes(replace(FACTS, store=replace(STORE, readers=(OpenReader(1, True, MAX_LAG),)))) == []
    assert codes(replace(FACTS, free_bytes=MIN_FREE_BYTES, store=None)) == []


@pytest.mark.parametrize(
    ("code", "examined"),
    [
        ("disk.low", replace(FACTS, free_bytes=MIN_FREE_BYTES - 1)),
        ("session.corrupt", replace(FACTS, store=replace(STORE, unreadable=1))),
        ("store.nearly-full", replace(FACTS, store=replace(STORE, used_bytes=90, max_bytes=100))),
        ("reader.dead", replace(FACTS, store=replace(STORE, readers=(OpenReader(7, False, 0),)))),
        ("reader.forgotten", replace(FACTS, store=replace(STORE, readers=(OpenReader(7, True, MAX_LAG + 1),)))),
        ("credentials.missing", replace(FACTS, providers=(ProviderRow("far", "chat-completions", "missing"),))),
    ],
)
def test_each_fault_is_found_and_told_with_advice(code: str, examined: Examination) -> None:
    (found,) = findings(examined, {"far": "FAR_KEY"})
    assert found.code == code
    lines = list(report_lines(replace(examined, findings=(found,)), Style(colour=False)))
    assert lines[-2:] == [f"✗ {found.message}", f"  → {found.advice}"]


def test_what_others_wrote_cannot_steer_the_terminal() -> None:
    lease = SessionWriter("s\x1b[2J", os.getpid(), 0, "evil\x1b[2J")
    provider = ProviderRow("a", "b", "none", "http://x/\x1b[2J")
    lines = report_lines(replace(FACTS, leases=(lease, SessionWriter()), providers=(provider,)), Style(colour=False))
    told = "\n".join(lines)
    assert "\x1b" not in told
    assert "a session without anything on disk, by a process that did not say its name" in told


def test_a_reader_is_told_with_how_far_it_lags() -> None:
    store = replace(STORE, readers=(OpenReader(7, True, 12), OpenReader(8, False, 3)))
    lines = list(report_lines(replace(FACTS, store=store), Style(colour=False)))
    assert "reader    process 7 reads what was there 12 commits ago" in lines
    assert "reader    process 8 is dead and reads what was there 3 commits ago" in lines


@pytest.mark.parametrize(
    ("count", "told"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1 kB"), (102_400, "102 kB"), (999_600, "1 MB"), (1 << 40, "1.1 TB")],
)
def test_sizes_are_told_with_a_unit(count: int, told: str) -> None:
    assert size_text(count) == told


def test_a_model_whose_window_nobody_stated_is_found(refold: Here) -> None:
    local = '[providers.far]\ndialect = "chat-completions"\nbase_url = "http://127.0.0.1:9/v1"\n'
    refold.place.config.write_text(f'model = "far/small"\n{local}', encoding="utf-8")
    done = refold("doctor", "--offline", "--json")
    (found,) = done.values[0]["findings"]
    assert (done.code, found["code"]) == (1, "model.unmetered")
    assert found["advice"] == 'set context_window under [models."far/small"], in tokens'
    refold.place.config.write_text(
        f'model = "far/small"\n{local}[models."far/small"]\ncontext_window = 8192\n', encoding="utf-8"
    )
    assert refold("doctor", "--offline").code == 0


def test_each_provider_is_tried_and_a_smaller_window_of_its_server_is_found(refold: Here) -> None:
    listed = Answer((b'{"data":[{"id":"small","max_model_len":8192}]}',), headers=(("content-type", "application/json"),))
    with FakeProvider(listed, listed, lists=True) as provider:
        refold.place.provider(provider.base_url, window=131_072)
        done = refold("doctor", "--json")
    assert done.code == 1
    (state,) = done.values
    ((name, milliseconds),) = [(one["provider"], one["milliseconds"]) for one in state["tries"]]
    assert (name, milliseconds >= 0) == ("fake", True)
    (finding,) = state["findings"]
    assert finding["code"] == "model.window"
    assert "a window of 8,192 tokens, and the configuration says 131,072" in finding["message"]
    assert provider.requests[0].method == "GET", "no prompt is sent"


def test_a_provider_that_does_not_answer_is_found(refold: Here) -> None:
    refold.place.provider("http://127.0.0.1:9/v1")
    done = refold("doctor")
    assert done.code == 1
    assert "provider.unanswered" in done.text or "fake: " in done.text
    assert refold("doctor", "--offline").code == 0
