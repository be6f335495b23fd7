"""List that is never seen to change, and that grows at its end without being copied.

Folds hold what grows with the log (surface nodes, messages, chunks of a running reply) in an AppendOnlyList. Several of them
share one list and each sees only its own first items; appending to the longest is O(1), appending to a shorter one (going on
from an older state) copies. Knows nothing of sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from types import MemberDescriptorType
from typing import Generic, TypeVar, cast, overload

T = TypeVar("T")


class AppendOnlyList(Sequence[T], Generic[T]):
    """An immutable sequence that grows into another one cheaply. Equal when the items are equal, in order.

    Whoever treats it as a list meets an AttributeError or a TypeError: nothing here has a list's name."""

    __slots__ = ("_items", "_length")

    _items: list[T]
    _length: int

    def __init__(self, items: Iterable[T] = ()) -> None:
        own = list(items)
        _set_items(self, own)
        _set_length(self, len(own))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a tape is immutable: {name}")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a tape is immutable: {name}")

    def then(self, *more: T) -> AppendOnlyList[T]:
        """Give a tape with `more` behind these items. O(more) from the longest tape of a family, else a copy.

        An empty tape begins a new family each time: it may be a constant, which must not hold some log's items for ever.
        """
        longest = self._length > 0 and len(self._items) == self._length
        items = self._items if longest else self._items[: self._length]
        items += more
        grown = cast("AppendOnlyList[T]", _new(AppendOnlyList))
        _set_items(grown, items)
        _set_length(grown, self._length + len(more))
        return grown

    def extends(self, older: AppendOnlyList[T]) -> bool:
        """Tell in O(1) whether this tape grew from `older` by appends alone. May say no where a comparison would say yes."""
        return older._length == 0 or (self._items is older._items and self._length >= older._length)

    def since(self, length: int) -> Iterator[T]:
        """Iterate over the items from position `length` on."""
        return islice(self._items, length, self._length)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return islice(self._items, self._length)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self._items[position] for position in range(*index.indices(self._length)))
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError("tape index out of range")
        return self._items[position]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AppendOnlyList):
            return NotImplemented
        theirs = cast("AppendOnlyList[object]", other)
        return self._length == len(theirs) and all(one == two for one, two in zip(self, theirs, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"AppendOnlyList({list(self)!r})"


_new = object.__new__
_set_items = cast("MemberDescriptorType", AppendOnlyList.__dict__["_items"]).__set__
_set_length = cast("MemberDescriptorType", AppendOnlyList.__dict__["_length"]).__set__
