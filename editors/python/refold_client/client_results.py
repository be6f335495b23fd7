"""Owns the types of results whose members are always the same: what a type checker then knows of `health()["store"]`.

They say about the protocol's table what `protocol/refold_protocol/rpc/results.py` and `listing.py` say, as the JSON
objects that the client gives; a test compares the two member by member. Results that differ by what was asked
(`session/open`, `session/read`, `turn/start`) and events are plain JSON objects, described in the protocol's reference.
Sizes are in bytes, durations in milliseconds, times in Unix epoch milliseconds, usage in tokens.
"""

# No `from __future__ import annotations`: NotRequired inside a string is not seen at run time, where the test looks.

from typing import Any, Literal, NotRequired, TypedDict


class SessionRow(TypedDict):
    """A session in a list. `tail` is the seq of its last event; `status` one of the protocol's words."""

    session: str
    cwd: str
    createdAt: int
    lastActivity: int
    tail: int
    turns: int
    status: str
    title: NotRequired[str]
    model: NotRequired[str]
    usage: NotRequired[dict[str, int]]
    parent: NotRequired[dict[str, Any]]
    archived: NotRequired[bool]
    inherited: NotRequired[dict[str, int]]


class SessionList(TypedDict):
    """`session/list`, the latest active first; `next` is the cursor of the next page, absent on the last."""

    sessions: list[SessionRow]
    next: NotRequired[str]


class Rebuilt(TypedDict):
    """`request/rebuild`: the exact body as text, digests in hex; `verdict` compares with what was recorded when it was
    sent."""

    body: str
    sha256: str
    requestSha256: str
    verdict: Literal["equal", "different", "unshipped", "unsent"]


class Mismatch(TypedDict):
    """The first thing that differs, at the event `seq` or in those up to `last`: what was expected and what was found."""

    what: str
    seq: int
    message: str
    last: NotRequired[int]


class Verified(TypedDict):
    """`log/verify`: events and requests that were checked, and how many requests came out equal or could not be built."""

    events: int
    requests: int
    equal: int
    unshipped: int
    mismatch: NotRequired[Mismatch]
    inherited: NotRequired[int]
    differences: NotRequired[list[Mismatch]]


class RequestList(TypedDict):
    """`request/list`: one object a request, oldest first; `next` is the `after` of the next page, absent on the last."""

    requests: list[dict[str, Any]]
    next: NotRequired[int]


class ModelRow(TypedDict):
    """A model that the configuration names. Window and output in tokens."""

    model: str
    provider: str
    dialect: str
    isDefault: NotRequired[bool]
    contextWindow: NotRequired[int]
    maxOutput: NotRequired[int]


class ProviderRow(TypedDict):
    """A configured provider; `credentials` says whether its key is there, never what it is."""

    provider: str
    dialect: str
    credentials: str
    baseUrl: NotRequired[str]


class ModelList(TypedDict):
    """`model/list`, in the configuration's order."""

    models: list[ModelRow]
    providers: list[ProviderRow]


class ToolRow(TypedDict):
    """A tool; `parameters` is its JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    readOnly: bool
    source: str


class ToolList(TypedDict):
    """`tool/list`, in the order in which models are told of them."""

    tools: list[ToolRow]


class StoreHealth(TypedDict):
    """The store: its format, the sizes of its file, of its map and of what is used of it."""

    path: str
    format: int
    fileBytes: int
    mapBytes: int
    usedBytes: int
    sessions: int
    readers: int


class LiveHealth(TypedDict):
    """A session that the daemon has open for writing; `trouble` says why its log cannot be written."""

    session: str
    status: str
    tail: int
    durable: int
    trouble: NotRequired[str]


class PluginHealth(TypedDict):
    """A plugin that is loaded; each of `seams` has `seam`, `calls`, `failures`, `totalMs` and `slowestMs`."""

    plugin: str
    origin: str
    tools: list[str]
    eventTypes: list[str]
    seams: list[dict[str, Any]]


class Health(TypedDict):
    """`daemon/health`. `unsent` counts replies and requests that we have not read."""

    version: str
    pid: int
    uptimeMs: int
    store: StoreHealth
    sessions: list[LiveHealth]
    plugins: NotRequired[list[PluginHealth]]
    unsent: NotRequired[int]
    unsentBytes: NotRequired[int]


class Schema(TypedDict):
    """`daemon/schema`: the method table as JSON Schema, and its digest."""

    digest: str
    schema: dict[str, Any]
