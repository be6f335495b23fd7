"""How transcripts show requests and their replies: one line a request, one a reply, one more for each row of a view.

Takes values whose ids have names already.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from tests.support.fake_provider import Gate
from tests.support.transcripts_lines import content_words, event_lines, source_words
from tests.support.transcripts_names import members, quoted, words

Json = dict[str, Any]


_DELTAS: Final = {"reasoning_content": "thinking ", "refusal": "refusal "}


def params_words(params: Json) -> str:
    """Give the params of a request; content as the text that it is."""
    parts: list[str] = []
    for name, value in params.items():
        if name == "content":
            parts.append(content_words(value))
        elif name == "source":
            parts.append(f"from {source_words(value)}")
        else:
            parts.append(f"{name}={words(value)}")
    return " ".join(parts)


def result_lines(method: str, params: Json, result: Any) -> list[str]:
    """Give the lines of a result: the first stands behind the arrow, the others below it."""
    if result is None:
        return ["null"]
    if method == "session/open":
        return _opened(result)
    if method == "session/read":
        return _view(params["view"], result)
    if method == "turn/wait":
        return ["this event:", *event_lines([result])]
    if method == "request/explain":
        return _explained(result)
    if method == "session/list":
        return [f"{len(result['sessions'])} sessions", *map(_row, result["sessions"])]
    return [members(result)]


def _explained(result: Json) -> list[str]:
    """What broke a prefix; not how many bytes and tokens there are, which depend on the words of tools and system text."""
    parting = [f"      they part in {result['parting']['where']}"] if "parting" in result else []
    causes = [f"      because of {row['sentence']}" for row in result["causes"]]
    return [f"verdict {result['verdict']}", *parting, *causes]


def _row(row: Json) -> str:
    told = {name: value for name, value in row.items() if name not in {"createdAt", "lastActivity", "usage", "inherited"}}
    return f"      {members(told)}"


def _opened(result: Json) -> list[str]:
    """A session: what is known beside its log is told where it is not the default."""
    told = {name: value for name, value in result.items() if name not in {"info", "status", "pendingInputs"}}
    told["status"] = result["status"]["status"]
    info = result["info"]
    told |= {name: info[name] for name in ("title", "model", "turns") if name in info}
    waiting = [
        f"      waits: {row['input']} (event {row['seq']}) {row['mode']} {content_words(row['content'])}"
        for row in result["pendingInputs"]
    ]
    return [members(told), *waiting]


def _view(view: str, result: Json) -> list[str]:
    if view == "events":
        return [f"{len(result['events'])} events", *event_lines(result["events"])]
    if view == "surface":
        return ["the surface:", *map(_node, result["nodes"])]
    if view == "header":
        return _header(result["header"])
    if view == "transcript":
        return ["the transcript:", *map(_entry, result["entries"])]
    return [members(result)]


def _header(header: Json) -> list[str]:
    """The header: its prefix word by word, because that is read nowhere else."""
    lines = [f"the header: tools {' '.join(tool['name'] for tool in header.get('tools', []))}"]
    for message in header.get("messagePrefix", []):
        for block in message["content"]:
            lines += [f"      | {line}".rstrip() for line in block["text"].split("\n")]
    return lines


def _node(node: Json) -> str:
    message = node.get("message")
    told = "nothing for the model" if message is None else f"{message['role']}: {content_words(message['content'])}"
    return f"  {node['seq']:>7}  {node['type']:<20} {told}"


def _entry(entry: Json) -> str:
    parts = ["interrupted"] if entry.get("interrupted") else []
    if "callId" in entry:
        parts.append(" ".join(["of", *(entry[key] for key in ("callId", "tool", "arguments") if key in entry)]))
    parts += [f"{key}={words(entry[key])}" for key in ("error", "reason", "note") if key in entry]
    if "content" in entry:
        parts.append(content_words(entry["content"]))
    return f"  {entry['seq']:>7}  {entry['kind']:<20} {', '.join(parts)}"


def writes_words(writes: Sequence[bytes | Gate | None]) -> str:
    """Give what a provider's reply is made of: its pieces, where it waits, whether it ever ends."""
    parts: list[str] = []
    for write in writes:
        if isinstance(write, bytes):
            parts += _pieces(write)
        else:
            parts.append("then silence" if write is None else "(waits)")
    return " ".join(parts)


def reply_words(reply: Json) -> str:
    """The same for a reply of a script: what it says, then its other members as they are."""
    parts = [f"thinking {quoted(reply['reasoning'])}"] if "reasoning" in reply else []
    parts += [quoted(reply["text"])] if "text" in reply else []
    for one in reply.get("calls", []):
        arguments = one.get("arguments", {})
        parts.append(f"call {one['id']} {one['name']} {arguments if isinstance(arguments, str) else json.dumps(arguments)}")
    parts.append(members({key: value for key, value in reply.items() if key not in {"reasoning", "text", "calls"}}))
    return " ".join(parts).rstrip()


def _pieces(write: bytes) -> Iterator[str]:
    for line in write.decode().split("\n"):
        data = line.removeprefix("data: ")
        if not data or data == "[DONE]":
            continue
        choice = json.loads(data)["choices"][0]
        for key, value in choice["delta"].items():
            if key == "tool_calls":
                yield from (f"call {one['id']} {one['function']['name']} {one['function']['arguments']}" for one in value)
            else:
                yield _DELTAS.get(key, "") + quoted(value)
        if choice["finish_reason"] is not None:
            yield f"finish {choice['finish_reason']}"
