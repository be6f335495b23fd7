"""A key comes from a variable or a command, goes into one header, and shows nowhere."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from refold_protocol.dialects.chat_completions import resolve_options
from refold_protocol.errors import ProviderError
from refold_server.config import ProviderConfig
from refold_server.providers.credentials import Credentials
from tests.support.asking import NO_LOGINS, ask, error_of, http_provider
from tests.support.chat_stream import event, reply
from tests.support.fake_provider import Answer, FakeProvider, answer

pytestmark = pytest.mark.anyio

KEY = "sk-very-secret-0123456789"


def credentials(environment: dict[str, str] | None = None, **config: Any) -> Credentials:
    row = ProviderConfig("house", "chat-completions", resolve_options({}), "http://127.0.0.1:9/v1", **config)
    return Credentials(row, environment or {}, NO_LOGINS)


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def refused(tested: Credentials) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await tested.key()
    assert caught.value.error_kind == "provider.auth"
    return caught.value


async def test_without_a_setting_there_is_no_key() -> None:
    assert await credentials().key() is None


async def test_a_variable_gives_the_key_without_blanks_around_it() -> None:
    assert await credentials({"HOUSE_KEY": f" {KEY}\n"}, key_env="HOUSE_KEY").key() == KEY


@pytest.mark.parametrize("environment", [{}, {"HOUSE_KEY": " "}])
async def test_a_missing_key_names_the_variable(environment: dict[str, str]) -> None:
    error = await refused(credentials(environment, key_env="HOUSE_KEY"))
    assert "HOUSE_KEY" in error.message
    assert "house" in error.message


async def test_a_key_that_no_header_can_carry_is_refused_without_being_shown() -> None:
    error = await refused(credentials({"HOUSE_KEY": "sk-\nsecret"}, key_env="HOUSE_KEY"))
    assert "secret" not in error.message


async def test_a_command_prints_the_key_and_runs_once(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    tested = credentials(key_command=python(f"open({str(runs)!r}, 'a').write('x'); print({KEY!r}); print('more')"))
    assert [await tested.key(), await tested.key()] == [KEY, KEY]
    assert runs.read_text() == "x"
    tested.forget()
    assert await tested.key() == KEY
    assert runs.read_text() == "xx"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (python("import sys; print('sk-secret', file=sys.stderr); sys.exit(3)"), "exit code 3"),
        (python("print()"), "printed nothing"),
        (("/nonexistent/program",), "cannot be run"),
    ],
)
async def test_a_command_that_gives_no_key_is_named(command: tuple[str, ...], words: str) -> None:
    error = await refused(credentials(key_command=command))
    assert words in error.message
    assert command[0] in error.message
    assert "secret" not in error.message


async def test_the_key_and_configured_headers_are_sent() -> None:
    with FakeProvider(answer(reply("ok"))) as server:
        async with http_provider(
            server.base_url, environment={"K": KEY}, key_env="K", headers=(("X-Team", "blue"), ("User-Agent", "mine"))
        ) as provider:
            await ask(provider)
    sent = server.requests[0].headers
    assert (sent["authorization"], sent["x-team"], sent["user-agent"]) == (f"Bearer {KEY}", "blue", "mine")


async def test_without_its_key_nothing_is_sent() -> None:
    with FakeProvider() as server:
        async with http_provider(server.base_url, key_env="NO_SUCH_KEY") as provider:
            assert "NO_SUCH_KEY" in (await error_of(provider)).message
    assert server.requests == []


async def test_a_refused_key_names_where_it_came_from_and_is_fetched_again(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = python(f"open({str(runs)!r}, 'a').write('x'); print({KEY!r})")
    unauthorized = Answer((b'{"error":{"message":"bad key"}}',), status=401, headers=(("content-type", "application/json"),))
    with FakeProvider(unauthorized, unauthorized) as server:
        async with http_provider(server.base_url, key_command=command) as provider:
            errors = [await error_of(provider), await error_of(provider)]
    assert sys.executable in errors[0].message
    assert errors[0].retry_after_ms is None  # the command prints the same key again
    assert runs.read_text() == "xxx"


async def test_a_server_that_wants_a_key_where_none_is_set_says_how_to_set_one() -> None:
    with FakeProvider(Answer(status=401)) as server:
        async with http_provider(server.base_url) as provider:
            assert "providers.fake.key_env" in (await error_of(provider)).message


async def test_keys_never_show_in_errors_or_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Even where the provider sends them back."""
    caplog.set_level(logging.DEBUG)
    echo = f"Incorrect key {KEY} or hush-hush-token".encode()
    answers = [
        Answer((b'{"error":{"message":"' + echo + b'"}}',), status=401, headers=(("content-type", "application/json"),)),
        answer(event({"error": {"message": echo.decode()}})),
        answer(b"data: " + echo + b"\n\n"),
        Answer((echo,), headers=(("content-type", "text/html"),)),
        answer(reply("ok")),
    ]
    with FakeProvider(*answers) as server:
        async with http_provider(
            server.base_url, environment={"K": KEY}, key_env="K", headers=(("X-Api-Token", "Bearer hush-hush-token"),)
        ) as provider:
            asked = [await ask(provider) for _ in answers]
    assert [one.error is None for one in asked] == [False, False, False, False, True]
    shown = "\n".join(one.error.message for one in asked if one.error is not None) + caplog.text
    assert KEY not in shown
    assert "hush" not in shown
    assert "Incorrect key •••" in shown
