"""How requests get to a server: which connections are used again, through which proxy, and what goes along."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from pathlib import Path

import pytest

from refold_protocol.dialects.chat_completions import CHAT_COMPLETIONS, resolve_options
from refold_server.config import ProviderConfig, TimeoutsConfig
from refold_server.providers.credentials import Credentials
from refold_server.providers.http_provider import HttpProvider
from refold_server.providers.http_transport import HttpClients
from tests.support.asking import NO_LOGINS, ask, error_of, http_provider
from tests.support.chat_stream import reply, text_in
from tests.support.fake_provider import Answer, FakeProvider, answer

pytestmark = pytest.mark.anyio

JSON = (("content-type", "application/json"),)


class DroppingServer:
    """A server that answers `answered[n]` requests on its connection n, and hangs up on the next one there."""

    def __init__(self, *answered: int) -> None:
        self.connections = 0
        self.bodies = 0
        self._answered = answered
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"

    def __enter__(self) -> DroppingServer:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # the test is over
                return
            answered = self._answered[self.connections]
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection, answered), daemon=True).start()

    def _talk(self, connection: socket.socket, answered: int) -> None:
        with connection, connection.makefile("rwb") as file:
            for turn in range(answered + 1):
                length = 0
                while line := file.readline().strip():
                    name, _, value = line.partition(b":")
                    length = int(value) if name.lower() == b"content-length" else length
                if not length:
                    return
                file.read(length)
                self.bodies += 1
                if turn == answered:
                    return
                stream = reply("ok")
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
                file.write(head % len(stream) + stream)
                file.flush()


async def test_a_kept_connection_that_died_is_replaced_by_a_new_one() -> None:
    with DroppingServer(1, 1) as server:
        async with http_provider(server.base_url) as provider:
            assert [text_in((await ask(provider)).chunks) for _ in range(2)] == ["ok", "ok"]
    assert (server.connections, server.bodies) == (2, 3)


async def test_there_is_one_new_connection_and_no_more() -> None:
    with DroppingServer(1, 0) as server:
        async with http_provider(server.base_url) as provider:
            assert (await ask(provider)).error is None
            error = await error_of(provider)
    assert "closed the connection without an answer" in error.message
    assert (server.connections, server.bodies) == (2, 3)


async def test_a_request_that_a_new_connection_took_goes_out_once() -> None:
    with DroppingServer(0, 1) as server:
        async with http_provider(server.base_url) as provider:
            assert "closed the connection without an answer" in (await error_of(provider)).message
    assert (server.connections, server.bodies) == (1, 1)


async def test_what_the_environment_names_is_no_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with FakeProvider(answer(reply("ok"))) as server:
        async with http_provider(server.base_url) as provider:
            assert text_in((await ask(provider)).chunks) == "ok"


@pytest.mark.parametrize("status", [403, 407, 502, 503])
async def test_an_answer_through_a_proxy_says_so_without_its_password(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeProvider(Answer(status=status)) as proxy:
        place = proxy.base_url.removesuffix("/v1").removeprefix("http://")
        monkeypatch.setenv("http_proxy", f"http://me:hush-hush@{place}")
        async with http_provider("http://far.invalid/v1") as provider:
            error = await error_of(provider)
    assert f"through the proxy http://{place} (http_proxy)" in error.message
    assert "hush" not in error.message


async def test_a_proxy_that_opens_no_tunnel_is_named_with_what_it_said() -> None:
    with FakeProvider(Answer(status=407, headers=JSON)) as proxy:
        place = proxy.base_url.removesuffix("/v1")
        async with http_provider("https://far.invalid/v1", proxy=place) as provider:
            error = await error_of(provider)
    assert error.error_kind == "provider.unreachable"
    assert f"the proxy {place} (providers.fake.proxy) did not let the request to far.invalid through" in error.message
    assert "user and a password" in error.message


async def test_a_proxy_that_is_not_there_is_named() -> None:
    async with http_provider("http://far.invalid/v1", proxy="http://127.0.0.1:9") as provider:
        error = await error_of(provider)
    assert "http://127.0.0.1:9 (providers.fake.proxy)" in error.message


async def test_path_query_and_key_header_are_the_servers_own() -> None:
    with FakeProvider(answer(reply("ok"))) as server:
        async with http_provider(
            server.base_url,
            path="/openai/deployments/{model}/chat/completions",
            query=(("api-version", "2025-04-01"),),
            key_env="K",
            key_header="Api-Key",
            header_env=(("X-Team", "TEAM"),),
            header_command=(("X-Note", ("printf", "from a command")),),
            environment={"K": "sk-of-azure", "TEAM": "blue"},
        ) as provider:
            assert (await ask(provider)).error is None
    (sent,) = server.requests
    assert sent.path == "/v1/openai/deployments/m/chat/completions?api-version=2025-04-01"
    assert (sent.headers["api-key"], sent.headers["x-team"]) == ("sk-of-azure", "blue")
    assert sent.headers["x-note"] == "from a command"
    assert "authorization" not in sent.headers


async def test_a_provider_has_time_limits_of_its_own() -> None:
    limits = TimeoutsConfig(first_output_s=0.1)
    with FakeProvider(Answer(end="hang")) as server:
        clients = HttpClients()
        row = ProviderConfig("fake", "chat-completions", resolve_options({}), server.base_url, timeouts=limits)
        provider = HttpProvider(row, CHAT_COMPLETIONS, TimeoutsConfig(), clients, credentials=Credentials(row, {}, NO_LOGINS))
        assert "within 0.1 s" in (await error_of(provider)).message
        await clients.close()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_carries_nothing_elsewhere(status: int) -> None:
    with FakeProvider() as elsewhere:
        moved = Answer(status=status, headers=(("location", f"{elsewhere.base_url}/chat/completions"),))
        with FakeProvider(moved) as server:
            async with http_provider(server.base_url, key_env="K", environment={"K": "sk-stays-here"}) as provider:
                assert (await error_of(provider)).status == status
    assert elsewhere.requests == []


async def test_files_of_certificates_that_cannot_be_read_are_told_of() -> None:
    async with http_provider("https://127.0.0.1:9/v1", ca_file=__file__) as provider:
        assert "ca_file" in (await error_of(provider)).message


@pytest.fixture(scope="module")
def own_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for this machine that nobody signed but itself, and its key, in one file."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not here to make a certificate")
    path = tmp_path_factory.mktemp("tls") / "own.pem"
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=own"]
    names = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{path}.key", "-out", f"{path}.crt"]
    subprocess.run([program, "req", *kind, *names], check=True, capture_output=True)
    path.write_text(Path(f"{path}.crt").read_text() + Path(f"{path}.key").read_text())
    return path


async def test_a_house_with_its_own_authority_is_trusted_and_shown_a_certificate(own_certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own_certificate)
    context.load_verify_locations(own_certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeProvider(answer(reply("ok")), tls=context) as server:
        async with http_provider(server.base_url, ca_file=own_certificate, client_cert=own_certificate) as provider:
            assert text_in((await ask(provider)).chunks) == "ok"
        async with http_provider(server.base_url, ca_file=own_certificate) as provider:
            assert (await ask(provider)).error is not None
        async with http_provider(server.base_url, client_cert=own_certificate) as provider:
            error = await error_of(provider)
    assert ("not trusted" in error.message, "ca_file" in error.message, error.lasting) == (True, True, True)
    assert len(server.requests) == 1
