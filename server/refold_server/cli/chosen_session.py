"""The session in which a command runs a turn: a new one, or one that exists, with the settings and folder of its options.

What an option sets becomes the session's own, as `session/configure`, `session/rename` and `session/rehome` would make it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from msgspec import Struct

from refold_protocol.errors import ConfigError
from refold_protocol.ids import SessionId
from refold_protocol.session.events import PermissionSettings, SessionSettings
from refold_protocol.session.messages import Source
from refold_server.call_config import DEFAULT_MODEL
from refold_server.cli.command_context import CommandContext, named_folder, standing_folder
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import standard_error
from refold_server.config import Config
from refold_server.config_file import config_path
from refold_server.sessions.session import Session, SettingsPatch
from refold_server.sessions.session_registry import same_folder

_AT_ONCE = 100
"""Sessions that are looked at together."""

FROM_CLI = Source("cli")
"""Who names a session here."""


class SessionWishes(Struct, frozen=True):
    """What options say of a session: which one (None: a new one), and what to set; None leaves a setting as it is."""

    session: str | None = None
    cwd: str | None = None
    title: str | None = None
    model: str | None = None
    effort: str | None = None
    permissions: str | None = None


def wishes_of(options: argparse.Namespace) -> SessionWishes:
    """Give what the options of `add_session_settings` and --session say."""
    return SessionWishes(options.session, options.cwd, options.title, options.model, options.effort, options.permissions)


async def open_session(context: CommandContext, wishes: SessionWishes) -> Session:
    """Open the session for writing, or begin one in the wished or the current folder, whose model is the configuration's. One
    whose folder was moved or renamed goes on in the current folder, which is told. Raises ConfigError for a folder that is not
    there, what `check_settings` raises, SessionError and LogError."""
    permissions = None if wishes.permissions is None else PermissionSettings(wishes.permissions)
    if wishes.session is None:
        settings = SessionSettings(context.config.model, wishes.effort, permissions)
        return await context.sessions.create(named_folder(wishes.cwd), settings, title=wishes.title, by=FROM_CLI)
    session = context.session(wishes.session)
    await _rehome(context, session, wishes.cwd)
    live = await context.sessions.open(session)
    settings = live.session_log.folds.settings
    patch = SettingsPatch(
        model=None if wishes.model == settings.model else wishes.model,
        effort=None if wishes.effort == settings.effort else wishes.effort,
        permissions=None if permissions == settings.permissions else permissions,
    )
    if patch.model is None:
        live.instance.host.call_config(settings)  # a model that is not there is told before the turn
    if patch != SettingsPatch():
        await live.configure(patch)
    if wishes.title is not None:
        await live.rename(wishes.title, FROM_CLI)
    return live


def stand_in(options: argparse.Namespace, config: Config) -> str | None:
    """Say that the offline stand-in answers, and how to set a model; None where there is a configuration."""
    file, _ = config_path(None if options.config is None else Path(options.config), os.environ)
    if config.model != DEFAULT_MODEL or options.model is not None or file.is_file():
        return None
    return (
        f"(no model is configured, so {DEFAULT_MODEL} answers, an offline stand-in that shows how refold works; for a real one "
        f'write `model = "ollama/NAME"` and `[providers.ollama]` with `preset = "ollama"` into {printable(str(file))}, or the '
        "same for another server: README has recipes)"
    )


def latest_in(context: CommandContext, folder: str) -> SessionId:
    """Give the session of a folder that was active last. Raises ConfigError where there is none."""
    rows = context.store.recent(limit=_AT_ONCE)
    while rows:
        found = next((record.id for _, record in rows if same_folder(record.cwd, folder)), None)
        if found is not None:
            return found
        rows = context.store.recent(limit=_AT_ONCE, before=rows[-1][0])
    raise ConfigError("--continue", f"there is no session in {folder} yet; run a prompt without it")


async def _rehome(context: CommandContext, session: SessionId, cwd: str | None) -> None:
    recorded = context.store.get(session).cwd
    folder = standing_folder(recorded, cwd)
    if folder is None:
        return
    await context.sessions.rehome(session, folder)
    was = f"it was {printable(recorded)}" if cwd is not None else f"there is no {printable(recorded)} now"
    standard_error().line(f"refold: note: session {session} goes on in {printable(folder)}; {was}")
