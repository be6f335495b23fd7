"""Rules that answer questions in place of a person: a TOML file of `[[rules]]`, the first that matches a call decides.

A rule has a `decision` (`allow` or `deny`) and says of which calls: `tool` and `path` are patterns in which `*` stands for any
text. A `path` is compared with the call's own, from the session's folder on. What no rule decides is asked as without rules.
"""

from __future__ import annotations

import os
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_protocol.session.messages import Source
from refold_server.loop.approvals import Outcome

BY_RULE: Final = Source("cli", "permissions file")
"""Who answers by a rule."""


class PermissionRule(Struct, frozen=True, forbid_unknown_fields=True):
    """A rule. Without `path` it is about calls with whatever arguments."""

    decision: Literal["allow", "deny"]
    tool: str = "*"
    path: str | None = None


class PermissionRules(Struct, frozen=True, forbid_unknown_fields=True):
    """The rules of a file, in its order."""

    rules: tuple[PermissionRule, ...]

    def outcome(self, tool: str, arguments: str, folder: str) -> Outcome | None:
        """Say what becomes of a call of `tool` in a session whose folder is `folder`; None where no rule says it."""
        path = _path_of(arguments, folder)
        for rule in self.rules:
            about = rule.path is None or (path is not None and fnmatchcase(path, rule.path))
            if about and fnmatchcase(tool, rule.tool):
                return "allowed" if rule.decision == "allow" else "denied"
        return None


def read_rules(name: str) -> PermissionRules:
    """Read a file of rules. Raises ConfigError, which says what is wrong with it."""
    try:
        given = tomllib.loads(Path(name).read_text(encoding="utf-8-sig"))
        rules = msgspec.convert(given, PermissionRules)
    except OSError as error:
        raise ConfigError("--permissions-file", f"{name} cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise ConfigError("--permissions-file", f"{name} holds no rules: {error}") from None
    if not rules.rules:
        raise ConfigError("--permissions-file", f"{name} has no [[rules]], so it decides nothing")
    return rules


def _path_of(arguments: str, folder: str) -> str | None:
    """Give the path that a call names, from `folder` on with `/`; None where it names none there."""
    try:
        given = msgspec.json.decode(arguments, type=dict[str, object])
    except msgspec.DecodeError:  # no object: the tool will say so
        return None
    path = given.get("path")
    if not isinstance(path, str):
        return None
    inside = os.path.relpath(os.path.join(folder, path), folder)  # noqa: PTH118 - a call may name any text
    return None if inside == ".." or inside.startswith("../") else inside
