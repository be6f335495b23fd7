"""The session in which a command runs a turn: a new one, or one that exists, with the settings and folder of its options.

What an option sets becomes the session's own, as `session/configure`, `session/rename` and `session/rehome` would make it.
"""

from __future__ import annotations

import argparse

from msgspec import Struct

from refold_protocol.ids import SessionId
from refold_protocol.session.events import PermissionSettings, SessionSettings
from refold_protocol.session.messages import Source
from refold_server.cli.command_context import CommandContext, named_folder, standing_folder
from refold_server.cli.formatting import printable
from refold_server.cli.terminal import standard_error
from refold_server.sessions.session import Session, SettingsPatch

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
    session = SessionId(wishes.session)
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


async def _rehome(context: CommandContext, session: SessionId, cwd: str | None) -> None:
    recorded = context.store.get(session).cwd
    folder = standing_folder(recorded, cwd)
    if folder is None:
        return
    await context.sessions.rehome(session, folder)
    was = f"it was {printable(recorded)}" if cwd is not None else f"there is no {printable(recorded)} now"
    standard_error().line(f"refold: note: session {session} goes on in {printable(folder)}; {was}")
