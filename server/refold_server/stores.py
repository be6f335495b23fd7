"""Owns the opening of the configured store. Its ids and its clock are the daemon's."""

from __future__ import annotations

from refold_server.clock import epoch_ms, uuid7
from refold_server.config import StoreConfig
from refold_storage.interface import Store
from refold_storage.lmdb_store import open_store


async def open_configured_store(config: StoreConfig, *, create: bool = True, client: str = "refold") -> Store:
    """Open the store; make it unless `create` is False, as for commands that only read. Raises what `open_store` raises."""
    return await open_store(
        config.path,
        new_uuid=uuid7,
        clock=epoch_ms,
        client=client,
        create=create,
        map_bytes=config.map_bytes,
        max_bytes=config.max_bytes,
    )
