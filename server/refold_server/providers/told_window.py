"""The window in force that a server tells of a model: which answers are asked for, and where it stands in them.

Compatible servers tell it in their list of models; llama.cpp, Ollama, LM Studio and LiteLLM beside it, at their root. Those
are asked on this machine and in its own network alone: a vendor answers no such question. A window that a model could have is
none that is in force, and is not taken. Knows no transport.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast
from urllib.parse import urlsplit

from msgspec import Struct

from refold_protocol.errors import ProviderError
from refold_server.providers.model_discovery import read_models


class ToldWindow(Struct, frozen=True, gc=False):
    """The window of a model in tokens, and the answer in which it stood."""

    tokens: int
    told_by: str


class WindowQuestion(Struct, frozen=True):
    """A question to a server: the name that is recorded, the path, whether below its root in place of its address, and what
    reads the window of a model from the answer."""

    name: str
    path: str
    at_root: bool
    read: Callable[[object, str], int | None]


def window_in(question: WindowQuestion, body: bytes, model: str) -> ToldWindow | None:
    """Read an answer, whatever it is; None where it does not tell the window of `model`."""
    try:
        tokens = question.read(json.loads(body), model)
    except (ValueError, RecursionError, ProviderError):
        return None
    return None if tokens is None or tokens < 1 else ToldWindow(tokens, question.name)


def questions_for(base_url: str) -> tuple[WindowQuestion, ...]:
    """Give what to ask the server at an address, in order."""
    return QUESTIONS if _is_near(urlsplit(base_url).hostname or "") else QUESTIONS[:1]


def _is_near(host: str) -> bool:
    """Tell whether a host is this machine or in a private network."""
    if host == "localhost" or host.endswith((".localhost", ".local")) or ("." not in host and ":" not in host):
        return True
    from ipaddress import ip_address  # on use: it is slow to import

    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_private


def _listed(answer: object, model: str) -> int | None:
    found = read_models(json.dumps(answer).encode())
    return next((one.context_window for one in found if one.name in _names(model)), None)


def _of_slot(answer: object, model: str) -> int | None:
    del model  # such a server has one
    return _number(_object(_object(answer).get("default_generation_settings")).get("n_ctx"))


def _loaded(key: str, *members: str) -> Callable[[object, str], int | None]:
    """Give a reader of a list of models at `key`, each with its window at one of `members`."""

    def read(answer: object, model: str) -> int | None:
        rows = _object(answer).get(key)
        for row in map(_object, cast("Sequence[object]", rows) if isinstance(rows, list) else ()):
            if {row.get("id"), row.get("model"), row.get("name"), row.get("model_name")} & _names(model):
                places = [row, _object(row.get("model_info"))]
                return next((size for place in places for name in members if (size := _number(place.get(name)))), None)
        return None

    return read


QUESTIONS: Final = (
    WindowQuestion("models", "/models", False, _listed),
    WindowQuestion("props", "/props", True, _of_slot),  # llama.cpp
    WindowQuestion("ps", "/api/ps", True, _loaded("models", "context_length")),  # Ollama, once the model is loaded
    WindowQuestion("loaded", "/api/v0/models", True, _loaded("data", "loaded_context_length")),  # LM Studio
    WindowQuestion("info", "/model/info", False, _loaded("data", "max_input_tokens")),  # LiteLLM
)
"""The questions, in the order in which they are asked until one is answered."""


def _names(model: str) -> set[object]:
    """Give the names under which a server may list a model."""
    return {model, f"{model}:latest", model.removesuffix(":latest")}


def _object(value: object) -> Mapping[str, object]:
    return cast("Mapping[str, object]", value) if isinstance(value, dict) else {}


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
