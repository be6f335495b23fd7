"""The model of one session: what stands beside the history in its next request, how it is encoded, and its window.

Call config, system text, prefix and tools are decided here; the history is the log's, and sending is `model_call`'s. What is
kept is a cache of what the log says, but for two facts of this opening: its prefix, and whether its header is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final, Protocol

from msgspec import Struct

from refold_protocol.dialects.dialect import BodyEncoder
from refold_protocol.dialects.dialect_table import dialect_named
from refold_protocol.errors import ProviderError, RefoldError
from refold_protocol.session.append_only_list import AppendOnlyList
from refold_protocol.session.event_data import EncoderId
from refold_protocol.session.events import Draft, ModelWindow, SessionSettings
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, ToolSchema
from refold_protocol.session.model_windows import LearnedWindow, window_of
from refold_protocol.session.request import Request, RequestDigest, request_sha256
from refold_protocol.session.token_estimate import UNCONFIGURED, TokenMeterError
from refold_server.config import CompactionConfig, RetryConfig
from refold_server.plugins.session_hooks import Composition
from refold_server.providers.provider_registry import Provider
from refold_server.providers.told_window import ToldWindow
from refold_server.requests.live_check import CheckMode, LiveCheck
from refold_server.requests.session_log import SessionLog
from refold_server.requests.session_meters import ModelTokenMeter

WINDOW_SECONDS: Final = 1.0
"""So long the end of a step waits for what a server tells of its window."""


class Models(Protocol):
    """The models of a process, as its configuration and a session's settings say."""

    def call_config(self, settings: SessionSettings) -> CallConfig:
        """Resolve the call config. Raises ConfigError and ProviderError `model.unconfigured`."""
        ...

    def provider(self, name: str) -> Provider:
        """Give the provider of that name. Raises ProviderError."""
        ...

    def step_limit(self, settings: SessionSettings) -> int:
        """Give the largest number of steps of a turn."""
        ...

    def meter(self, model: str, learned: LearnedWindow | None = None) -> ModelTokenMeter:
        """Give the meter of `provider/model`, of whose window a session learned that. Raises TokenMeterError for a model whose
        window nobody stated."""
        ...

    async def told_window(self, model: str) -> ToldWindow | None:
        """Ask the server of `provider/model` for its window, where the configuration states none; None: it tells none."""
        ...

    def compaction(self, model: str, settings: SessionSettings) -> CompactionConfig:
        """Give the compaction settings of a session with the model `provider/model` and these settings."""
        ...

    def retries(self) -> RetryConfig:
        """Tell which failed requests are sent again, and when."""
        ...

    def live_checks(self) -> CheckMode:
        """Tell which requests are compared with the log before they leave."""
        ...


class EncodedRequest(Struct, frozen=True):
    """The body of a request, the version of its encoder, and the digests that are recorded, in hex."""

    body: bytes
    encoder: EncoderId
    sha256: str
    request_sha256: str


class SessionModel:
    """The model of one opening of a session. `system` is the system text before plugins; `composition` is None until the
    prefix was composed; `anchored` tells whether the header snapshot of this opening is recorded."""

    def __init__(self, session_log: SessionLog, models: Models, system: str) -> None:
        self.models = models
        self.system = system
        self.composition: Composition | None = None
        self.anchored = False
        self.live_check = LiveCheck(session_log.handle, models.live_checks())
        self._log = session_log
        self._digest = RequestDigest()
        self._tools: tuple[ToolSchema, ...] | None = None
        self._generation = 0
        self._settings_used: SessionSettings | None = None
        self._encoder: BodyEncoder | None = None
        self._dialect: str | None = None
        self._learned: set[str] = set()
        self._asked_again: set[str] = set()
        self._asked: dict[str, asyncio.Task[ToldWindow | None]] = {}

    @property
    def prefix(self) -> tuple[Message, ...] | None:
        """The composed prefix; None until it was composed."""
        return None if self.composition is None else self.composition.messages

    def step_limit(self) -> int:
        """Give the largest number of steps of a turn."""
        return self.models.step_limit(self._log.folds.settings)

    def config_seed(self) -> CallConfig:
        """Give the call config before `agent/request`: resolved anew for the first call of an instance and after the
        settings changed, else the recorded one."""
        config = self.next_config()
        self._settings_used = self._log.folds.settings
        return config

    def next_config(self) -> CallConfig:
        """Give the call config that the next request begins with, without beginning it."""
        settings = self._log.folds.settings
        header = self._log.folds.request_state.header
        if header is None or not self.anchored or settings != self._settings_used:
            return self.models.call_config(settings)
        return header.config

    def check_config(self, config: CallConfig) -> None:
        """Raise for a config that no request can be made with: its provider or dialect is unknown, or its options are."""
        self.models.provider(config.provider)
        dialect = dialect_named(config.dialect)
        if config.extra is not None:
            dialect.check_extra(config.extra)
        dialect.encode(Request(canonical_header(EpochHeader(config)), AppendOnlyList()), {})

    def meter(self) -> ModelTokenMeter:
        """Give the meter of the next request's model. Raises TokenMeterError, ConfigError, ProviderError."""
        config = self.next_config()
        return self.meter_of(f"{config.provider}/{config.model}")

    def meter_of(self, model: str) -> ModelTokenMeter:
        """Give the meter of `provider/model` in this session. Raises TokenMeterError."""
        return self.models.meter(model, window_of(self._log.folds.windows, model))

    @asynccontextmanager
    async def learning_window(self) -> AsyncGenerator[None]:
        """Ask the server of the next request's model for its window beside a request, which does not wait for it, and record
        what it tells once that has ended or failed: the window may be why. Raises LogError."""
        self._ask_window()
        try:
            yield
        except ProviderError:
            await self._learn_window()
            raise
        await self._learn_window()

    def _ask_window(self) -> None:
        config = self.next_config()
        model = f"{config.provider}/{config.model}"
        if model not in self._asked:
            self._asked[model] = asyncio.get_running_loop().create_task(self.models.told_window(model))

    async def _learn_window(self) -> None:
        """Record what the server told, where that is new. Waits WINDOW_SECONDS at most. A server that loads a model with the
        first request is asked once more."""
        config = self.next_config()
        model = f"{config.provider}/{config.model}"
        asked = self._asked.get(model)
        if asked is None or model in self._learned:
            return
        await asyncio.wait({asked}, timeout=WINDOW_SECONDS)
        if not asked.done():
            return
        found = asked.result()
        if found is None and model not in self._asked_again:
            self._asked_again.add(model)
            self._asked[model] = asyncio.get_running_loop().create_task(self.models.told_window(model))
            await self._learn_window()
            return
        self._learned.add(model)
        if found is not None and window_of(self._log.folds.windows, model).told != found.tokens:
            self._log.append(Draft(ModelWindow(config.provider, config.model, found.tokens, found.told_by)))

    def cut_off(self, reply: int) -> str | None:
        """Say that the server read less than was sent for the reply at that seq, and what to do; None for any other."""
        row = next((one for one in self._log.folds.windows if one.seq == reply), None)
        if row is None or row.read is None or row.shown is None:
            return None
        return (
            f"the server of {row.model} read only {row.read:,} tokens of this request, which has far more: it cut the front "
            "off, with the system text and the tools, and answered all the same. Give it a larger window (Ollama: "
            "OLLAMA_CONTEXT_LENGTH or num_ctx; llama.cpp: -c; LM Studio: the model's context length). Until then this session "
            f"is kept within {row.shown:,} tokens."
        )

    def unmetered(self) -> str | None:
        """Say that nobody stated the window of the next request's model, so that nothing of this session is metered or
        compacted, and what to set. None for a model with a meter, and for one that cannot be asked at all."""
        try:
            self.meter()
        except TokenMeterError as error:
            if error.code == UNCONFIGURED:
                return f"{error.message}. Until then this session is not metered, and its history is never compacted."
        except RefoldError:  # whoever asks the model reports what is wrong with it
            pass
        return None

    def freeze_tools(self, offered: tuple[ToolSchema, ...], config: CallConfig) -> tuple[ToolSchema, ...]:
        """Decide the tools of this opening, by its first request and again where the history is paid anew anyway: with
        another model, after a replace, or when the user asked for it.

        Those of the log's last header come first, in their order; one whose provider is gone keeps its schema, and its calls
        are answered with an error. Every provider renders tools before the history, so a list that changed otherwise would
        make it be paid again.
        """
        self._tools = self.next_tools(offered, config)
        self._generation = self._log.folds.request_state.surface.replace_generation
        return self._tools

    def next_tools(self, offered: tuple[ToolSchema, ...], config: CallConfig) -> tuple[ToolSchema, ...]:
        """Give the tools that the next request would have, without deciding it."""
        request_state = self._log.folds.request_state
        header = request_state.header
        same_model = header is not None and (header.config.provider, header.config.model) == (config.provider, config.model)
        if self._tools is not None and same_model and request_state.surface.replace_generation == self._generation:
            return self._tools
        now = {tool.name: tool for tool in offered}
        before = () if header is None or header.tools is None else header.tools
        kept = tuple(now.pop(tool.name, tool) for tool in before)
        return (*kept, *now.values())

    def thaw_tools(self) -> None:
        """Let new and changed tools join with the next request: the user asked for it and pays the history again."""
        self._tools = None

    def encode_step(self, request: Request) -> EncodedRequest:
        """Encode a step's request, with the fragments that the steps before it encoded already."""
        name = request.header.config.dialect
        dialect = dialect_named(name)
        if self._encoder is None or name != self._dialect:
            self._encoder, self._dialect = dialect.make_encoder(), name
        body = self._encoder.encode(request, {})
        return EncodedRequest(body.data, dialect.encoder, body.sha256, self._digest.of(request))


def encode_summary(request: Request) -> EncodedRequest:
    """Encode a summary's request. Nothing of it is kept: it is asked once in a while, and of another history than a step."""
    dialect = dialect_named(request.header.config.dialect)
    body = dialect.encode(request, {})
    return EncodedRequest(body, dialect.encoder, sha256(body).hexdigest(), request_sha256(request))
