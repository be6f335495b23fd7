"""The built-in system text and contributors to the session prefix, and their order: before those of all plugins.

The wire shows contributors in the order of their registration, because each puts its message before those of the rest. What
holds longest comes first, so that a change breaks as little of what the provider has cached as it can. The system text holds
no clock, path, version or anything else that could differ between two requests.

`editor` names the files of the workspace that the person has open when a session is opened, and their languages: the text is
what tools read, and it changes while the session runs. `skills` names what `read_skill` can read and what each is for; what is
wrong with a skill is told here too, since nobody else would tell the person why it is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import anyio.to_thread
from msgspec import Struct

from refold_protocol.session.messages import Message, text_content
from refold_protocol.session.projection import enclosed_text
from refold_server.config import PrefixConfig
from refold_server.plugins.hook_table import SESSION_PREFIX, NextPrefix, PrefixHandler, PrefixRequest
from refold_server.plugins.plugin_registry import PluginRegistry, Plugins, registered
from refold_server.prefix.project_instructions import instructions
from refold_server.prefix.workspace_outline import baseline
from refold_server.tools.open_buffers import NO_BUFFERS, OpenBuffer
from refold_server.tools.skill_index import Catalogue, SkillFolders, find_skills
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import Workspace, shown

SYSTEM_TEXT: Final = """\
You are a careful assistant that works on the files of one workspace.
Use the tools to look before you answer; paths are relative to the workspace.
When you quote a file, name its path and line. Say so plainly when you do not know."""
Write: TypeAlias = Callable[[str], Awaitable[str | None]]
"""Gives what a contributor says of the session's folder, an absolute path; None for nothing."""


def contributor(name: str, write: Write) -> PrefixHandler:
    """Give the handler of `agent/session-prefix` that says what `write` gives, in the envelope of context, as a user."""

    async def contribute(composing: PrefixRequest, following: NextPrefix) -> Sequence[Message]:
        text = await write(composing.place.cwd)
        rest = await following()
        if text is None:
            return rest
        enclosed = f'<context source="refold:{name}">\n{enclosed_text("context", text)}\n</context>'
        return [Message("user", text_content(enclosed)), *rest]

    contribute.__name__ = name
    return contribute


MAX_FILES: Final = 50
"""Files that are named."""

MAX_LANGUAGE: Final = 40
"""Characters that the name of a language may have; a longer one is no name."""

_EDITOR_HEAD: Final = "Open in the person's editor when this session was opened:"


class OpenFiles(Protocol):
    """The part of what an editor has open that is looked at here."""

    async def snapshot(self) -> tuple[OpenBuffer, ...]:
        """Give all of it as of now."""
        ...


async def editor(cwd: str, buffers: OpenFiles) -> str | None:
    """Give the files that are open, None when none is."""
    opened = await buffers.snapshot()
    if not opened:
        return None
    return await anyio.to_thread.run_sync(_written, Path(cwd), opened, abandon_on_cancel=True)


def _written(cwd: Path, opened: tuple[OpenBuffer, ...]) -> str | None:
    workspace = Workspace(cwd)
    languages: dict[str, str] = {}
    for buffer in sorted(opened, key=lambda buffer: (buffer.path, buffer.language)):
        try:
            place = workspace.locate(buffer.path)
        except ToolFailure:  # not of this workspace
            continue
        if place.parts:
            languages.setdefault(place.shown, buffer.language)
    files = sorted(languages)
    if not files:
        return None
    lines = [f"- {file}{_language(languages[file])}" for file in files[:MAX_FILES]]
    if len(files) > MAX_FILES:
        lines.append(f"… and {len(files) - MAX_FILES:,} more")
    return "\n".join([_EDITOR_HEAD, *lines])


def _language(name: str) -> str:
    return f" ({shown(name)})" if name.strip() and len(name) <= MAX_LANGUAGE else ""


MAX_SKILLS: Final = 100
"""Skills that are listed."""

MAX_CHARACTERS: Final = 16_000
"""Characters of names and descriptions that the list has; the skills after that are counted."""

MAX_TROUBLES: Final = 10
"""Skills that cannot be used of which is told why."""

_SKILLS_HEAD: Final = """\
Skills: instructions for kinds of tasks. When one fits what you are asked to do, read it with read_skill first."""


async def skills(cwd: str, folders: SkillFolders) -> str | None:
    """Give the list of the skills of the session in `cwd`, None when there are none."""
    return catalogue_text(await anyio.to_thread.run_sync(find_skills, Path(cwd), folders, abandon_on_cancel=True))


def catalogue_text(catalogue: Catalogue) -> str | None:
    """Write a catalogue; None for an empty one."""
    if not catalogue.skills and not catalogue.troubles:
        return None
    lines = [_SKILLS_HEAD, ""] if catalogue.skills else []
    room = MAX_CHARACTERS
    listed = 0
    for skill in catalogue.skills[:MAX_SKILLS]:
        line = f"- {skill.name}: {skill.description}"
        room -= len(line)
        if room < 0:
            break
        lines.append(line)
        listed += 1
    if left := [skill.name for skill in catalogue.skills[listed:]]:
        lines.append(f"[{len(left)} more are not listed here; they can be read by their names]")
    lines.extend(f"[not a skill that can be read: {trouble}]" for trouble in catalogue.troubles[:MAX_TROUBLES])
    if (more := len(catalogue.troubles) - MAX_TROUBLES) > 0:
        lines.append(f"[and {more} more like these]")
    return "\n".join(lines)


PLUGIN: Final = "refold"
"""The plugin whose contributors these are."""


class PrefixSources(Struct, frozen=True):
    """What contributors look at besides a session's folder. `skills` is asked when the first session is composed."""

    skills: Callable[[], SkillFolders] = SkillFolders
    buffers: OpenFiles = NO_BUFFERS


def built_in(config: PrefixConfig, sources: PrefixSources) -> Plugins:
    """Give the built-in contributors that are switched on."""
    rows: tuple[tuple[bool, str, Write], ...] = (
        (config.instructions, "instructions", lambda cwd: instructions(cwd, sources.skills().home)),
        (config.skills, "skills", lambda cwd: skills(cwd, sources.skills())),
        (config.baseline, "baseline", lambda cwd: baseline(cwd, sources.skills().home)),
        (config.editor, "editor", lambda cwd: editor(cwd, sources.buffers)),
    )

    def register(registry: PluginRegistry) -> None:
        for wanted, name, write in rows:
            if wanted:
                registry.on(SESSION_PREFIX, contributor(name, write))

    return registered(PLUGIN, register)
