"""Owns what the two sides tell each other first: the params of `initialize`, and the answer from a static table.

The daemon answers before it has imported anything heavy, so this file imports no session types. The params of LSP clients
hold many things that are not read here; those pass. `initializationOptions` is ours, so an unknown key there is refused.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.rpc.framing import DEFAULT_FRAME_LIMIT

VERSION: Final = "0.1.0"
"""The version of this release."""

PROTOCOL_VERSION: Final = 1
"""The version of the native protocol: rises when an existing method changes its meaning."""

SCHEMA_DIGEST: Final = "sha256:0f78e541a7f23e816a4494a6a3b8f26ffb7869363a38901eb525a3535162eba5"
"""Digest of the method table with all its types, as `tests/golden/rpc/schema.json` writes it out; a test holds it."""

FEATURES: Final = ("sessions", "turns", "subscriptions", "rebuild", "explain", "verify", "approvals")
"""What this release does, in words for clients that branch on it. The method table has the details."""

MAX_UNSENT_REPLIES: Final = 1_000
"""So many replies that the client has not read make dispatch of new requests pause."""

MAX_UNSENT_REPLY_BYTES: Final = 16 * 1024 * 1024
"""The same, in bytes."""

MAX_NOTICE_EVENTS: Final = 512
"""Most events in one `session/events`."""

MAX_NOTICE_BYTES: Final = 256 * 1024
"""Most bytes of events in one `session/events`, unless a single event is larger."""

POSITION_ENCODINGS: Final = ("utf-8", "utf-16", "utf-32")
"""What positions in documents can be counted in."""


class GeneralCapabilities(Struct, frozen=True, gc=False, rename="camel"):
    """The part of the client's capabilities that is about the connection; `position_encodings` by preference."""

    position_encodings: tuple[str, ...] | None = None


class ClientCapabilities(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is read here of the client's capabilities. `language.py` reads the two parts that came as text."""

    general: GeneralCapabilities | None = None
    text_document: Raw | UnsetType = UNSET
    workspace: Raw | UnsetType = UNSET
    window: Raw | UnsetType = UNSET

    @property
    def names_documents(self) -> bool:
        """Whether it says anything of documents or of a workspace. If not, `language.py` need not be asked."""
        return not (self.text_document is UNSET and self.workspace is UNSET)


class PeerInfo(Struct, frozen=True, gc=False, omit_defaults=True):
    """The name and version by which a program calls itself."""

    name: str
    version: str | None = None


class InitializationOptions(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """refold's own settings for this connection. `model` is `provider/model`; `store` is a path;
    `on_disconnect` says what happens to a running turn when the client goes. With `wait_for_commands` each command of
    `workspace/executeCommand` is answered at its turn's end, for clients that take edits only while they wait for the answer.

    There is no option for a configuration file: editors take these options from the workspace that they show, and a cloned
    repository must not be able to name providers."""

    model: str | None = None
    store: str | None = None
    on_disconnect: Literal["finish", "cancel"] = "finish"
    wait_for_commands: bool = False


class InitializeParams(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """What is read of the params. `process_id` is the process whose end ends the daemon; `trace` is as in `$/setTrace`."""

    process_id: int | None = None
    client_info: PeerInfo | None = None
    capabilities: ClientCapabilities | None = None
    initialization_options: InitializationOptions | None = None
    trace: str | None = None


class Limits(Struct, frozen=True, gc=False, rename="camel"):
    """Bounds of the connection; sizes are in bytes."""

    frame_bytes: int = DEFAULT_FRAME_LIMIT
    unsent_replies: int = MAX_UNSENT_REPLIES
    unsent_reply_bytes: int = MAX_UNSENT_REPLY_BYTES
    notice_events: int = MAX_NOTICE_EVENTS
    notice_bytes: int = MAX_NOTICE_BYTES


class RefoldCapabilities(Struct, frozen=True, gc=False):
    """What a client of the native protocol branches on. `schema` is the digest of the method table."""

    protocol: int
    features: tuple[str, ...]
    limits: Limits
    schema: str


class ExperimentalCapabilities(Struct, frozen=True, gc=False):
    """Where LSP leaves room."""

    refold: RefoldCapabilities


class ServerCapabilities(Struct, frozen=True, gc=False, rename="camel"):
    """What the daemon offers. Only what is served is named: the language-server side to a client that announced it alone,
    with members as LSP 3.17 has them, written out in `language.py`."""

    position_encoding: str
    experimental: ExperimentalCapabilities
    text_document_sync: Raw | UnsetType = UNSET
    code_action_provider: Raw | UnsetType = UNSET
    execute_command_provider: Raw | UnsetType = UNSET
    workspace: Raw | UnsetType = UNSET


class InitializeResult(Struct, frozen=True, gc=False, rename="camel"):
    """The answer to `initialize`."""

    capabilities: ServerCapabilities
    server_info: PeerInfo


def position_encoding(capabilities: ClientCapabilities | None) -> str:
    """Choose what positions are counted in: the client's first choice that we know, `utf-16` where it named none."""
    general = None if capabilities is None else capabilities.general
    for offered in (general and general.position_encodings) or ():
        if offered in POSITION_ENCODINGS:
            return offered
    return "utf-16"
