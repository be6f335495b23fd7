"""Questions in the Python client: who answers them, what happens where nobody does, and what is cancelled."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from refold_client import UnclaimedMessageError, client_questions, spawn
from refold_client.blocking import spawn_blocking
from refold_client.client_questions import Approval
from refold_protocol.session.events import ApprovalSubject
from refold_server.rpc.approval_methods import ApprovalOption, ApprovalRequestParams
from tests.support.approval_files import change, changed, changing
from tests.support.daemons import SERVE, Json, Place

pytestmark = pytest.mark.anyio

SAY: Json = {"text": "Done."}
QUESTION: Json = {"jsonrpc": "2.0", "id": 1, "method": "approval/request", "params": {"approval": "P1", "default": "deny"}}
CANCEL: Json = {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}}


def scripted(*messages: Json) -> Sequence[str]:
    """A daemon that sends these behind its first answer, and writes what it reads to standard error."""
    return (sys.executable, "-m", "tests.support.scripted_daemon", json.dumps({"result": {}, "then": messages}))


async def replies(place: Place, count: int) -> list[Json]:
    """Wait until a scripted daemon has read so many replies; give them."""
    while True:
        read = [json.loads(line) for line in place.errors.read_text().split("\n")[:-1]]
        if len(found := [one for one in read if "method" not in one]) >= count:
            return found
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("kind", "struct"),
    [(Approval, ApprovalRequestParams), (client_questions.Subject, ApprovalSubject), (client_questions.Option, ApprovalOption)],
)
def test_the_types_of_a_question_are_those_of_the_table(kind: Any, struct: Any) -> None:
    fields: Any = msgspec.structs.fields(struct)
    assert kind.__required_keys__ == {field.encode_name for field in fields if field.required}
    assert kind.__optional_keys__ == {field.encode_name for field in fields if not field.required}


async def test_a_client_that_answers_no_questions_says_so_and_goes_on(place: Place) -> None:
    with place.errors.open("ab") as errors:
        async with spawn(scripted(QUESTION), stderr=errors) as client:
            await client.request("x")
            (reply,) = await replies(place, 1)
            await client.request("y")  # nothing stayed unclaimed
    assert (reply["id"], reply["error"]["code"]) == (1, -32601)


async def test_no_choice_is_the_default(place: Place) -> None:
    async def nothing(question: Approval) -> None:
        assert question["approval"] == "P1"

    with place.errors.open("ab") as errors:
        async with spawn(scripted(QUESTION), stderr=errors) as client:
            client.on_approval(nothing)
            await client.request("x")
            assert (await replies(place, 1))[0]["result"] == {"option": "deny"}


async def test_a_question_that_is_cancelled_before_anybody_sees_it_is_answered_all_the_same(place: Place) -> None:
    with place.errors.open("ab") as errors:
        async with spawn(scripted(QUESTION, CANCEL, CANCEL), stderr=errors) as client:
            await client.request("x")  # the question and its end came together: nobody was asked
            (reply,) = await replies(place, 1)
            assert (reply["id"], reply["error"]["code"]) == (1, -32800)
            await client.request("y")


async def test_a_handler_that_fails_is_raised_where_the_caller_looks(place: Place) -> None:
    async def fail(question: Approval) -> str:
        raise ZeroDivisionError(question["approval"])

    with place.errors.open("ab") as errors:
        async with spawn(scripted(QUESTION), stderr=errors) as client:
            client.on_approval(fail)
            await client.request("x")
            assert (await replies(place, 1))[0]["error"]["code"] == -32603
            with pytest.raises(UnclaimedMessageError, match="P1"):
                await client.request("y")


def test_the_blocking_client_answers_in_a_thread_while_a_call_waits(place: Place) -> None:
    changing(place, change(), change("two", "c2"), SAY)
    asked: list[tuple[str, bool]] = []

    def answer(question: Approval) -> str:
        asked.append((question["subject"]["text"], threading.current_thread() is threading.main_thread()))
        return "once" if len(asked) == 1 else "deny"

    with (
        place.errors.open("ab") as errors,
        spawn_blocking(SERVE, env=place.daemon_env, stderr=errors, options={"store": str(place.store)}) as client,
    ):
        client.on_approval(answer)
        session = client.open_session(cwd=place.workspace)["session"]
        assert client.prompt(session, "go")["data"]["reason"] == {"kind": "completed"}
    assert asked == [('change {"line":"one"}', False), ('change {"line":"two"}', False)]
    assert changed(place) == ["one"]
