"""Hypothesis strategies for epoch headers that are related: each is an edit of another, as a session would make it.

Headers are canonical. Lines and names come from small sets, so that equal lines, lines that move and tools that come back
are frequent; the sets hold every character that something takes for a line break. Unrelated headers: `strategies.headers`.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st
from msgspec.structs import replace

from refold_protocol.json_text import JsonText
from refold_protocol.session.header import canonical_header
from refold_protocol.session.messages import CallConfig, EpochHeader, Message, ToolSchema, text_content

SEPARATORS = ("\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")
"""What `str.splitlines` or a text file breaks at, and the codec does not (of `\\r\\n` only the line feed counts)."""

_LINES = st.sampled_from(("", "", "a", "b", "Be brief.", "那🙂", *(f"x{mark}y" for mark in SEPARATORS), "\r", "\u2028"))
_NAMES = st.sampled_from(("read", "list", "search", "edit", "run"))
_TEXTS = st.lists(_LINES, min_size=3, max_size=7).map("\n".join)
_PREFIXES = st.lists(st.sampled_from(("House rules", "Skills", "x\u2028y\n")), max_size=2).map(
    lambda texts: tuple(Message("user", text_content(text)) for text in texts)
)
_TOOLS = st.builds(
    ToolSchema, _NAMES, st.sampled_from(("Reads.", "Reads\nlines.")), st.sampled_from((JsonText("{}"), JsonText('{"a" : 1}')))
)
_TOOL_LISTS = st.lists(_TOOLS, min_size=2, max_size=4, unique_by=lambda tool: tool.name).map(tuple)
_CONFIGS = st.builds(
    CallConfig,
    st.just("engine"),
    st.sampled_from(("chain", "random")),
    st.just("chat-completions"),
    temperature=st.sampled_from((None, 0, 0.0, -0.0, 1, 1.0, 0.5)),
    top_p=st.sampled_from((None, 1, 1.0)),
    stop=st.sampled_from((None, (), ("END",), ("END", "\u2029"))),
)


@st.composite
def related_headers(draw: st.DrawFn, count: int = 2) -> tuple[EpochHeader, ...]:
    """`count` canonical headers, each made of the one before by up to three edits (which may change nothing)."""
    first = st.builds(EpochHeader, _CONFIGS, _TEXTS | st.none(), _TOOL_LISTS | st.none(), _PREFIXES)
    headers = [canonical_header(draw(first))]
    while len(headers) < count:
        header = headers[-1]
        for edit in draw(st.lists(st.sampled_from(_EDITS), min_size=1, max_size=3)):
            header = canonical_header(edit(draw, header))
        headers.append(header)
    return tuple(headers)


Edit = Callable[[st.DrawFn, EpochHeader], EpochHeader]


def _change_line(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    lines = (header.system or "").split("\n")
    lines[draw(_place(lines))] = draw(_LINES)
    return replace(header, system="\n".join(lines))


def _insert_line(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    lines = (header.system or "").split("\n")
    lines.insert(draw(st.integers(0, len(lines))), draw(_LINES))
    return replace(header, system="\n".join(lines))


def _remove_line(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    lines = (header.system or "").split("\n")
    del lines[draw(_place(lines))]
    return replace(header, system="\n".join(lines))


def _set_system(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    return replace(header, system=draw(st.none() | _TEXTS))


def _change_tool(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    if not header.tools:
        return header
    tools = list(header.tools)
    place = draw(_place(tools))
    tools[place] = replace(draw(_TOOLS), name=tools[place].name)
    return replace(header, tools=tuple(tools))


def _remove_tool(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    if not header.tools:
        return header
    tools = list(header.tools)
    del tools[draw(_place(tools))]
    return replace(header, tools=tuple(tools))


def _add_tool(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    tools = list(header.tools or ())
    last = len(tools)
    tools.insert(draw(st.sampled_from((last, last, 0))), draw(_TOOLS))  # at times in front, at times one of that name is there
    return replace(header, tools=tuple(tools))


def _reorder_tools(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    return replace(header, tools=tuple(draw(st.permutations(header.tools or ()))))


def _set_tools(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    return replace(header, tools=draw(st.none() | _TOOL_LISTS))


def _set_prefix(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    return replace(header, message_prefix=draw(_PREFIXES))


def _set_config(draw: st.DrawFn, header: EpochHeader) -> EpochHeader:
    return replace(header, config=draw(_CONFIGS))


def _place(items: list[str] | list[ToolSchema]) -> st.SearchStrategy[int]:
    return st.integers(0, len(items) - 1)


_EDITS: tuple[Edit, ...] = (
    _change_line,
    _insert_line,
    _remove_line,
    _set_system,
    _change_tool,
    _remove_tool,
    _add_tool,
    _reorder_tools,
    _set_tools,
    _set_prefix,
    _set_config,
)
