"""Loading of a log from its lines, as from a store that gives lines of chunks bare."""

from __future__ import annotations

from collections.abc import Sequence

from refold_protocol.session.codec import CHUNK
from refold_protocol.session.loading import Loading
from refold_protocol.session.session_state import SessionState


def loaded(lines: Sequence[bytes], *cuts: int) -> SessionState:
    """Load a log in slices that end at these places; lines of chunks are bare in the first reading."""
    loading = Loading()
    for first, last in zip((0, *cuts), (*cuts, len(lines)), strict=True):
        loading.take([CHUNK if line.startswith(CHUNK) else line for line in lines[first:last]])
    loading.finish(lines[loading.revision :])
    return loading.state
