"""How transcripts show what is in a log: one line an event, its seq, its type, and what is essential in its data.

Takes events whose ids have names already. Chunks of one attempt become one line that says what they carried together. A
type that has no row here is shown with all of its data, so a new one is never left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from tests.support.transcripts_names import members, quoted, words

Json = dict[str, Any]

_SOURCE: Final = re.compile(r'<context source="([^"]*)">')


def event_lines(events: Sequence[Json]) -> list[str]:
    """Give the lines of events that follow one another."""
    lines: list[str] = []
    for _, run in groupby(events, lambda event: _attempt(event) or event["seq"]):
        group = list(run)
        first, last = group[0]["seq"], group[-1]["seq"]
        seqs = str(first) if first == last else f"{first}-{last}"
        kind = group[0]["type"]
        told = _chunks(group) if kind == "assistant/chunk" else _essentials(group[0])
        lines.append(f"  {seqs:>7}  {kind:<20} {told}".rstrip())
    return lines


def content_words(blocks: Sequence[Json]) -> str:
    """Give the blocks of a message."""
    return " + ".join(map(_block, blocks)) if blocks else "nothing"


def source_words(source: Json) -> str:
    """Give who something comes from."""
    return f"{source['kind']}:{source['name']}" if "name" in source else source["kind"]


def _attempt(event: Json) -> str:
    data = event["data"]
    return "{turn}.{step}.{attempt}".format(**data) if event["type"] == "assistant/chunk" else ""


def _essentials(event: Json) -> str:
    row = _ROWS.get(event["type"])
    parts = [members(event["data"]) if row is None else row(event["data"])]
    if isinstance(operation := event.get("surfaceOp"), dict):
        parts.append(f"replaces {operation['start']} to {operation['end']}")
    if "sources" in event:
        cited = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in event["sources"])
        parts.append(f"from {cited or 'nothing'}")
    return "; ".join(parts)


def _block(block: Json) -> str:
    if block["type"] == "text":
        return quoted(block["text"])
    if block["type"] == "reasoning":
        return f"thinking {quoted(block['text'])}"
    if block["type"] == "tool-call":
        return f"call {block['id']} {block['name']} {block['arguments']}"
    if block["type"] == "tool-result":
        return f"{'error ' if block.get('isError') else ''}result of {block['toolCallId']}: {content_words(block['content'])}"
    return words(block)


def _chunks(events: Sequence[Json]) -> str:
    """Say what the chunks carried: the pieces of each block joined, then what is no piece."""
    blocks: dict[int, str] = {}
    heads: dict[int, str] = {}
    rest: list[str] = []
    for chunk in (event["data"]["chunk"] for event in events):
        if chunk["type"] == "block-start":
            kind = {"text": "text", "reasoning": "thinking"}.get(chunk["block"])
            heads[chunk["index"]] = kind or f"call {chunk.get('id')} {chunk.get('name')}"
        elif chunk["type"].endswith("-delta"):
            piece = chunk.get("text", chunk.get("arguments"))
            heads.setdefault(chunk["index"], _GOES_ON[chunk["type"]])
            blocks[chunk["index"]] = blocks.get(chunk["index"], "") + piece
        elif chunk["type"] == "finish":
            rest.append(f"finish {chunk['reason']}")
        elif chunk["type"] == "usage":
            rest.append("usage")
    said = [
        f"{head} {blocks.get(index, '') if head.startswith('call') else quoted(blocks.get(index, ''))}"
        for index, head in heads.items()
    ]
    return ", ".join([*said, *rest])


_GOES_ON: Final = {"text-delta": "text", "reasoning-delta": "thinking", "tool-call-delta": "call"}
"""How a block is called whose beginning was told before."""


def _usage(usage: Json) -> str:
    """Say what a call took. How many tokens the prompt has depends on the words of tools and system text, so only its
    cached share is told, and that roughly."""
    cached = usage.get("cacheReadTokens", 0)
    prompt = cached + usage.get("inputTokens", 0) + usage.get("cacheWriteTokens", 0)
    share = "none" if not cached else "most" if cached * 2 > prompt else "some"
    return f"usage: {share} of the prompt cached, {usage.get('outputTokens', 0)} tokens out"


def _header(header: Json) -> str:
    parts = [_config(header["config"])]
    parts.append("a system text" if "system" in header else "no system text")
    parts.append("tools " + (" ".join(tool["name"] for tool in header.get("tools", [])) or "none"))
    if prefix := header.get("messagePrefix"):
        parts.append(f"prefix {prefix_words(prefix)}")
    return ", ".join(parts)


def prefix_words(messages: Sequence[Json]) -> str:
    """Name the messages of a prefix by their sources, those without one by what they say."""
    texts = [" ".join(block.get("text", "") for block in message["content"]) for message in messages]
    sources = [_SOURCE.match(text) for text in texts]
    return " ".join(quoted(text) if found is None else found[1] for text, found in zip(texts, sources, strict=True))


def _config(config: Json) -> str:
    further = {key: config[key] for key in ("reasoningEffort", "temperature", "maxTokens") if key in config}
    return f"{config['provider']}/{config['model']} by {config['dialect']} {members(further)}".rstrip()


def _delta(data: Json) -> str:
    parts: list[str] = []
    if (system := data.get("system")) is not None:
        parts.append(f"system {words(system)}")
    if (tools := data.get("tools")) is not None:
        names = {
            how: [tool if isinstance(tool, str) else tool["name"] for tool in tools.get(how, [])]
            for how in ("removed", "changed", "added")
        }
        parts.append("tools " + members({how: rows for how, rows in names.items() if rows}))
    if (config := data.get("config")) is not None:
        parts.append(_config(config))
    if "messagePrefix" in data:
        parts.append(f"prefix {prefix_words(data['messagePrefix']) or 'none'}")
    return ", ".join(parts)


def _input(data: Json) -> str:
    return f"{data['input']} {data['mode']} {content_words(data['content'])} from {source_words(data['source'])}"


def _said(data: Json) -> str:
    source = source_words(data["source"])
    return f"{content_words(data['content'])} from {source}" + (f" ({data['input']})" if "input" in data else "")


def _context(data: Json) -> str:
    return _said(data) + ("" if data["envelope"] == "context" else f", {data['envelope']}")


def _turn_start(data: Json) -> str:
    trigger = data["trigger"]
    return f"turn {data['turn']}: {trigger['kind']} from {source_words(trigger['source'])}" + (
        f" ({trigger['input']})" if "input" in trigger else ""
    )


def _turn_end(data: Json) -> str:
    reason = dict(data["reason"])
    return f"turn {data['turn']} {reason.pop('kind')} {members(reason)}".rstrip()


def _sent(data: Json) -> str:
    where = f"step {data['turn']}.{data['step']}" if "step" in data else data["purpose"]
    return f"{where}, attempt {data['attempt']}: {data['requestSha256']} as {data['sha256']}"


def _assistant(data: Json) -> str:
    cut = "interrupted, " if data.get("interrupted") else ""
    usage = f", {_usage(data['usage'])}" if "usage" in data else ""
    return f"{cut}finish {data['finish']}: {content_words(data['content'])}{usage}"


def _result(data: Json) -> str:
    error = f"{data['error']['code']} " if "error" in data else ""
    return f"{data['callId']} {error}{content_words(data['content'])}"


def _step(data: Json) -> Iterator[str]:
    yield f"step {data['turn']}.{data['step']}"
    if "outcome" in data:
        yield data["outcome"]


_ROWS: Final[dict[str, Callable[[Json], str]]] = {
    "instance/start": lambda data: f"instance {data['instance']}, {data['reason']}",
    "input/accepted": _input,
    "turn/start": _turn_start,
    "turn/end": _turn_end,
    "step/start": lambda data: " ".join(_step(data)),
    "step/end": lambda data: " ".join(_step(data)),
    "user/message": _said,
    "context/message": _context,
    "steering/message": _said,
    "assistant/message": _assistant,
    "tool/call": lambda data: f"{data['callId']} {data['name']} {data['arguments']}",
    "tool/result": _result,
    "request/header": lambda data: f"{data['reason']}: {_header(data['header'])}",
    "request/header-delta": _delta,
    "request/sent": _sent,
}
