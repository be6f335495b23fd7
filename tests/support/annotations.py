"""Reading the annotations of structs: the ground that strategies and the tests of immutability stand on.

Sees `JsonText` and the id types as what they are, which msgspec's own inspection does not: there they are plain text.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NewType, Union, get_args, get_origin, get_type_hints

from msgspec import Struct

SCALARS: frozenset[object] = frozenset({str, int, float, bool, bytes, type(None)})


def fields(kind: type[Struct]) -> dict[str, Any]:
    """Give the annotations of a struct's fields by name, resolved, in declared order."""
    hints = get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}


def alternatives(annotation: Any) -> tuple[Any, ...]:
    """Give the members of a union; of anything else, itself."""
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def is_struct(annotation: Any) -> bool:
    """Tell whether the annotation is a struct class."""
    return isinstance(annotation, type) and issubclass(annotation, Struct)


def structs_in(annotation: Any, seen: set[type[Struct]] | None = None) -> set[type[Struct]]:
    """Give every struct that a value of this annotation can hold, at any depth."""
    found: set[type[Struct]] = set() if seen is None else seen
    for part in alternatives(annotation):
        if is_struct(part):
            if part not in found:
                found.add(part)
                for inner in fields(part).values():
                    structs_in(inner, found)
        else:
            for argument in get_args(part):
                if get_origin(part) is not Literal:
                    structs_in(argument, found)
    return found


def mutable_parts(annotation: Any, place: str) -> Iterator[str]:
    """Give a sentence for each part of the annotation that could be changed in place: nothing means immutable."""
    for part in alternatives(annotation):
        if isinstance(part, NewType):
            yield from mutable_parts(part.__supertype__, place)
        elif part in SCALARS or get_origin(part) is Literal or part is Ellipsis:
            continue
        elif get_origin(part) is tuple:
            for argument in get_args(part):
                yield from mutable_parts(argument, place)
        elif is_struct(part):
            if not part.__struct_config__.frozen:
                yield f"{place}: {part.__name__} is not frozen"
        else:
            yield f"{place}: {typing.cast('object', part)!r}"
