"""The offline provider: it needs no network and no key, and replaces nothing but the transport.

It takes a chat-completions body and makes the bytes of a chat-completions stream, which the ordinary decoder reads. What
it says is a pure function of the body, or, where the body names a `script`, the script's next reply. Only the cached tokens
that it reports depend on what this process saw before.

It is honest about being no model: it lists the files, searches for the rarest word of the question, reads the best hit, and
answers with path, line and text as the tools gave them; so a wrong tool result gives a visibly wrong answer. Where a tool is
not offered or says something else than expected, the answer says that. Knows the forms in which the built-in tools answer, and
no file of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Final

import anyio
import msgspec
from msgspec import Struct

from refold_protocol.dialects.chat_completions import ChatCompletionsDecoder
from refold_protocol.errors import ProviderError
from refold_protocol.session.messages import Chunk
from refold_protocol.session.request import Request
from refold_server.providers.offline_stream import PrefixMemory, Said, SaidCall, Script, Writes, spoken

_COMMON: Final = frozenset(
    """
    about after again all also and any are because been before being between both but can computed could defined did does
    doing done each else every explain file files find first for from function give had happen happens has have here how
    into its just kept know last let like line lines list look made make makes many may mean means might more most much
    must name named need not now off one only open other our out over own part place please project read repository
    same say says search see should show some stored such tell text than that the their them then there these they thing
    this those through told too two under until use used uses using very want was way well were what when where whether
    which while who whose why will with word work works workspace would write written you your code say
    """.split()  # noqa: SIM905 - a paragraph of words reads better than a column
)
"""Words that say nothing about what is looked for."""

_WORD: Final = re.compile(r"[^\W\d]\w{2,}")


def rarest_word(question: str, paths: Sequence[str]) -> str | None:
    """Give the word of `question` to search for, None where it has none of three letters or more.

    Names come before words (an underscore, a digit, a capital inside), words of fewer paths before others, longer ones
    before shorter ones, earlier ones before later ones. Common words are taken only if there is nothing else.
    """
    words = list(dict.fromkeys(_WORD.findall(question)))
    telling = [word for word in words if word.lower() not in _COMMON] or words
    lowered = [path.lower() for path in paths]

    def rank(word: str) -> tuple[bool, int, int]:
        return (not _is_name(word), sum(word.lower() in path for path in lowered), -len(word))

    return min(telling, key=rank, default=None)


def _is_name(word: str) -> bool:
    return "_" in word or any(character.isdigit() or character.isupper() for character in word[1:])


CONTEXT_LINES: Final = 3
"""How many lines around a hit are read."""

_SUMMARY: Final = "Answer with the summary alone, as text. Call no tool."
"""How refold asks for a summary of the history."""

_REMEMBERED: Final = 20
"""How many questions a summary holds."""


class BodyFunction(Struct, frozen=True):
    """A function's name and, in a call, its arguments' text."""

    name: str
    arguments: str = ""


class BodyTool(Struct, frozen=True):
    """A tool that is offered."""

    function: BodyFunction


class BodyCall(Struct, frozen=True):
    """A call of an earlier reply."""

    id: str
    function: BodyFunction


class BodyPart(Struct, frozen=True):
    """A part of a message's content; only texts are read."""

    type: str
    text: str = ""


class BodyMessage(Struct, frozen=True):
    """A message of the body."""

    role: str
    content: str | tuple[BodyPart, ...] | None = None
    tool_calls: tuple[BodyCall, ...] = ()
    tool_call_id: str | None = None


class OfflineBody(Struct, frozen=True):
    """What is read of a body. `script` names a file of scripted replies."""

    model: str
    messages: tuple[BodyMessage, ...]
    tools: tuple[BodyTool, ...] = ()
    script: str | None = None


class Hit(Struct, frozen=True):
    """A line that a search gave."""

    path: str
    line: int
    text: str


def decide(body: OfflineBody) -> Said:
    """Give the reply to a body."""
    start = _question_at(body.messages)
    question = _unwrapped(_text(body.messages[start])) if start >= 0 else ""
    offered = {tool.function.name for tool in body.tools}
    if _SUMMARY in question:
        return _summary(body.messages[:start])
    if not offered:
        return Said(
            f"This is refold's rehearsal, an offline stand-in for a model. It was offered no tools, so it looked nothing "
            f"up. The last message has {len(question):,} characters{_quoted(question)}."
        )
    return _next_move(question, offered, _results(body.messages[start + 1 :]))


def _next_move(question: str, offered: set[str], results: dict[str, str]) -> Said:
    listing = results.get("list_files")
    if listing is None:
        if "list_files" in offered:
            return _call("I begin with a list of the files. ", "list_files", {})
        return Said("The tool list_files is not offered, and without it I do not know where to look.")
    paths = _paths(listing)
    if paths is None:
        return _stopped("list_files", listing)
    word = rarest_word(question, paths)
    found = results.get("search_text")
    if found is None:
        if word is not None and "search_text" in offered:
            return _call(f"Now I search for {word!r}. ", "search_text", {"pattern": word})
        return Said(f"{_listed(paths)} There was nothing to search for, or nothing to search with.")
    hits = _hits(found)
    if hits is None:
        return _stopped("search_text", found)
    if not hits:
        return Said(f"No line of the workspace holds {word!r}, the rarest word of the question. {_listed(paths)}")
    hit = _best(hits)
    read = results.get("read_file")
    if read is None and "read_file" in offered:
        start, end = max(1, hit.line - CONTEXT_LINES), hit.line + CONTEXT_LINES
        arguments = {"path": hit.path, "startLine": start, "endLine": end}
        return _call(f"The best hit is in {hit.path}; I read it. ", "read_file", arguments)
    return _answer(word or "", paths, hits, hit, read)


def _answer(word: str, paths: list[str], hits: list[Hit], hit: Hit, read: str | None) -> Said:
    files = len({known.path for known in hits})
    text = f"{hit.path}, line {hit.line}, says:\n\n    {hit.text.strip()}\n\n"
    if read is None:
        text += "The tool read_file is not offered, so this is what the search gave. "
    elif (lines := _numbered(read)) is None:
        return _stopped("read_file", read)
    elif hit.line not in lines:
        text += f"But read_file did not show line {hit.line}. "
    elif hit.text.strip().removeprefix("...").removesuffix("...") in lines[hit.line]:  # long lines are clipped
        text += f"read_file shows the same line among {len(lines)} lines. "
    else:
        text += f"But read_file shows at that place:\n\n    {lines[hit.line].strip()}\n\n"
    return Said(
        f"{text}search_text gave {len(hits)} lines of {files} files for {word!r}, the rarest word of the question. "
        f"{_listed(paths)}"
    )


def _summary(messages: Sequence[BodyMessage]) -> Said:
    """Say what was asked, when the history is to be summed up."""
    asked = [_unwrapped(_text(message)) for message in messages if message.role == "user"]
    questions = [f"- {' '.join(text.split())[:100]}" for text in asked if not text.startswith("<context ")]
    listed = "\n".join(questions[-_REMEMBERED:])
    return Said(f"This is refold's rehearsal, an offline stand-in for a model. Of {len(messages)} messages it keeps:\n{listed}")


def _stopped(tool: str, said: str) -> Said:
    return Said(f"The tool {tool} did not give what I asked for{_quoted(said)}. I stop here.")


def _listed(paths: list[str]) -> str:
    return f"list_files named {len(paths):,} paths" + (f", the first of them {paths[0]}." if paths else ".")


def _quoted(text: str) -> str:
    line = " ".join(text.split())
    return f": “{line[:200]}{'…' if len(line) > 200 else ''}”" if line else ""


def _call(text: str, name: str, arguments: Mapping[str, object]) -> Said:
    return Said(text, (SaidCall(name, msgspec.json.encode(arguments).decode()),))


def _question_at(messages: Sequence[BodyMessage]) -> int:
    """Find the last message of a user that is no context put in by refold; −1 where there is none."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "user" and not _text(messages[at]).startswith("<context "):
            return at
    return -1


def _results(messages: Sequence[BodyMessage]) -> dict[str, str]:
    """Give the last result of each tool."""
    names = {call.id: call.function.name for message in messages for call in message.tool_calls}
    return {names.get(message.tool_call_id or "", ""): _text(message) for message in messages if message.role == "tool"}


def _text(message: BodyMessage) -> str:
    if isinstance(message.content, tuple):
        return "\n".join(part.text for part in message.content if part.type == "text")
    return message.content or ""


def _unwrapped(text: str) -> str:
    """Take off the tags in which steering is wrapped."""
    return re.sub(r"\A<steering [^>]*>\n(.*)\n</steering>\Z", r"\1", text, flags=re.DOTALL)


def _paths(listing: str) -> list[str] | None:
    """Give the paths of a listing; None where the text is a sentence instead."""
    lines = [line for line in listing.split("\n") if line and not line.startswith("[")]
    sentence = len(lines) == 1 and lines[0].count(" ") > 2
    return None if sentence else lines


def _hits(found: str) -> list[Hit] | None:
    """Give the lines `path:line: text` of a search; None where there are none and no note that says so."""
    matches = [match for line in found.split("\n") if (match := _HIT.fullmatch(line))]
    hits = [Hit(match["path"], int(match["line"]), match["text"]) for match in matches]
    return hits if hits or found.startswith("[") else None


def _numbered(read: str) -> dict[int, str] | None:
    """Give the lines of a file that was read, by number; None where there are none."""
    matches = [match for line in read.split("\n") if (match := _NUMBERED.fullmatch(line))]
    return {int(match["line"]): match["text"] for match in matches} or None


def _best(hits: list[Hit]) -> Hit:
    """Give the first hit of the file that has the most; of several such files, of the first."""
    counts = Counter(hit.path for hit in hits)
    return max(hits, key=lambda hit: counts[hit.path])


_HIT: Final = re.compile(r"(?P<path>.+?):(?P<line>\d+): ?(?P<text>.*)")
_NUMBERED: Final = re.compile(r" *(?P<line>\d+)\t(?P<text>.*)")
MODEL: Final = "workspace"
"""The one model there is."""


class OfflineProvider:
    """The provider. Keeps the bodies that it saw, and how far each script has run."""

    def __init__(self) -> None:
        self._memory = PrefixMemory()
        self._scripts: dict[str, Script] = {}

    async def stream(self, request: Request, body: bytes) -> AsyncGenerator[Chunk, None]:
        """Give the reply to `body`. See Provider.stream."""
        del request
        writes = self._answer(body)
        decoder = ChatCompletionsDecoder()
        for write in writes.events:
            await anyio.sleep(writes.delay_s)
            for chunk in decoder.feed(write):
                yield chunk
        for chunk in decoder.close(cut=writes.cut):
            yield chunk
        if decoder.failure is not None:
            raise decoder.failure

    def _answer(self, body: bytes) -> Writes:
        try:
            asked = _DECODER.decode(body)
        except msgspec.DecodeError as error:
            raise ProviderError("provider.rejected", f"the rehearsal provider cannot read this body: {error}") from None
        if asked.model != MODEL:
            raise ProviderError("provider.rejected", f"the rehearsal provider has no model {asked.model!r}; use {MODEL!r}")
        cached = self._memory.common_characters(body)
        if asked.script is None:
            return Writes(spoken(decide(asked), body, cached))
        return self._scripts.setdefault(asked.script, Script(asked.script)).next_reply(body, cached)


_DECODER: Final = msgspec.json.Decoder(OfflineBody)
