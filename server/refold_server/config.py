"""The configuration: one tree of structs, whose annotations say of each setting what it takes, its bounds and what it is for.

Reading a file, the reference page, the JSON Schema and `refold config` follow these annotations; nothing else lists settings.
A field whose annotation has a description is a setting and bears its name. The other fields are filled in by refold. Knows no
files and no TOML. Nothing here holds a secret, except HTTP headers, which are never logged or recorded.
"""

from __future__ import annotations  # annotations are read when a setting is given: a start without settings pays nothing

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, cast, get_args, get_origin
from urllib.parse import urlsplit

from msgspec import NODEFAULT, Meta, Struct, convert
from msgspec.structs import fields

from refold_protocol.errors import InvalidJsonError
from refold_protocol.json_text import JsonText, compact_json
from refold_protocol.session.token_estimate import Counting


class Names(Struct, frozen=True):
    """A table whose members the user names. `shown` stands for a name in documents, `fault` says how a wrong one is wrong."""

    shown: str
    pattern: str
    fault: str


_TEXT: Final = r"\A(?=.*\S)[^\x00-\x1f\x7f]*\Z"
_MODEL: Final = r"\A(?=[^/]*[^/\s][^/]*/.*\S)[^\x00-\x1f\x7f]*\Z"
_PROVIDERS: Final = Names(
    "NAME",
    r"\A[A-Za-z0-9_.-]{1,64}\Z",
    "a provider's name is made of letters, digits, dots, dashes and underscores, at most 64 of them",
)
_MODELS: Final = Names("PROVIDER/MODEL", _MODEL, 'a model is named "provider/model"')
_HEADER: Final = r"\A[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z"
_HEADERS: Final = Names("HEADER", _HEADER, "not a name that an HTTP header can have")
_PARAMETERS: Final = Names("NAME", r"\A[!-~]+\Z", "not a name that a parameter can have")
_VARIABLE: Final = r"\A[A-Za-z_][A-Za-z0-9_]*\Z"
_NOT_THE_KEY: Final = "the name of an environment variable, not the key itself"
_PROGRAM: Final = "an array: a program and its arguments"

Text: TypeAlias = Annotated[str, Meta(pattern=_TEXT, extra={"expects": "a string that is not blank"})]
Texts: TypeAlias = tuple[Annotated[str, Meta(min_length=1)], ...]
AbsolutePath: TypeAlias = Annotated[Path, Meta(extra={"expects": "an absolute path, or one that begins with ~/"})]
ModelName: TypeAlias = Annotated[
    str,
    Meta(pattern=_MODEL, extra={"expects": '"provider/model"'}),
]
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=2**53, extra={"unit": "tokens"})]
Bytes: TypeAlias = Annotated[int, Meta(ge=1 << 20, le=1 << 46, extra={"unit": "bytes"})]
Milliseconds: TypeAlias = Annotated[int, Meta(ge=1, le=86_400_000, extra={"unit": "milliseconds"})]
Seconds: TypeAlias = Annotated[float, Meta(gt=0, le=86_400, extra={"unit": "seconds"})]

Command: TypeAlias = Annotated[tuple[Annotated[str, Meta(pattern=r"\A[^\x00]+\Z")], ...], Meta(min_length=1)]

Mode: TypeAlias = Literal["ask", "allow", "deny"]
"""What happens with a call that changes something: a person is asked, it runs, it does not run."""


class RefusedValueError(ValueError):
    """A value is not what its setting takes. The message is a hint for the person, or empty. Beside a hint the value is not
    repeated: it may hold a secret."""


def http_address(value: object) -> str:
    """Give an http or https address without the slash at its end. Raises RefusedValueError."""
    if not isinstance(value, str):
        raise RefusedValueError
    if re.match("https?://", value, re.IGNORECASE) is None:
        raise RefusedValueError("begin it with http:// or https://")
    if re.search(r"[?#]|//[^/]*@", value):
        raise RefusedValueError("leave out user names, queries and fragments")
    try:
        parts = urlsplit(value)
        right = bool(parts.hostname) and parts.port != 0
    except ValueError:  # urllib's word for a broken host or port
        right = False
    if not right or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise RefusedValueError
    if value.rstrip("/").endswith("/chat/completions"):
        raise RefusedValueError("leave out /chat/completions, which refold adds itself")
    return value.rstrip("/")


def json_object(value: object) -> JsonText:
    """Give a table as the text of a JSON object. Raises RefusedValueError for values that JSON does not have."""
    if not isinstance(value, dict):
        raise RefusedValueError
    try:
        return compact_json(value)
    except InvalidJsonError as error:
        raise RefusedValueError(f"it cannot be written as JSON: {error.message}") from None


def plain_table(value: object) -> object:
    """Give a table back: its dialect checks what it holds. Raises RefusedValueError for anything else."""
    if not isinstance(value, dict):
        raise RefusedValueError("write it as [providers.NAME.options]")
    return cast("object", value)


def absolute_path(kind: type, value: object) -> Path:
    """Give the path that a string names, `~` resolved: the way from TOML to `Path` for msgspec. Raises ValueError."""
    assert kind is Path  # no other type of the tree needs a conversion
    text = convert(value, Text)
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # `~name` of a user that this machine does not have
        path = Path()
    if not path.is_absolute():
        raise RefusedValueError
    return path


class StoreConfig(Struct, frozen=True):
    """Where sessions are kept. Sizes that are not set are the store's own."""

    path: Annotated[AbsolutePath, Meta(description="folder of the logs; default: the platform's folder for data")]
    map_bytes: Annotated[Bytes | None, Meta(description="first size of the store's map")] = None
    max_bytes: Annotated[
        Bytes | None, Meta(description="size at which the store stops growing and appends fail, as on a full disk")
    ] = None


class ProviderConfig(Struct, frozen=True):
    """A server of models; `refold` asks it for every model that is named `NAME/…`. The embedded provider `rehearsal` is always
    there. At most one of `key_env` and `key_command` is set; where neither gives a key, the one that `refold login` keeps is
    used."""

    name: str
    dialect: Annotated[
        Text,
        Meta(
            description="how the server is spoken to; required where no preset says it",
            extra={"expects": "the name of a dialect"},
        ),
    ]
    options: Annotated[
        JsonText,
        Meta(
            description="settings of the dialect",
            extra={"read": plain_table, "expects": "a table", "schema": {"type": "object"}},
        ),
    ]
    base_url: Annotated[
        str | None,
        Meta(
            description="address of the server, with the path of its version; required where no preset says it",
            extra={
                "read": http_address,
                "expects": "an http or https address",
                "schema": {"type": "string", "pattern": "^https?://[^?#]+$"},
            },
        ),
    ] = None
    preset: Annotated[
        Text | None,
        Meta(
            description="a known server, whose settings hold where nothing else is set here",
            extra={"expects": "the name of a preset"},
        ),
    ] = None
    path: Annotated[
        str | None,
        Meta(
            pattern=r"\A/[!-~]*\Z",
            description="what follows the address; default: the dialect's. `{model}` stands for the model's name",
            extra={"expects": "a path that begins with a slash"},
        ),
    ] = None
    query: Annotated[
        tuple[tuple[str, Annotated[str, Meta(pattern=r"\A[ -~]*\Z")]], ...],
        Meta(
            description="a parameter of every request's address",
            extra={"names": _PARAMETERS, "expects": "a string of ASCII characters", "secret": True},
        ),
    ] = ()
    key_env: Annotated[
        str | None,
        Meta(
            pattern=_VARIABLE,
            description="environment variable that holds the key",
            extra={"expects": _NOT_THE_KEY, "secret": True},
        ),
    ] = None
    key_command: Annotated[
        Command | None,
        Meta(
            description="program that prints the key, and its arguments; it is run without a shell",
            extra={"expects": _PROGRAM, "secret": True},
        ),
    ] = None
    key_header: Annotated[
        str | None,
        Meta(
            pattern=_HEADER,
            description="HTTP header that carries the key and nothing else; default: the dialect's",
            extra={"expects": "the name of an HTTP header"},
        ),
    ] = None
    headers: Annotated[
        tuple[tuple[str, Annotated[str, Meta(pattern=r"\A(?=.*\S)[ -~]*\Z")]], ...],
        Meta(
            description="an HTTP header of every request",
            extra={"names": _HEADERS, "expects": "a string of ASCII characters", "secret": True},
        ),
    ] = ()
    header_env: Annotated[
        tuple[tuple[str, Annotated[str, Meta(pattern=_VARIABLE)]], ...],
        Meta(
            description="environment variable that holds the value of an HTTP header",
            extra={"names": _HEADERS, "expects": _NOT_THE_KEY, "secret": True},
        ),
    ] = ()
    header_command: Annotated[
        tuple[tuple[str, Command], ...],
        Meta(
            description="program that prints the value of an HTTP header",
            extra={"names": _HEADERS, "expects": _PROGRAM, "secret": True},
        ),
    ] = ()
    proxy: Annotated[
        str | None,
        Meta(
            pattern=r"\A(none|[!-~]+)\Z",
            description='proxy through which the server is reached, or "none"; default: what the environment names',
            extra={"expects": 'the address of a proxy, or "none"', "secret": True},
        ),
    ] = None
    ca_file: Annotated[
        AbsolutePath | None, Meta(description="file of certificates that are trusted besides the usual ones")
    ] = None
    client_cert: Annotated[AbsolutePath | None, Meta(description="file of the certificate that is shown to the server")] = None
    client_key: Annotated[
        AbsolutePath | None, Meta(description="file of that certificate's key; default: it is in the same file")
    ] = None
    timeouts: Annotated[
        TimeoutsConfig | None, Meta(description="as `timeouts`, for this provider; what is not set is taken from there")
    ] = None


class CompactionConfig(Struct, frozen=True):
    """When and how histories are summed up."""

    threshold_ratio: Annotated[float, Meta(gt=0, le=0.999, description="share of the window at which it begins")] = 0.8
    retain_tokens: Annotated[
        Tokens | None, Meta(description="tokens that stay as they are at the end; default: 0.16 of the window")
    ] = None
    summary_model: Annotated[ModelName, Meta(description="model that sums up; default: the one that was asked last")] = ""
    summary_max_tokens: Annotated[Tokens, Meta(description="most tokens of a summary; never more than fit")] = 8192
    attempts: Annotated[int, Meta(ge=1, le=10, description="how often a summary is asked for before it is given up")] = 2
    auto: Annotated[bool, Meta(description="whether histories are summed up without being asked to")] = True


class ModelConfig(Struct, frozen=True):
    """What is known of a model, and what its requests carry. `name` is `provider/model`."""

    name: str
    context_window: Annotated[Tokens | None, Meta(description="size of the model's window, prompt and reply together")] = None
    max_output: Annotated[Tokens | None, Meta(description="most tokens of one reply")] = None
    chars_per_token: Annotated[
        float | None, Meta(gt=0, le=1000, description="characters that make a token, for estimates; default: 4")
    ] = None
    density: Annotated[
        Counting | None,
        Meta(
            description="whether estimates count all characters alike (`flat`, the default), or Chinese, Japanese, Korean and "
            "signs as denser (`script`)"
        ),
    ] = None
    temperature: Annotated[float | None, Meta(ge=0, le=100, description="sent to the model")] = None
    top_p: Annotated[float | None, Meta(gt=0, le=1, description="sent to the model")] = None
    stop: Annotated[
        Texts | None,
        Meta(description="texts that end a reply", extra={"expects": "an array of strings, none of them empty"}),
    ] = None
    reasoning_effort: Annotated[Text | None, Meta(description="sent to the model, unless the session says otherwise")] = None
    options: Annotated[
        JsonText | None,
        Meta(
            description="settings of the dialect for this model; what is not set is taken from the provider",
            extra={"read": plain_table, "expects": "a table", "schema": {"type": "object"}},
        ),
    ] = None
    extra: Annotated[
        JsonText | None,
        Meta(
            description="members of the request's body, merged into it as they are",
            extra={
                "read": json_object,
                "expects": "a table of values that JSON has",
                "schema": {"type": "object"},
                "secret": True,
            },
        ),
    ] = None
    compaction: Annotated[
        CompactionConfig | None, Meta(description="as `compaction`, for this model; what is not set is taken from there")
    ] = None


class LimitsConfig(Struct, frozen=True):
    """Bounds of one turn."""

    steps: Annotated[int, Meta(ge=1, le=100_000, description="most steps of one turn")] = 50


class TimeoutsConfig(Struct, frozen=True):
    """Bounds of one provider call."""

    connect_s: Annotated[Seconds, Meta(description="for reaching a provider")] = 10.0
    first_output_s: Annotated[Seconds, Meta(description="from the request to the first output")] = 300.0
    progress_s: Annotated[Seconds, Meta(description="between two pieces of output")] = 120.0
    total_s: Annotated[Seconds, Meta(description="for one whole call")] = 3600.0


class RetryConfig(Struct, frozen=True):
    """Further attempts of a request that failed before anything of the reply was shown. Waits double from `base_ms` to
    `cap_ms`; what a server asks for (`Retry-After`) is waited for in any case, as long as the budget holds it."""

    attempts: Annotated[int, Meta(ge=1, le=20, description="most attempts of one request; 1: none but the first")] = 4
    base_ms: Annotated[Milliseconds, Meta(description="wait before the second attempt")] = 500
    cap_ms: Annotated[Milliseconds, Meta(description="longest wait that refold chooses")] = 30_000
    budget_s: Annotated[Seconds, Meta(description="no attempt begins later than this after the first one")] = 120.0


class Written(Struct, frozen=True):
    """Where a setting stands: a file or what else gave it, and the line where it is known. For faults that show later."""

    file: str | None = None
    line: int | None = None


class ToolsConfig(Struct, frozen=True):
    """Tools that models are told of. Those of plugins are known when the plugins are loaded; names are checked then."""

    enabled: Annotated[
        Texts | None,
        Meta(description="names of the tools; default: all of them", extra={"expects": "an array of names of tools"}),
    ] = None
    enabled_written: Written = Written()


class PluginsConfig(Struct, frozen=True):
    """Plugins, which run with your rights. Only the file can name them, never a client."""

    paths: Annotated[
        tuple[AbsolutePath, ...],
        Meta(
            description="files of plugins, loaded in this order",
            extra={"expects": "an array of absolute paths, or ones that begin with ~/"},
        ),
    ] = ()
    entry_points: Annotated[bool, Meta(description="whether those of installed packages are loaded, before the files")] = True
    load_timeout_s: Annotated[Seconds, Meta(description="for loading one plugin; one that takes longer cannot be used")] = 60.0
    paths_written: Written = Written()
    entry_points_written: Written = Written()


class PermissionsConfig(Struct, frozen=True):
    """What may run without asking, where the session says nothing else."""

    mode: Annotated[
        Mode,
        Meta(description="what happens with calls that change something: a person is asked, they run, they do not run"),
    ] = "ask"
    approval_timeout_s: Annotated[
        Seconds, Meta(description="how long a question waits for its answer; then the call is denied")
    ] = 600.0


class PrefixConfig(Struct, frozen=True):
    """What requests begin with, before the history."""

    instructions: Annotated[bool, Meta(description="whether with the project's own instructions")] = True
    skills: Annotated[bool, Meta(description="whether with a list of skills, which a tool reads")] = True
    baseline: Annotated[bool, Meta(description="whether with an outline of the workspace")] = True
    editor: Annotated[bool, Meta(description="whether with what the editor has open")] = True
    skills_folder: Annotated[
        AbsolutePath | None,
        Meta(description="folder of your own skills; default: `skills` beside the platform's configuration file"),
    ] = None


class ChecksConfig(Struct, frozen=True):
    """Requests that are rebuilt from the log, and compared, before they leave."""

    live: Annotated[
        Literal["always", "sampled"],
        Meta(description="each of them, or those that something new may have broken"),
    ] = "sampled"


class LogConfig(Struct, frozen=True):
    """What refold tells on standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="the least severity that is told")] = (
        "warning"
    )


class Config(Struct, frozen=True):
    """A whole configuration. `providers` has the embedded one first, then those of the file in its order, as `models`."""

    model: Annotated[ModelName, Meta(description="the model of new sessions")]
    store: Annotated[StoreConfig, Meta(description="where sessions are kept")]
    providers: Annotated[tuple[ProviderConfig, ...], Meta(description="a server of models", extra={"names": _PROVIDERS})]
    models: Annotated[tuple[ModelConfig, ...], Meta(description="a model", extra={"names": _MODELS})] = ()
    limits: Annotated[LimitsConfig, Meta(description="bounds of one turn")] = LimitsConfig()
    tools: Annotated[ToolsConfig, Meta(description="what models are told of")] = ToolsConfig()
    permissions: Annotated[PermissionsConfig, Meta(description="what may run without asking")] = PermissionsConfig()
    prefix: Annotated[PrefixConfig, Meta(description="what requests begin with")] = PrefixConfig()
    plugins: Annotated[PluginsConfig, Meta(description="plugins that are loaded")] = PluginsConfig()
    retry: Annotated[RetryConfig, Meta(description="automatic retries")] = RetryConfig()
    timeouts: Annotated[TimeoutsConfig, Meta(description="bounds of one provider call")] = TimeoutsConfig()
    compaction: Annotated[CompactionConfig, Meta(description="when histories are summed up")] = CompactionConfig()
    checks: Annotated[ChecksConfig, Meta(description="which requests are checked before they leave")] = ChecksConfig()
    log: Annotated[LogConfig, Meta(description="what is told on standard error")] = LogConfig()

    def provider(self, name: str) -> ProviderConfig | None:
        """Give the provider of that name, or None."""
        return next((row for row in self.providers if row.name == name), None)

    def profile(self, model: str) -> ModelConfig:
        """Give what is set for `provider/model`; a row without settings when nothing is."""
        return next((row for row in self.models if row.name == model), ModelConfig(model))

    def compaction_of(self, model: str) -> CompactionConfig:
        """Give how the histories of sessions with the model `provider/model` are compacted."""
        return self.profile(model).compaction or self.compaction


class Setting(Struct, frozen=True):
    """What the annotation of a field says. `kind` is its type, which msgspec checks; where a type cannot, `read` converts, and
    `schema` is the value's JSON Schema.
    `table` is the struct of a table of settings; `names` says that the user names the members, each one a `table` or a value
    of `kind`. `expects` ends "KEY expects …" where the type does not say it; `secret` keeps the value out of every output."""

    name: str
    description: str
    kind: Any
    default: object = None
    table: type[Struct] | None = None
    names: Names | None = None
    expects: str = ""
    unit: str = ""
    read: Callable[[object], object] | None = None
    schema: Mapping[str, object] | None = None
    secret: bool = False


@cache
def settings_of(table: type[Struct]) -> Mapping[str, Setting]:
    """Give the settings of a table by name, in the order of the reference."""
    rows = (_setting(field.name, field.type, field.default) for field in fields(table))
    return {row.name: row for row in rows if row.description}


def _setting(name: str, annotation: Any, default: object) -> Setting:
    """Read the annotation of a field; where several marks say the same of it, the outermost holds."""
    kind, marks = _peeled(annotation)
    extra: dict[str, Any] = {}
    for mark in reversed(marks):
        extra.update(mark.extra or {})
    names = extra.get("names")
    item: Any = get_args(kind)[0] if names else kind
    table: type[Struct] | None = item if isinstance(item, type) and issubclass(item, Struct) else None
    if names and table is None:
        kind = get_args(item)[1]
    elif table is None and marks:
        kind = cast("Any", Annotated)[(kind, *marks)]
    description = next((mark.description for mark in marks if mark.description), "")
    return Setting(name, description, kind, None if default is NODEFAULT else default, table, **extra)


def _peeled(kind: Any) -> tuple[Any, list[Meta]]:
    """Give a type without its marks and without None, and the marks, the outermost first."""
    marks: list[Meta] = []
    while True:
        if get_origin(kind) is Annotated:
            kind, *found = get_args(kind)
            marks += reversed(found)  # typing has joined nested ones, the outermost last
        elif get_origin(kind) in (Union, UnionType):
            (kind,) = (one for one in get_args(kind) if one is not type(None))
        else:
            return kind, marks
