"""TypeScript declarations: every row of the tables, the forms of members and unions, nothing that is named and not declared."""

from __future__ import annotations

import re
from typing import Literal

from msgspec import UNSET, Raw, Struct, UnsetType

from refold_protocol.errors import KINDS
from refold_protocol.session.event_data import TURN_ENDS
from refold_protocol.session.events import EVENT_TYPES
from refold_server.rpc.method import Method
from refold_server.rpc.method_table import METHODS
from refold_server.rpc.wire_schema import EMPTY, SPLICED, SPLICED_RESULTS, WORDS, declarations

TEXT = declarations(METHODS)


class Cat(Struct, frozen=True, tag="cat", tag_field="kind"):
    """A cat. Ends here: */ it does not."""

    lives: int = 9


class Dog(Struct, frozen=True, tag="dog", tag_field="kind"):
    """A dog."""


class Asked(Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """What is asked; `how_many` at most."""

    how_many: int
    mode: Literal["slow", "fast"] = "slow"
    name: str | None = None
    spans: tuple[tuple[int, int], ...] = ()


class Answered(Struct, frozen=True):
    """What is answered."""

    pets: tuple[Cat | Dog, ...]
    header: Cat | UnsetType | None = UNSET
    score: float | None = None
    text: Raw | UnsetType = UNSET


def of(params: object, result: object) -> str:
    row = Method("pet/list", "to-daemon", "request", params, result, "List pets.")
    return declarations({row.name: row}, {})


def test_members_are_named_as_on_the_wire_and_optional_where_they_may_be_absent() -> None:
    assert """/** What is asked; `howMany` at most. */
export interface Asked {
  howMany: number;
  mode?: "fast" | "slow";
  name?: string;
  spans?: [number, number][];
}
""" in of(Asked, None)


def test_unions_are_told_apart_by_their_tag_and_null_stays_where_it_is_sent() -> None:
    text = of(None, Answered)
    assert (
        """export interface Answered {
  pets: (Cat | Dog)[];
  header?: Cat | null;
  score: number | null;
  text?: unknown;
}
"""
        in text
    )
    assert 'export interface Cat {\n  kind: "cat";\n  lives: number;\n}\n' in text
    assert 'export interface Dog {\n  kind: "dog";\n}\n' in text
    assert "/** A cat. Ends here: *\\/ it does not. */" in text


def test_a_method_has_its_doc_params_and_result() -> None:
    assert '  /** List pets. */\n  "pet/list": { params: Asked; result: null };\n' in of(Asked, None)
    assert '"pet/list": { params: object | undefined; result: Answered };' in of(None, Answered)


def test_params_without_members_take_none() -> None:
    assert f"export type NoParams = {EMPTY};" in TEXT


def test_every_row_of_the_tables_is_declared() -> None:
    for row in METHODS.values():
        assert f'  "{row.name}": {{ params: ' in TEXT
    for name, event in EVENT_TYPES.items():
        assert f'  "{name}": {event.data.__name__};\n' in TEXT
    for word in (*KINDS, *TURN_ENDS):
        assert f'\n  | "{word}"' in TEXT
    for name in TURN_ENDS:
        assert f'\n  | {{ kind: "{name}"' in TEXT


def test_what_is_named_is_declared_once() -> None:
    declared = re.findall(r"^export (?:interface|type) (\w+)", TEXT, re.MULTILINE)
    assert len(declared) == len(set(declared))
    code = re.sub(r'/\*.*?\*/|//[^\n]*|"[^"\n]*"', "", TEXT, flags=re.DOTALL)
    assert set(re.findall(r"\b[A-Z]\w+", code)) <= {*declared, "T", "NonNullable", "Record"}


def test_no_member_holds_text_of_json_that_nobody_described() -> None:
    """A new `Raw` member shows as `unknown` until `shapes.py` says what it is."""
    code = TEXT.replace("  data: unknown;", "").replace("  [detail: string]: unknown;", "")
    assert ": unknown" not in code


def test_every_described_place_is_there() -> None:
    for struct, _ in (*SPLICED, *WORDS):
        assert f"export interface {struct} {{" in TEXT
    assert SPLICED_RESULTS.keys() <= METHODS.keys()
