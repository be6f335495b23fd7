"""Models that a server says it has: the answer to `GET /models`, read whatever shape it has.

Most servers answer `{"data": [{"id": …}]}`; Gemini, Ollama and others name the list or the name differently. A window is given
where the server tells the one in force, not the one that a model could have. Knows no transport.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from msgspec import Struct

from refold_protocol.dialects.provider_failures import short
from refold_protocol.errors import ProviderError

PATH: Final = "/models"
"""Where compatible servers list their models, below `base_url`."""

_LISTS: Final = ("data", "models")
_NAMES: Final = ("id", "name", "model")
_WINDOWS: Final = ("max_model_len", "context_length", "context_window", "max_context_length")
"""As vLLM and sglang, OpenRouter and Together, Groq, and Mistral call it."""

_NAME_CHARACTERS: Final = 200


class FoundModel(Struct, frozen=True, gc=False, omit_defaults=True, rename="camel"):
    """A model that a server has, by the server's own name; its window in tokens where the server tells it."""

    name: str
    context_window: int | None = None


def read_models(body: bytes) -> tuple[FoundModel, ...]:
    """Read the answer to `GET /models`, in its order. Raises ProviderError `provider.badStream` for anything else."""
    try:
        answer: object = json.loads(body)
    except (ValueError, RecursionError):
        raise ProviderError("provider.badStream", "the server's list of models is no JSON; check base_url") from None
    rows = answer
    if isinstance(answer, dict):
        members = cast("dict[str, object]", answer)
        rows = next((members[key] for key in _LISTS if isinstance(members.get(key), list)), None)
    if not isinstance(rows, list):
        raise ProviderError("provider.badStream", "the server's answer is no list of models; check base_url")
    found = (_read(cast("Mapping[str, object]", row)) for row in cast("list[object]", rows) if isinstance(row, dict))
    named = {model.name: model for model in found if model.name}
    return tuple(named.values())


def _read(row: Mapping[str, object]) -> FoundModel:
    name = next((value for key in _NAMES if isinstance(value := row.get(key), str) and value), "")
    places: list[Mapping[str, object]] = [row]
    if isinstance(meta := row.get("meta"), dict):  # llama.cpp
        places.append({"context_length": cast("dict[str, object]", meta).get("n_ctx")})
    windows = (place.get(key) for place in places for key in _WINDOWS)
    window = next((size for size in windows if isinstance(size, int) and not isinstance(size, bool) and size > 0), None)
    return FoundModel(short(name.removeprefix("models/"), _NAME_CHARACTERS), window)
