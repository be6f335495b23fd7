"""Stage on which a story plays: real daemons over pipes, and the transcript that grows as they are asked.

What is told and when is the story's choice, so that a transcript does not depend on how replies and notifications
interleave: a request and its reply, then the log up to an event that the story waits for, then the next request. Every
event comes from a subscription, as an editor would get it. Never sleeps and has no time limits.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from refold_client import Approval, Client, RpcError, Subscription, spawn
from tests.support.approval_files import Person
from tests.support.daemons import ONCE, PLAIN_OPTIONS, SERVE, Place, gone, kill, text_so_far, until
from tests.support.fake_provider import Answer, FakeProvider, Gate
from tests.support.transcripts_lines import event_lines
from tests.support.transcripts_names import Names, quoted, words
from tests.support.transcripts_replies import params_words, reply_words, result_lines, writes_words

Json = dict[str, Any]

TOOLS: Final = ("list_files", "read_file", "search_text")
"""What stories use that say nothing else, so that a new tool does not change every transcript."""


class Tale:
    """One story: its place, and the lines of its transcript so far. `ends` is closed when the story is told."""

    def __init__(self, root: Path, ends: AsyncExitStack) -> None:
        self.place = Place(root)
        self._ends = ends
        self.names = Names()
        self.names.call(str(self.place.workspace), "<workspace>")
        self.names.call(str(root), "<root>")
        self.lines: list[str] = []
        self._enabled: Sequence[str] = TOOLS
        self._provider = ""
        self._further = ""
        self.heard = ""
        """Whose client was heard last."""

    def say(self, text: str) -> None:
        """Tell what happens outside the wire."""
        self.lines += ["", f"# {text}"]

    def tools(self, *names: str) -> None:
        """Have daemons that start from now on offer these tools."""
        self.say(f"The tools are {', '.join(names)}.")
        self._enabled = names
        self._configure()

    def file(self, name: str, text: str) -> None:
        """Write a file of the workspace."""
        self.say(f"{name} of the workspace says {quoted(text)}.")
        (self.place.workspace / name).write_text(text)

    def plugin(self, name: str, source: str, *, shows: str = "") -> None:
        """Have daemons that start from now on load a plugin of that name. Its source is told, or what it `shows`."""
        text = dedent(source).strip()
        self.say(f"The plugin {name}: {shows}".rstrip())
        self.lines += [] if shows else [f"    | {line}".rstrip() for line in text.split("\n")]
        path = self.place.root / f"{name}.py"
        path.write_text(f"{text}\n")
        self._further = f"[plugins]\npaths = [{json.dumps(str(path))}]\n"
        self._configure()

    def window(self, tokens: int) -> None:
        """Say how large the window of the model of `plays` is, at one character a token."""
        self.say(f"The model's window has {tokens:,} tokens; a token is a character.")
        self._further = f'[models."fake/small"]\ncontext_window = {tokens}\nchars_per_token = 1\n'
        self._configure()

    def script(self, *replies: Json) -> None:
        """Have the rehearsal provider of daemons that start from now on give these replies, one a request."""
        if replies:
            self.say("The provider has these replies, one a request:")
            self.lines += [f"    {reply_words(reply)}" for reply in replies]
        (self.place.root / "script.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
        self._provider = '[models."rehearsal/workspace"]\nextra = { script = "script.jsonl" }\n'
        self._configure()

    def gate(self) -> Gate:
        """Give a place in a reply at which it waits until the story opens it."""
        return Gate()

    async def plays(self, *replies: Sequence[bytes | Gate | None]) -> None:
        """The same as `script`, from a provider of another process's kind: each reply is a row of writes. At a gate it
        waits; at None it says nothing more until the client leaves."""
        self.say("The provider has these replies, one a request:")
        self.lines += [f"    {writes_words(reply)}" for reply in replies]
        provider = await self._ends.enter_async_context(FakeProvider(*map(_answer, replies)))
        table = f'[providers.fake]\ndialect = "chat-completions"\nbase_url = "{provider.base_url}"\noptions = {PLAIN_OPTIONS}\n'
        self._provider = f'model = "fake/small"\n{table}'
        self._configure()

    def _configure(self) -> None:
        self.place.configure(f"{self._provider}\n{ONCE}\n[tools]\nenabled = {json.dumps(self._enabled)}\n{self._further}")

    def errors(self) -> str:
        """Give what its daemons have written to standard error."""
        return self.place.errors.read_text() if self.place.errors.exists() else ""

    @asynccontextmanager
    async def daemon(self, name: str, **options: Any) -> AsyncGenerator[Teller]:
        """Start a daemon and begin a connection; at the end shut it down, unless it is gone by then. It runs in the root
        of the place, and at home there, so that nothing of this machine gets into a request."""
        env = self.place.daemon_env | {"HOME": str(self.place.root)}
        given = {"store": str(self.place.store), **options}
        self.say(f"{name} starts." + (f" initializationOptions: {words(options)}" if options else ""))
        with self.place.errors.open("ab") as errors:
            async with spawn(SERVE, env=env, cwd=self.place.root, stderr=errors, options=given) as client:
                self.names.process(client.pid, f"<{name}>")
                yield (teller := Teller(self, name, client))
                if not teller.is_gone:
                    code = await client.close()
                    self.say(f"{name} is shut down: exit code {code}.")


class Teller:
    """One daemon of a story, and the client that talks to it."""

    def __init__(self, tale: Tale, name: str, client: Client) -> None:
        self.client = client
        self.is_gone = False
        self._tale = tale
        self._name = name
        self._events: Subscription | None = None
        self._person = Person(client)

    @property
    def events(self) -> Subscription:
        """The subscription that was begun last."""
        assert self._events is not None, "the story follows no session yet"
        return self._events

    async def ask(self, method: str, **params: Any) -> Json:
        """Send a request; tell it and its reply; give the result, or the error's data."""
        self._ask(method, params)
        try:
            result = await self.client.request(method, params)
        except RpcError as error:  # a refusal is part of the story
            self._refused(error)
            return error.data or {}
        self._tell(result_lines(method, params, self._tale.names.clean(result)))
        return result or {}

    async def begin(self, **settings: Any) -> str:
        """Begin a session in the workspace and follow it; give its id."""
        opened = await self.ask("session/open", cwd=str(self._tale.place.workspace), **settings)
        await self.follow(opened["session"])
        return opened["session"]

    async def follow(self, session: str, *, after: int | str = -1, **more: Any) -> None:
        """Subscribe; what is told of the log from now on comes from this subscription."""
        self._ask("event/subscribe", {"session": session, "after": after, **more})
        try:
            self._events = await self.client.subscribe(session, after=after, **more)  # pyright: ignore[reportArgumentType]
        except RpcError as error:  # a refusal is part of the story
            self._refused(error)
            return
        writer = {} if self._events.writer is None else {"writer": self._events.writer}
        told = {**writer, "tail": self._events.tail, "durable": self._events.durable}
        self._tell(result_lines("event/subscribe", {}, self._tale.names.clean(told)))

    async def start(self, session: str, text: str, **more: Any) -> Json:
        """turn/start with a text."""
        return await self.ask("turn/start", session=session, content=[{"type": "text", "text": text}], **more)

    async def waits(self, session: str, **which: Any) -> None:
        """turn/wait, and tell nothing of it: what happens meanwhile is told elsewhere."""
        await self.client.request("turn/wait", {"session": session, **which})

    async def grows(self, kind: str = "turn/end", **data: Any) -> list[Json]:
        """Tell the log up to the first event of that type with these members in its data."""
        return self._show(await until(self.events, kind, **data))

    async def says(self, text: str, *, durable: bool = True) -> list[Json]:
        """Tell the log up to the chunk with which the reply has said `text`; unless not `durable`, it is on disk then."""
        told = await text_so_far(self.events, text)
        if durable:
            await self.events.wait_durable(told[-1]["seq"])
        return self._show(told)

    async def turn(self, session: str, text: str) -> None:
        """Run a prompt to its end."""
        await self.start(session, text)
        await self.grows()

    async def proves(self, session: str, *, equal: int) -> None:
        """log/verify, which must find that many requests and all of them equal."""
        proof = await self.ask("log/verify", session=session)
        assert "mismatch" not in proof, proof
        assert (proof["requests"], proof["equal"], proof["unshipped"]) == (equal, equal, 0)

    async def asked(self) -> Approval:
        """Wait for `approval/request`, and tell it."""
        question = await self._person.question()
        told = {key: value for key, value in question.items() if key not in {"options", "deadlineMs"}}
        options = words([option["id"] for option in question["options"]])
        self._tell([f"asks approval/request {params_words(self._tale.names.clean(told))} options={options}"])
        return question

    def answers(self, option: str) -> None:
        """Answer the question that waits."""
        self._tale.lines += [f"{self._name} > {option}"]
        self._person.says(option)

    def hears(self, method: str, params: Json) -> None:
        """Tell a notification that the story waited for."""
        self._tell([f"hears {method} {params_words(self._tale.names.clean(params))}"])

    async def killed(self) -> None:
        """End the daemon by SIGKILL."""
        await kill(self.client)
        self.is_gone = True
        self._tale.say(f"{self._name} is killed (SIGKILL).")

    async def left(self) -> None:
        """Close the daemon's input without a word, as an editor that ended does."""
        stdin = self.client.connection.process.stdin
        assert stdin is not None
        self._tale.say(f"{self._name}'s input is closed, without shutdown.")
        await stdin.aclose()
        self.is_gone = True

    async def ends(self) -> None:
        """Wait for the end of a daemon that was left."""
        self._tale.say(f"{self._name} ends: exit code {await gone(self.client)}.")

    def _ask(self, method: str, params: Json) -> None:
        told = params_words(self._tale.names.clean(params))
        self._tale.lines += ["", f"{self._name} > {method} {told}".rstrip()]
        self._tale.heard = self._name

    def _tell(self, lines: Sequence[str]) -> None:
        self._tale.lines += [f"{self._name} < {lines[0]}".rstrip(), *lines[1:]]

    def _refused(self, error: RpcError) -> None:
        names = self._tale.names
        data = f" {words(names.clean(error.data))}" if error.data else ""
        self._tell([f"refused, {error.code}: {names.text(error.message)}{data}"])

    def _show(self, events: list[Json]) -> list[Json]:
        if self._tale.heard != self._name:
            self._tale.lines += ["", f"{self._name} is told:"]
            self._tale.heard = self._name
        self._tale.lines += event_lines(self._tale.names.clean(events))
        return events


def _answer(writes: Sequence[bytes | Gate | None]) -> Answer:
    said = tuple(write for write in writes if write is not None)
    return Answer(said, end="complete" if len(said) == len(writes) else "hang")
