"""Confinement: which paths a tool may touch, and opening them so that no later change of the tree gets around it.

A path is allowed when, after every symbolic link in it was followed, it lies in the workspace: its parts begin with the
parts of the workspace's own resolved path. Text is never compared: `../ws-evil` begins like `ws`, and `l/s.txt` looks
harmless while `l` points outside. Of a path that does not exist, what exists is resolved and the rest appended.

Opening goes from the workspace's folder down, one part at a time and following no link: the resolved path had none, so a
link that stands there now was put in after the check, and the open fails. Never creates, writes or deletes anything.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from refold_server.tools.tool_failure import ToolFailure, invalid_arguments

_UNSHOWABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""O_NONBLOCK: opening a named pipe would wait for its other end for ever; regular files do not care."""


class WorkspacePath(Struct, frozen=True):
    """A path in the workspace, as its parts below the root, without links; no parts: the root itself."""

    parts: tuple[str, ...]

    @property
    def text(self) -> str:
        """The parts joined by `/`, as the file system names them; `.` for the root."""
        return "/".join(self.parts) or "."

    @property
    def shown(self) -> str:
        """`text` with U+FFFD for control characters and for bytes that are not UTF-8: fit for a line of output."""
        return shown(self.text)

    def child(self, name: str) -> WorkspacePath:
        """Give the place of the entry `name` of this folder."""
        return WorkspacePath((*self.parts, name))


ROOT: Final = WorkspacePath(())
"""The workspace's own folder."""


class Workspace:
    """The folder that a session's tools work in. It may be reached through a symbolic link; it may disappear."""

    def __init__(self, root: Path) -> None:
        if not root.is_absolute():
            raise ValueError(f"a workspace needs an absolute path: {root}")
        self.root = root
        """As given; resolved anew at each use, because a folder can be moved while a session lives."""

    def locate(self, path: str) -> WorkspacePath:
        """Resolve `path`, relative to the workspace or absolute, existing or not. Reads links, never file content.

        Raises ToolFailure: INVALID_ARGUMENTS for a path that no file system takes, DENIED for one that leads out of the
        workspace, TOOL_FAILED when the workspace is gone.
        """
        if "\0" in path:
            raise invalid_arguments(f"the path {shown(path)!r} holds a NUL character")
        try:
            path.encode("utf-8", "surrogateescape")  # what a file system's own listing gives can be given back
        except UnicodeEncodeError:
            raise invalid_arguments(f"the path {shown(path)!r} is not valid Unicode") from None
        root = self._resolved_root()
        resolved = Path(os.path.realpath(root / path)).parts
        if resolved[: len(root.parts)] != root.parts:
            raise ToolFailure("DENIED", "OutsideWorkspace", f"{shown(path)} leads out of the workspace")
        return WorkspacePath(resolved[len(root.parts) :])

    def open_file(self, place: WorkspacePath) -> int:
        """Open a regular file for reading and give its descriptor, which the caller closes. Raises ToolFailure."""
        if not place.parts:
            raise _failed(place, errno.EISDIR)
        folder = self.open_folder(WorkspacePath(place.parts[:-1]))
        try:
            descriptor = os.open(place.parts[-1], _FILE_FLAGS, dir_fd=folder)
        except OSError as error:
            raise _failed(place, error.errno) from None
        finally:
            os.close(folder)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISREG(mode):
            return descriptor
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise _failed(place, errno.EISDIR)
        raise ToolFailure("TOOL_FAILED", "NotAFile", f"{place.shown} is a device, a pipe or a socket, not a file")

    def open_folder(self, place: WorkspacePath) -> int:
        """Open a folder for listing and give its descriptor, which the caller closes. Raises ToolFailure."""
        descriptor = None
        for part in (str(self._resolved_root()), *place.parts):
            above = descriptor
            try:
                descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            except OSError as error:
                raise _failed(place, error.errno) from None
            finally:
                if above is not None:
                    os.close(above)
        assert descriptor is not None
        return descriptor

    def is_folder(self, place: WorkspacePath) -> bool:
        """Tell whether a folder is there. Raises ToolFailure when nothing is, or when it cannot be looked at."""
        if not place.parts:
            return True
        folder = self.open_folder(WorkspacePath(place.parts[:-1]))
        try:
            return stat.S_ISDIR(os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError as error:
            raise _failed(place, error.errno) from None
        finally:
            os.close(folder)

    def _resolved_root(self) -> Path:
        try:
            root = self.root.resolve(strict=True)
        except (OSError, RuntimeError):  # RuntimeError: a loop of links
            root = None
        if root is None or not root.is_dir():
            message = (
                f"the workspace {shown(str(self.root))} is not there any more; if it was moved or renamed, the user can go on "
                "with this session in its new place (refold run --session ID there)"
            )
            raise ToolFailure("TOOL_FAILED", "WorkspaceMissing", message)
        return root


def shown(text: str) -> str:
    """Give `text` with U+FFFD for what would break a line of output or cannot be encoded. UTF-8 that the process's locale
    could not read is read here, so that a name looks the same whatever the locale is."""
    if not text.isascii():
        with suppress(UnicodeEncodeError):  # a surrogate that stands for no byte
            text = text.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    return _UNSHOWABLE.sub("\ufffd", text)


def _failed(place: WorkspacePath, code: int | None) -> ToolFailure:
    """Say what the operating system said, without any path of the machine's."""
    name, text = _WORDS.get(code or 0, ("FileError", f"could not be opened: {os.strerror(code or errno.EIO)}"))
    return ToolFailure("TOOL_FAILED", name, f"{place.shown} {text}")


_WORDS: Final = {
    errno.ENOENT: ("FileNotFound", "does not exist"),
    errno.EISDIR: ("IsAFolder", "is a folder, not a file"),
    errno.ENOTDIR: ("NotAFolder", "is not a folder, or leads through something that is not one"),
    errno.ELOOP: ("NotAFile", "is a symbolic link that leads nowhere or changed just now"),
    errno.EACCES: ("NoPermission", "may not be read by this user"),
    errno.EPERM: ("NoPermission", "may not be read by this user"),
    errno.ENAMETOOLONG: ("FileNotFound", "is longer than a file's name can be"),
    errno.ENXIO: ("NotAFile", "is a socket, not a file"),
}
