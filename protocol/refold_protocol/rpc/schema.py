"""Owns the method table written out as JSON Schema, and its digest, by which two releases can be told apart.

Used by tests and generators only: the daemon announces the digest as a constant, because computing it costs milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from refold_protocol.rpc.methods import METHODS, Method


def schema_of(methods: Mapping[str, Method] = METHODS) -> dict[str, Any]:
    """Give the table as JSON: `methods` with `params` and `result` as JSON Schema, and the `types` that those name."""
    shapes = [shape for row in methods.values() for shape in (row.params, row.result) if _is_struct(shape)]
    schemas, components = msgspec.json.schema_components(shapes, ref_template="#/types/{name}")
    by_shape = dict(zip(shapes, schemas, strict=True))
    rows: dict[str, Any] = {}
    for name, row in methods.items():
        params = by_shape[row.params] if _is_struct(row.params) else {}
        result = by_shape[row.result] if _is_struct(row.result) else ({} if row.result is Raw else {"type": "null"})
        rows[name] = {"direction": row.direction, "kind": row.kind, "doc": row.doc, "params": params}
        if row.kind == "request":
            rows[name]["result"] = result
    return {"methods": rows, "types": components}


def schema_digest(methods: Mapping[str, Method] = METHODS) -> str:
    """Give the digest of `schema_of`: `sha256:` and hex over its compact JSON with sorted keys, descriptions left out."""
    text = msgspec.json.encode(_wordless(schema_of(methods)), order="sorted")
    return f"sha256:{sha256(text).hexdigest()}"


def _wordless(schema: Any) -> Any:
    if isinstance(schema, dict):
        members = cast("dict[str, Any]", schema).items()
        return {key: _wordless(value) for key, value in members if not (key in _WORDS and isinstance(value, str))}
    return [_wordless(item) for item in cast("list[Any]", schema)] if isinstance(schema, list) else schema


def _is_struct(shape: Any) -> bool:
    return shape is not None and shape is not Raw


_WORDS: Final = ("doc", "description")
