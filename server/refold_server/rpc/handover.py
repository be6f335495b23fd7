"""Owns what the boot hands to the daemon: descriptors, what was read and not yet treated, and how far life has come.

Imported before the answer to `initialize`: nothing here may bring asyncio along.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from refold_protocol.rpc.framing import FrameEvent, FrameReader
from refold_protocol.rpc.initialize import InitializeParams
from refold_protocol.rpc.lifecycle import Lifecycle
from refold_server.rpc.descriptors import Descriptors


class Handover(Struct, frozen=True, gc=False):
    """A connection on its way from the boot to the daemon.

    `initialize` holds the params where the boot has answered, `raw_params` the same as they came (the language-server
    wing reads more of them). `frames` is the reader in the middle of the stream, `backlog` what it gave and nobody
    treated yet, `ended` says that the stream is over already. `editor` is a descriptor of the process that `initialize`
    named, where that is ours to watch. `arguments` are those of the command line.
    """

    descriptors: Descriptors
    arguments: tuple[str, ...]
    frames: FrameReader
    lifecycle: Lifecycle
    backlog: tuple[FrameEvent, ...] = ()
    ended: bool = False
    initialize: InitializeParams | None = None
    raw_params: Raw | None = None
    editor: int | None = None
