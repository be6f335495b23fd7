"""Owns the answer to: under which session's number does an event of a log lie? A fork keeps no copy of what it inherited.

It names segments instead: runs of events that lie under the numbers of other sessions, its *origins*. They are resolved
when a fork is made, so a fork of a fork names the first owners and a read never follows a chain of parents. Pure.
"""

from __future__ import annotations

from msgspec import Struct


class Segment(Struct, frozen=True, gc=False, array_like=True):
    """A run of inherited events: the number under which they lie, the seq of the last one, and its digest in hex. A run
    begins behind the one before it, the first at 0."""

    owner: int
    last: int
    digest: str


class Section(Struct, frozen=True, gc=False):
    """A part of a log that lies under one number: from `first` to `last`, to the end where `last` is None. `digest` is
    that of event `last`, in hex."""

    owner: int
    first: int
    last: int | None = None
    digest: str | None = None


def section_at(number: int, segments: tuple[Segment, ...], seq: int) -> Section:
    """Give the section that holds event `seq` of the session with that number and those segments."""
    first = 0
    for segment in segments:
        if seq <= segment.last:
            return Section(segment.owner, first, segment.last, segment.digest)
        first = segment.last + 1
    return Section(number, first)


def forked_segments(number: int, segments: tuple[Segment, ...], at: int, digest: str) -> tuple[Segment, ...]:
    """Give the segments of a fork, at event `at` whose digest that is, of the session with that number and those
    segments."""
    whole = tuple(segment for segment in segments if segment.last < at)
    return *whole, Segment(section_at(number, segments, at).owner, at, digest)
