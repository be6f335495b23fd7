"""The tree of errors: every class has a kind that clients know, and the drawing of the tree is the tree."""

from __future__ import annotations

import re

import pytest

from refold_protocol import errors
from refold_protocol.errors import KINDS, RETRYABLE_KINDS, ConfigError, LogBusyError, ProviderError, RefoldError

CLASSES = sorted(
    (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RefoldError)),
    key=lambda kind: kind.__name__,
)
BRANCHES = {"RefoldError", "SessionError", "LogError"}


def _drawn() -> dict[str, str]:
    """Give each class that the drawing shows, with the name of the class above it."""
    tree: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").split("\n"):
        if found := re.match(r"( +[│├└─ ]*)(\w+Error)\b", line):
            depth, name = len(found.group(1)), found.group(2)
            path = [(above, base) for above, base in path if above < depth]
            tree[name] = path[-1][1] if path else ""
            path.append((depth, name))
    return tree


def test_the_drawing_shows_every_class_below_its_base() -> None:
    assert _drawn() == {kind.__name__: "" if kind is RefoldError else kind.__bases__[0].__name__ for kind in CLASSES}


@pytest.mark.parametrize("name", [kind.__name__ for kind in CLASSES if kind.__name__ not in BRANCHES])
def test_every_error_has_a_kind_that_the_drawing_shows(name: str) -> None:
    kind = getattr(errors, name).kind
    assert kind in KINDS
    drawn = re.search(rf"─ {name} +(\S+)", errors.__doc__ or "")
    assert drawn is not None
    assert drawn.group(1).rstrip(",") in {kind, "provider.*"}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_a_word_of_its_group_and_says_what_it_means(kind: str) -> None:
    assert re.fullmatch(r"[a-z]+(\.[a-zA-Z]+)?", kind)
    assert len(KINDS[kind]) > 10


def test_only_known_kinds_may_be_retried_and_a_refusal_never() -> None:
    assert set(KINDS) >= RETRYABLE_KINDS
    assert RETRYABLE_KINDS.isdisjoint({"provider.auth", "provider.rejected", "config.invalid", "session.corrupt", "invariant"})


def test_details_that_are_not_known_are_left_out() -> None:
    assert LogBusyError("busy", holder=None, seq=0).details == {"seq": 0}


def test_an_error_of_a_provider_has_the_kind_it_was_given() -> None:
    error = ProviderError("provider.timeout", "No answer.", status=504, retry_after_ms=20, request_id="r")
    assert error.error_kind == "provider.timeout"
    assert error.details == {"status": 504, "retryAfterMs": 20, "requestId": "r"}
    assert str(error) == "No answer."


@pytest.mark.parametrize(
    ("file", "line", "text"),
    [
        (None, None, "store.path: no folder"),
        ("c.toml", None, "store.path: no folder (c.toml)"),
        ("c.toml", 4, "store.path: no folder (c.toml, line 4)"),
    ],
)
def test_a_wrong_setting_is_named_with_its_place(file: str | None, line: int | None, text: str) -> None:
    error = ConfigError("store.path", "no folder", file=file, line=line)
    assert (str(error), error.key, error.error_kind) == (text, "store.path", "config.invalid")
