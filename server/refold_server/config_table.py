"""Owns the one table of settings: which keys there are, what each takes, what it is for.

`*` in a key stands for a name that the user gives: of a provider, of a model (`provider/model`), of a header. A setting of
the design that this release does not act on accepts the one value that describes what it does, and refuses the others
in a sentence: a setting that silently does nothing would be worse than none.
"""

from __future__ import annotations

import json
from typing import Final

from msgspec import Struct

from refold_server import config_checks as checks
from refold_server.config_checks import Check

Key = tuple[str, ...]
"""The parts of a setting's name, from the outermost table in."""


class Setting(Struct, frozen=True):
    """One row. `expects` ends the sentence "KEY expects …"; `secret` keeps the value out of messages; `missing` names
    what this release does not have yet."""

    key: Key
    check: Check
    expects: str
    meaning: str
    secret: bool = False
    missing: str | None = None


def _row(key: str, check: Check, expects: str, meaning: str, *, secret: bool = False) -> Setting:
    return Setting(tuple(key.split(".")), check, expects, meaning, secret)


def _later(key: str, missing: str, meaning: str, only: object = None) -> Setting:
    check = checks.nothing if only is None else checks.exactly(only)
    written = "" if only is None else f"{json.dumps(only)}, or "
    return Setting(tuple(key.split(".")), check, f"{written}to be left out", meaning, missing=missing)


def _compaction(table: str) -> tuple[Setting, ...]:
    """Give the settings of compaction: for all models, or below a model for that one."""
    share, whole = "a number above 0 and below 1", "a whole number from 1 to 10"
    flag = "true or false"
    return (
        _row(f"{table}.threshold_ratio", checks.number(0, 0.999, above=True), share, "share of the window where it begins"),
        _row(f"{table}.retain_tokens", checks.whole(1), _TOKENS, "what stays as it is at the end; default: 0.16 of the window"),
        _row(f"{table}.summary_model", checks.text, 'a string "provider/model"', "who sums up; default: who was asked last"),
        _row(f"{table}.summary_max_tokens", checks.whole(1), _TOKENS, "most tokens of a summary; never more than fit"),
        _row(f"{table}.attempts", checks.whole(1, 10), whole, "how often a summary is asked for before it is given up"),
        _row(f"{table}.auto", checks.truth, flag, "whether histories are compacted without being asked to; default: true"),
    )


_BYTES = "a whole number of bytes, at least 1048576 (1 MiB)"
_SECONDS = "a number of seconds above 0"
_TOKENS = "a whole number of tokens above 0"
_bytes = checks.whole(1 << 20, 1 << 46)
_seconds = checks.number(0, 86_400, above=True)

SETTINGS: Final[tuple[Setting, ...]] = (
    _row("model", checks.text, 'a string "provider/model"', "the model of new sessions"),
    _row("store.path", checks.text, "a string: the path of a folder", "where logs are kept"),
    _row("store.map_bytes", _bytes, _BYTES, "first size of the store's map"),
    _row("store.max_bytes", _bytes, _BYTES, "size at which the store stops growing, like a full disk"),
    _row("providers.*.dialect", checks.text, "a string: the name of a dialect", "how the server is spoken to"),
    _row("providers.*.base_url", checks.url, "an http or https address, with the version path", "where the server is"),
    _row(
        "providers.*.key_env",
        checks.variable,
        "the name of an environment variable",
        "the variable that holds the key",
        secret=True,  # somebody will put the key itself here
    ),
    _row(
        "providers.*.key_command",
        checks.program,
        "an array: a program and its arguments",
        "the program that prints the key; it is run without a shell",
        secret=True,
    ),
    _row("providers.*.headers.*", checks.header_value, "a string of ASCII characters", "an HTTP header", secret=True),
    _row("providers.*.options.*", checks.anything, "what the dialect takes", "a setting of the dialect"),
    _row("models.*.context_window", checks.whole(1), _TOKENS, "size of the model's window"),
    _row("models.*.max_output", checks.whole(1), _TOKENS, "most tokens of one reply"),
    _row("models.*.chars_per_token", checks.number(0, 1000, above=True), "a number above 0", "for estimates"),
    _row(
        "models.*.density",
        checks.one_of("flat", "script"),
        '"flat" or "script"',
        "whether estimates count all characters alike (the default), or Chinese, Japanese, Korean and signs as denser",
    ),
    _row("models.*.temperature", checks.number(0, 100), "a number, at least 0", "sent to the model"),
    _row("models.*.top_p", checks.number(0, 1, above=True), "a number above 0 and at most 1", "sent to the model"),
    _row("models.*.stop", checks.texts, "an array of strings, none of them empty", "texts that end a reply"),
    _row("models.*.reasoning_effort", checks.text, "a string", "sent to the model, unless the session says otherwise"),
    _row("models.*.extra", checks.json_table, "a table of values that JSON has", "merged into the body of requests"),
    *_compaction("models.*.compaction"),
    _row("limits.steps", checks.whole(1, 100_000), "a whole number above 0", "most steps of one turn"),
    _row("tools.enabled", checks.texts, "an array of names of tools", "tools that models are told of; default: all"),
    _row(
        "permissions.mode",
        checks.one_of("ask", "allow", "deny"),
        '"ask", "allow" or "deny"',
        "what becomes of tools that change something: a person is asked, they run, they do not run",
    ),
    _row("permissions.approval_timeout_s", _seconds, _SECONDS, "how long a question waits for its answer; then it is denied"),
    _row("prefix.instructions", checks.truth, "true or false", "whether requests begin with the project's own instructions"),
    _row("prefix.skills", checks.truth, "true or false", "whether they begin with a list of skills, which a tool reads"),
    _row("prefix.baseline", checks.truth, "true or false", "whether they begin with an outline of the workspace"),
    _row("prefix.editor", checks.truth, "true or false", "whether they begin with what the editor has open"),
    _row("prefix.skills_folder", checks.text, "a string: the path of a folder", "where your own skills are"),
    _row(
        "plugins.paths",
        checks.paths,
        "an array of absolute paths, or ones that begin with ~/",
        "files of plugins, loaded in this order",
    ),
    _row("plugins.entry_points", checks.flag, "true or false", "whether those of installed packages are loaded; default: true"),
    _row("plugins.load_timeout_s", _seconds, _SECONDS, "for loading one plugin; what takes longer cannot be used"),
    _later("retry.attempts", "automatic retries", "most attempts of one request", 1),
    _later("retry.base_ms", "automatic retries", "wait before the second attempt"),
    _later("retry.cap_ms", "automatic retries", "longest wait between two attempts"),
    _row("timeouts.connect_s", _seconds, _SECONDS, "for reaching a provider"),
    _row("timeouts.first_output_s", _seconds, _SECONDS, "from the request to the first output"),
    _row("timeouts.progress_s", _seconds, _SECONDS, "between two pieces of output"),
    _row("timeouts.total_s", _seconds, _SECONDS, "for one whole call"),
    *_compaction("compaction"),
    _row(
        "checks.live",
        checks.one_of("always", "sampled"),
        '"always" or "sampled"',
        "which requests are rebuilt from the log and compared before they leave",
    ),
    _row(
        "log.level",
        checks.one_of("debug", "info", "warning", "error"),
        '"debug", "info", "warning" or "error"',
        "what is told on standard error",
    ),
)
"""Every setting, in the order of the reference."""


def below(prefix: Key) -> dict[str, Setting | None]:
    """Give the names that may stand below a table, `*` for any: with their row where they are settings, else None."""
    found: dict[str, Setting | None] = {}
    for row in SETTINGS:
        if len(row.key) > len(prefix) and all(a in (b, "*") for a, b in zip(row.key, prefix, strict=False)):
            found[row.key[len(prefix)]] = row if len(row.key) == len(prefix) + 1 else None
    return found
