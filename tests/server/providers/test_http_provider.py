"""A body goes out as it is and its stream comes back as chunks; whatever breaks in between is one error with a kind."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
import zlib

import anyio
import pytest

from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import FinishChunk, Usage, UsageChunk
from refold_server.config import TimeoutsConfig
from tests.support.asking import ask, error_of, http_provider
from tests.support.chat_stream import DONE, call, calls, chunk, event, reply, text, text_in
from tests.support.fake_provider import EVENT_STREAM, Answer, FakeProvider, Gate, answer
from tests.support.requests import request, user

pytestmark = pytest.mark.anyio

GZIP = (*EVENT_STREAM, ("content-encoding", "gzip"))
HALF_CALL = calls(call(0, "c0", "write", '{"path":"a.txt","text":"lo'))


async def test_exactly_the_given_bytes_are_sent_to_the_dialects_path() -> None:
    body = b'{"model":"m","messages":[{"role":"user","content":"\xe9\x82\xa3 "}]}'
    with FakeProvider(answer(reply("ok"))) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider, body)
    assert (text_in(asked.chunks), asked.error) == ("ok", None)
    (sent,) = server.requests
    assert (sent.method, sent.path, sent.body) == ("POST", "/v1/chat/completions", body)
    assert sent.headers["content-type"] == "application/json"
    assert sent.headers["accept"] == "text/event-stream"
    assert "authorization" not in sent.headers


async def test_chunks_arrive_while_the_stream_runs() -> None:
    gate = Gate()
    with FakeProvider(answer(text("a"), gate, text("b") + chunk({}, "stop") + DONE)) as server:
        async with http_provider(server.base_url) as provider:
            stream = provider.stream(request(user("hi")), b"{}")
            first = [await anext(stream), await anext(stream)]
            gate.open()
            rest = [part async for part in stream]
    assert (text_in(first), text_in(rest)) == ("a", "b")


async def test_a_stream_written_byte_by_byte_arrives_whole() -> None:
    """A-01."""
    stream = reply("那🙂")
    with FakeProvider(answer(*(stream[at : at + 1] for at in range(len(stream))))) as server:
        async with http_provider(server.base_url) as provider:
            assert text_in((await ask(provider)).chunks) == "那🙂"


async def test_one_connection_serves_one_call_after_the_other() -> None:
    with FakeProvider(*[answer(reply("ok"))] * 3) as server:
        async with http_provider(server.base_url) as provider:
            for _ in range(3):
                assert (await ask(provider)).error is None
    assert (len(server.requests), server.connections) == (3, 1)


async def test_a_server_that_goes_on_after_the_marker_is_not_waited_for() -> None:
    with FakeProvider(answer(reply("ok"), end="hang")) as server:
        async with http_provider(server.base_url) as provider:
            assert (await ask(provider)).chunks[-1] == FinishChunk("stop")
            assert server.requests[0].left.wait(10)


async def test_a_server_that_goes_on_after_the_finish_reason_is_waited_for_a_little_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("refold_server.providers.http_provider.TAIL_SECONDS", 0.1)
    usage = event({"choices": [], "usage": {"prompt_tokens": 4, "completion_tokens": 1}})
    with FakeProvider(answer(text("ok") + chunk({}, "stop"), usage, end="hang")) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert (asked.error, asked.chunks[-2:]) == (None, [UsageChunk(Usage(4, 1)), FinishChunk("stop")])


async def test_a_failure_behind_chunks_is_told_without_waiting_for_more() -> None:
    with FakeProvider(answer(text("a") + b"data: rubbish\n\n", end="hang")) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert text_in(asked.chunks) == "a"
    assert asked.error is not None
    assert "rubbish" in asked.error.message


async def test_closing_the_generator_closes_the_connection() -> None:
    with FakeProvider(answer(text("a"), end="hang")) as server:
        async with http_provider(server.base_url) as provider:
            stream = provider.stream(request(user("hi")), b"{}")
            await anext(stream)
            await stream.aclose()
            assert server.requests[0].left.wait(10)


async def test_a_call_leaves_no_timer_behind() -> None:
    with FakeProvider(answer(reply("ok"))) as server:
        async with http_provider(server.base_url) as provider:
            assert (await ask(provider)).error is None
    scheduled: list[asyncio.TimerHandle] = getattr(asyncio.get_running_loop(), "_scheduled")  # noqa: B009 - it has no other name
    assert [timer for timer in scheduled if not timer.cancelled() and "CallDeadline" in repr(timer)] == []


@pytest.mark.parametrize("writes", [(), (text("a"),)], ids=["before any output", "in the stream"])
async def test_cancelling_the_caller_closes_the_connection(writes: tuple[bytes, ...]) -> None:
    gate = Gate()
    with FakeProvider(answer(*writes, gate, end="hang")) as server:
        async with http_provider(server.base_url) as provider, anyio.create_task_group() as tasks:
            tasks.start_soon(ask, provider)
            await anyio.to_thread.run_sync(gate.reached.wait, 10)
            tasks.cancel_scope.cancel()
        left = await anyio.to_thread.run_sync(server.requests[0].left.wait, 10)
    assert left


@pytest.mark.parametrize(
    ("played", "text", "words"),
    [
        (answer(text("half")), "half", "in the middle of the text"),
        (answer(HALF_CALL), "", "in the middle of a tool call"),
        (answer(text("half"), end="cut"), "half", "connection broke"),
        (answer(HALF_CALL, end="cut"), "", "connection broke"),
        (answer(HALF_CALL, end="reset"), "", "connection broke"),
        (answer(b""[:0] + b": hi\n\n", end="cut"), "", "connection broke"),
        (answer(b": hi\n\n"), "", "empty"),
        (Answer((text("half"),), chunked=False), "half", "in the middle of the text"),
    ],
    ids=["A-04b", "A-04c", "A-04b cut", "A-04d cut", "A-04d reset", "cut before anything", "A-06c", "no encoding"],
)
async def test_a_stream_that_ends_early_is_a_failure_behind_what_came(played: Answer, text: str, words: str) -> None:
    with FakeProvider(played) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert text_in(asked.chunks) == text
    assert asked.error is not None
    assert asked.error.error_kind == "provider.badStream"
    assert words in asked.error.message


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_connection_that_breaks_after_the_finish_reason_takes_nothing(end: str) -> None:
    """A-13c, A-04a."""
    played = Answer((text("ok") + chunk({}, "stop"),), end="cut" if end == "cut" else "reset")
    with FakeProvider(played) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert (asked.error, asked.chunks[-1]) == (None, FinishChunk("stop"))


async def test_an_error_in_the_stream_keeps_the_providers_name_for_the_request() -> None:
    """A-05c."""
    headers = (*EVENT_STREAM, ("x-request-id", "req-9"))
    stream = text("Par") + event({"error": {"message": "gone", "type": "server_error"}})
    with FakeProvider(Answer((stream,), headers=headers)) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert text_in(asked.chunks) == "Par"
    assert asked.error is not None
    assert (asked.error.error_kind, asked.error.request_id) == ("provider.overloaded", "req-9")


async def test_a_compressed_stream_is_decoded_as_it_arrives() -> None:
    """A-13a: a sync flush after each event, one byte per write, and a client that sees the text before the end."""
    packer = zlib.compressobj(wbits=31)
    first = packer.compress(text("a")) + packer.flush(zlib.Z_SYNC_FLUSH)
    rest = packer.compress(text("b") + chunk({}, "stop") + DONE) + packer.flush()
    gate = Gate()
    writes = (*(first[at : at + 1] for at in range(len(first))), gate, *(rest[at : at + 1] for at in range(len(rest))))
    with FakeProvider(Answer(writes, headers=GZIP)) as server:
        async with http_provider(server.base_url) as provider:
            stream = provider.stream(request(user("hi")), b"{}")
            begun = [await anext(stream), await anext(stream)]
            gate.open()
            ended = [part async for part in stream]
    assert (text_in(begun), text_in(ended)) == ("a", "b")


@pytest.mark.parametrize(("cut", "whole"), [(0, True), (5, True), (40, False)])
def test_a_compressed_stream_that_is_cut_is_whole_if_its_end_came(cut: int, whole: bool) -> None:
    """A-13b, A-13c; without its last bytes the checksum is missing, without more the finish reason is."""
    data = gzip.compress(text("ok") + chunk({}, "stop"), mtime=0)

    async def play() -> None:
        with FakeProvider(Answer((data[: len(data) - cut],), headers=GZIP)) as server:
            async with http_provider(server.base_url) as provider:
                asked = await ask(provider)
        assert (asked.error is None) == whole, asked

    anyio.run(play)


async def test_an_encoding_that_cannot_be_read_is_named() -> None:
    played = Answer((b"\x8b\x02\x80",), headers=(*EVENT_STREAM, ("content-encoding", "br")))
    with FakeProvider(played) as server:
        async with http_provider(server.base_url) as provider:
            assert "'br'" in (await error_of(provider)).message
    assert server.requests[0].headers["accept-encoding"] == "identity"


async def test_compressed_data_that_is_none_is_a_bad_stream() -> None:
    with FakeProvider(Answer((b"not gzip at all",), headers=GZIP)) as server:
        async with http_provider(server.base_url) as provider:
            error = await error_of(provider)
    assert (error.error_kind, "compressed" in error.message) == ("provider.badStream", True)


@pytest.mark.parametrize("status", [200, 500])
@pytest.mark.parametrize("chained", [False, True])
async def test_what_expands_without_an_end_takes_no_memory(status: int, chained: bool) -> None:
    """400 MB of one line in 400 kB, at any status; what was compressed twice is not undone."""
    bomb = gzip.compress(b"data: " + bytes(400 << 20), compresslevel=1)
    encoding = "gzip, gzip" if chained else "gzip"
    played = Answer((bomb,), status=status, headers=(*EVENT_STREAM, ("content-encoding", encoding)))
    with FakeProvider(played) as server:
        async with http_provider(server.base_url) as provider:
            tracemalloc.start()
            try:
                error = await error_of(provider)
                peak = tracemalloc.get_traced_memory()[1]
            finally:
                tracemalloc.stop()
    assert error.error_kind == ("provider.badStream" if status == 200 else "provider.overloaded")
    assert peak < (120 << 20 if status == 200 and not chained else 10 << 20)


@pytest.mark.parametrize("kind", ["application/json", "text/html", "text/plain", ""])
@pytest.mark.parametrize("status", [200, 201, 202])
async def test_a_good_stream_is_read_whatever_it_is_called(kind: str, status: int) -> None:
    with FakeProvider(Answer((reply("ok"),), status=status, headers=(("content-type", kind),) if kind else ())) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert (text_in(asked.chunks), asked.error) == ("ok", None)


async def test_an_error_behind_the_finish_reason_is_an_error() -> None:
    stream = text("a") + chunk({}, "stop") + event({"error": {"message": "billing stopped", "code": "insufficient_quota"}})
    with FakeProvider(answer(stream)) as server:
        async with http_provider(server.base_url) as provider:
            assert "billing stopped" in (await error_of(provider)).message


async def test_a_line_of_three_megabytes_arrives() -> None:
    """A-13d."""
    stream = calls(call(0, "c", "w", '{"x":"' + "x" * 3_000_000 + '"}')) + chunk({}, "tool_calls") + DONE
    with FakeProvider(answer(*(stream[at : at + 60_000] for at in range(0, len(stream), 60_000)))) as server:
        async with http_provider(server.base_url) as provider:
            asked = await ask(provider)
    assert (asked.error, asked.chunks[-1]) == (None, FinishChunk("tool-calls"))


async def test_a_refused_connection_says_where_nobody_listened() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    async with http_provider(f"http://{address}/v1") as provider:
        error = await error_of(provider)
    assert (error.error_kind, address in error.message) == ("provider.unreachable", True)
    assert "refused" in error.message


async def test_a_name_that_does_not_resolve_is_said_to() -> None:
    async with http_provider("http://no-such-host.invalid/v1") as provider:
        error = await error_of(provider)
    assert error.error_kind == "provider.unreachable"
    assert "no-such-host.invalid could not be reached: the name cannot be resolved" in error.message


async def test_a_server_that_closes_without_an_answer_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def hang_up() -> None:
            connection, _ = server.accept()
            connection.recv(100)
            connection.close()

        asked: list[ProviderError] = []
        async with (
            http_provider(f"http://127.0.0.1:{server.getsockname()[1]}/v1") as provider,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(anyio.to_thread.run_sync, hang_up)
            asked.append(await error_of(provider))
    assert asked[0].error_kind == "provider.unreachable"


@pytest.mark.parametrize(
    ("writes", "limits", "named"),
    [
        ((), TimeoutsConfig(first_output_s=0.5), "first_output_s"),
        ((b": still here\n\n",), TimeoutsConfig(first_output_s=0.5), "first_output_s"),
        ((text("a"),), TimeoutsConfig(progress_s=0.05), "progress_s"),
        ((text("a"),), TimeoutsConfig(total_s=0.2), "total_s"),
    ],
    ids=["no answer", "comments are no output", "no progress", "in all"],
)
async def test_waiting_has_limits_and_the_error_names_the_one(
    writes: tuple[bytes, ...], limits: TimeoutsConfig, named: str
) -> None:
    with FakeProvider(answer(*writes, end="hang")) as server:
        async with http_provider(server.base_url, timeouts=limits) as provider:
            error = await error_of(provider)
            assert server.requests[0].left.wait(10)
    assert (error.error_kind, named in error.message) == ("provider.timeout", True)


async def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeProvider(answer(reply("ok"))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.base_url.removesuffix("/v1"))
        monkeypatch.setenv("no_proxy", "")
        async with http_provider("http://no-such-host.invalid/v1") as provider:
            assert text_in((await ask(provider)).chunks) == "ok"
    assert proxy.requests[0].path == "http://no-such-host.invalid/v1/chat/completions"


async def test_certificates_that_cannot_be_read_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", __file__)
    async with http_provider("https://127.0.0.1:9/v1") as provider:
        error = await error_of(provider)
    assert (error.error_kind, "SSL_CERT_FILE" in error.message) == ("provider.unreachable", True)
