"""Reply to `initialize`, from a static table: the daemon answers before it has imported anything heavy."""

from __future__ import annotations

from refold_protocol.rpc.initialize import (
    FEATURES,
    PROTOCOL_VERSION,
    SCHEMA_DIGEST,
    VERSION,
    ExperimentalCapabilities,
    InitializeParams,
    InitializeResult,
    Limits,
    PeerInfo,
    RefoldCapabilities,
    ServerCapabilities,
    position_encoding,
)


def initialize_result(params: InitializeParams) -> InitializeResult:
    """Give the answer: from a static table, by what the client announced."""
    refold = RefoldCapabilities(PROTOCOL_VERSION, FEATURES, Limits(), SCHEMA_DIGEST)
    offered = ServerCapabilities(position_encoding(params.capabilities), ExperimentalCapabilities(refold))
    given = params.capabilities
    if given is not None and given.names_documents:
        from refold_protocol.rpc.language import with_language_side  # clients without documents need not wait for it

        offered = with_language_side(offered, given)
    return InitializeResult(offered, PeerInfo("refold", VERSION))
