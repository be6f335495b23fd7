"""Walks everything that can be reached from an object and tries to change each thing that it meets, by ordinary means.

Ordinary: assigning and deleting attributes and items, and the methods by which lists, dicts and sets change. Names that
begin with an underscore are not ordinary, nor is what Python keeps behind functions, modules and classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

MUTATING = (
    "append",
    "extend",
    "insert",
    "pop",
    "remove",
    "clear",
    "update",
    "sort",
    "reverse",
    "add",
    "discard",
    "setdefault",
    "popitem",
    "intersection_update",
    "difference_update",
    "__iadd__",
    "__ior__",
    "__setitem__",
    "__delitem__",
)

_SCALARS = (str, bytes, int, float, bool, type(None))


class Attempts:
    """What was tried, by seam, and what got through. An object counts once, wherever it was met again."""

    def __init__(self) -> None:
        self.tried: dict[str, int] = {}
        self.objects: dict[str, int] = {}
        self.through: list[str] = []

    def on(self, seam: str, *roots: object) -> None:
        """Try everything on all that can be reached from `roots`."""
        for met in reachable(*roots):
            count = 0
            for what, attempt in attacks(met):
                count += 1
                try:
                    attempt()
                except (AttributeError, TypeError, KeyError, IndexError):
                    continue
                self.through.append(f"{seam}: {what} of a {type(met).__name__}")
            assert count > 0
            self.tried[seam] = self.tried.get(seam, 0) + count
            self.objects[seam] = self.objects.get(seam, 0) + 1


def reachable(*roots: object) -> Iterator[object]:
    """Iterate over the roots and all that they hold, each object once."""
    waiting: list[object] = list(roots)
    seen: dict[int, object] = {}
    while waiting:
        met = waiting.pop()
        if id(met) in seen:
            continue
        seen[id(met)] = met
        yield met
        if not isinstance(met, _SCALARS):
            waiting.extend(_held(met))


def _held(met: object) -> Iterator[object]:
    for name in names(met):
        yield getattr(met, name)
    if isinstance(met, Mapping):
        mapping = cast("Mapping[object, object]", met)
        yield from mapping
        yield from mapping.values()
    elif isinstance(met, Sequence):
        yield from cast("Sequence[object]", met)


def names(met: object) -> list[str]:
    """The names of an object's fields: of a struct, of slots, and of its dictionary."""
    cls = type(met)
    slots = [name for one in cls.__mro__ for name in _slots(one)]
    found = (*getattr(cls, "__struct_fields__", ()), *slots, *getattr(met, "__dict__", ()))
    return sorted({name for name in found if not name.startswith("_") and hasattr(met, name)})


def _slots(cls: type) -> tuple[str, ...]:
    slots: Any = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def attacks(met: object) -> Iterator[tuple[str, Callable[[], object]]]:
    """Iterate over all attempts to change one object, each with a word for it."""
    target = cast("Any", met)
    methods = [name for name in dir(met) if not name.startswith("_")]
    for name in [*names(met), *methods, "evil"]:
        yield f"assigning {name}", lambda name=name: setattr(target, name, "evil")
        yield f"deleting {name}", lambda name=name: delattr(target, name)
    for name in names(met):
        yield f"adding to {name}", lambda name=name: _add_to(target, name)
    for place in (0, -1, "evil", slice(0, 1)):
        yield f"assigning [{place}]", lambda place=place: target.__setitem__(place, "evil")
        yield f"assigning item {place}", lambda place=place: _assign(target, place)
        yield f"deleting item {place}", lambda place=place: _delete(target, place)
    for name in MUTATING:
        for given in ((), ("evil",), (0,), (0, "evil"), (["evil"],), ({"evil": 1},)):
            yield f"calling {name}{given}", lambda name=name, given=given: getattr(target, name)(*given)


def _add_to(target: Any, name: str) -> None:
    held = getattr(target, name)
    held += held
    setattr(target, name, held)


def _assign(target: Any, place: object) -> None:
    target[place] = "evil"


def _delete(target: Any, place: object) -> None:
    del target[place]
