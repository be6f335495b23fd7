"""What the tests use of xllamacpp, which comes without types."""

class ModelParams:
    path: str

class CommonParams:
    model: ModelParams
    n_ctx: int
    n_parallel: int
    n_batch: int
    port: int
    hostnames: list[str]
    warmup: bool
    verbosity: int
    cache_ram_mib: int
    cpuparams: CpuParams
    cpuparams_batch: CpuParams

class CpuParams:
    n_threads: int

class Server:
    listening_address: str
    def __init__(self, params: CommonParams) -> None: ...
