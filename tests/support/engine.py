"""Running a real inference engine in a test: llama.cpp's server in this process, over a model that the test wrote.

One engine per test, one slot, no cache beside the slot's own: then the cached tokens that it reports are those of the last
request's prompt, and prefix stability is measured on somebody else's engine. It listens on the loopback interface and
serves other processes as well.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import xllamacpp

from tests.support.engine_models import CONTEXT, write_chain_model, write_random_model


@contextmanager
def engine(model: Path, *, context: int = CONTEXT) -> Generator[str]:
    """Serve a model; give the base address, version path included. `context` is the window in tokens."""
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx = context
    params.n_parallel = 1
    params.cache_ram_mib = 0
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.warmup = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    try:
        yield f"{server.listening_address}/v1"
    finally:
        del server  # the engine stops with its last reference


@contextmanager
def chain_engine(
    folder: Path, name: str = "list_files", arguments: dict[str, object] | None = None, *, endless: bool = False
) -> Generator[str]:
    """Serve a model that calls the tool `name` when it is offered tools, and after a result, or without any, speaks the
    letters from a to z (`endless`: again and again)."""
    with engine(write_chain_model(folder / "chain.gguf", name, arguments or {}, endless=endless)) as base_url:
        yield base_url


@contextmanager
def random_engine(folder: Path, *, context: int = CONTEXT) -> Generator[str]:
    """Serve a model that babbles. Send it no tools, and always a limit of tokens."""
    with engine(write_random_model(folder / "random.gguf"), context=context) as base_url:
        yield base_url
