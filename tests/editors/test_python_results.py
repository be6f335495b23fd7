"""The client's types of results say what the protocol's table says."""

from __future__ import annotations

from typing import Any, is_typeddict

import msgspec
import pytest

from refold_client import client as client_module
from refold_client import client_results as results
from refold_server.rpc.method_table import METHODS

METHOD_OF = {
    "SessionList": "session/list",
    "Rebuilt": "request/rebuild",
    "RequestList": "request/list",
    "Verified": "log/verify",
    "ModelList": "model/list",
    "ToolList": "tool/list",
    "Health": "daemon/health",
    "Schema": "daemon/schema",
}

ROW_OF = {
    "SessionRow": ("session/list", "sessions"),
    "Mismatch": ("log/verify", "mismatch"),
    "ModelRow": ("model/list", "models"),
    "ProviderRow": ("model/list", "providers"),
    "ToolRow": ("tool/list", "tools"),
    "StoreHealth": ("daemon/health", "store"),
    "LiveHealth": ("daemon/health", "sessions"),
    "PluginHealth": ("daemon/health", "plugins"),
}

TYPES = {name: kind for name, kind in vars(results).items() if is_typeddict(kind)}


def described(name: str) -> Any:
    """Give msgspec's description of the struct that a type of ours stands for."""
    if name in METHOD_OF:
        return msgspec.inspect.type_info(METHODS[METHOD_OF[name]].result)
    method, member = ROW_OF[name]
    result: Any = msgspec.inspect.type_info(METHODS[method].result)
    (found,) = (field.type for field in result.fields if field.name == member)
    if isinstance(found, msgspec.inspect.UnionType):
        (found,) = (one for one in found.types if isinstance(one, msgspec.inspect.StructType))
    return getattr(found, "item_type", found)


@pytest.mark.parametrize("name", TYPES)
def test_a_type_has_the_members_of_its_row_and_the_same_ones_may_be_absent(name: str) -> None:
    fields = described(name).fields
    kind: Any = TYPES[name]
    assert kind.__required_keys__ == {field.encode_name for field in fields if field.required}
    assert kind.__optional_keys__ == {field.encode_name for field in fields if not field.required}


def test_every_type_stands_for_something_and_is_used() -> None:
    assert TYPES.keys() == METHOD_OF.keys() | ROW_OF.keys()
    assert METHOD_OF.keys() <= vars(client_module).keys()
