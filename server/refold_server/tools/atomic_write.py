"""Files written whole or not at all: the old bytes are checked, and the new ones are put in their place in one step.

A new file is written beside the old one, made durable, and renamed over it, so that a process or machine that dies leaves
one of the two, and a full disk the old one. A file with other names (hard links), of an owner or group that a new one could
not have, or in a folder that takes no new files, is written in place: its other names would keep the old text, others would
lose it. There, only a death amid that one write leaves a mixture. Of two writes of one file the second sees what the first did.

Every step goes through descriptors of folders that were opened from the workspace down and through no link, so that what is
put in the way meanwhile is not followed. Temporary files are nobody's work: tools do not list or search them, and those that
a kill left are removed by a later write in the same folder. Blocking; called in threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from typing import Final, TypeAlias

from refold_server.tools.text_file import read_up_to
from refold_server.tools.tool_failure import ToolFailure
from refold_server.tools.workspace_path import ROOT, Workspace, WorkspacePath

OpenOld: TypeAlias = Callable[[], int]
"""Opens the file that is to be replaced for reading, from its start; the descriptor is closed here."""

_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_WAITED_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.002


class FileChangedError(Exception):
    """The file does not hold any more what was read."""


def write_over(folder: int, name: str, before: bytes, data: bytes, open_old: OpenOld) -> None:
    """Put `data` in the place of `before`, which the file `name` of that folder must still hold. Mode, owner and extended
    attributes stay. Raises FileChangedError, OSError, and what `open_old` raises."""
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    alone = status.st_nlink == 1 and os.access(".", os.W_OK, dir_fd=folder)
    if not (alone and _renamed_over(folder, name, status, before, data, open_old)):
        _write_in_place(folder, name, before, data, open_old)


def may_write(folder: int, name: str) -> bool:
    """Tell whether this user may write to a file; a mode that says no is what somebody meant. Raises OSError for one that is
    not there, of which that could be said as well."""
    os.stat(name, dir_fd=folder, follow_symlinks=False)
    return os.access(name, os.W_OK, dir_fd=folder)


@contextmanager
def temporary_file(folder: int, data: bytes, mode: int) -> Generator[tuple[str, int]]:
    """Write a file of a name that nobody has; it is gone afterwards, unless it was renamed. So are old ones that kills left."""
    remove_stale(folder)
    name = temporary_name()
    descriptor = os.open(name, _NEW_FLAGS, mode, dir_fd=folder)
    try:
        _write(descriptor, data)
        yield name, descriptor
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):  # it was renamed
            os.unlink(name, dir_fd=folder)


def sync_folder(folder: int) -> None:
    """Make the names of a folder durable, as far as its file system can."""
    with suppress(OSError):  # the file is in its place; some file systems cannot say more
        os.fsync(folder)


def _renamed_over(folder: int, name: str, status: os.stat_result, before: bytes, data: bytes, open_old: OpenOld) -> bool:
    """Put a new file in the place of one that holds `before`. Gives False, with nothing done, where it could not have the
    owner and the group of that one."""
    with temporary_file(folder, data, 0o600) as (new, descriptor):
        if not _give_owner(status, descriptor):
            return False
        _give_look(status, descriptor, open_old)
        os.fsync(descriptor)
        with _one_writer(folder):
            _check(before, open_old)
            os.rename(new, name, src_dir_fd=folder, dst_dir_fd=folder)
    sync_folder(folder)
    return True


@contextmanager
def _one_writer(folder: int) -> Generator[None]:
    """Within the block, no other call of any refold changes a file of that folder: what was checked is what is written over.
    Other programs do not know of it, and one that holds the lock for longer is not waited for."""
    waited = 0.0
    while waited < _MOST_WAITED_S:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(_LOOK_AGAIN_S)
            waited += _LOOK_AGAIN_S
        except OSError:  # a file system without locks of folders
            break
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _check(before: bytes, open_old: OpenOld) -> None:
    descriptor = open_old()
    try:
        if read_up_to(descriptor, len(before) + 1) != before:
            raise FileChangedError
    finally:
        os.close(descriptor)


def _give_owner(status: os.stat_result, descriptor: int) -> bool:
    """Give a new file the owner and the group of the old one; tell whether it has both."""
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (status.st_uid, status.st_gid):
        try:
            os.fchown(descriptor, status.st_uid, status.st_gid)
        except OSError:  # only root may give files away, others to groups of their own, and nobody to a user unknown here
            return False
    return True


def _give_look(status: os.stat_result, descriptor: int, open_old: OpenOld) -> None:
    """Give a new file the mode and the attributes of the old one, as far as this user may."""
    os.fchmod(descriptor, status.st_mode & 0o7777)  # after the owner, whose change takes special bits away
    if not hasattr(os, "listxattr"):  # macOS
        return
    old = open_old()
    try:
        for name in os.listxattr(old):
            with suppress(OSError):  # one that the system keeps for itself
                os.setxattr(descriptor, name, os.getxattr(old, name))
    except OSError:  # a file system without attributes
        return
    finally:
        os.close(old)


def _write_in_place(folder: int, name: str, before: bytes, data: bytes, open_old: OpenOld) -> None:
    _check(before, open_old)
    descriptor = os.open(name, _OLD_FLAGS, dir_fd=folder)
    try:
        with _one_writer(folder):
            if read_up_to(descriptor, len(before) + 1) != before:
                raise FileChangedError
            _overwrite(descriptor, before, data)
    finally:
        os.close(descriptor)


def _overwrite(descriptor: int, before: bytes, data: bytes) -> None:
    try:
        if len(data) > len(before) and hasattr(os, "posix_fallocate"):  # macOS has none
            os.posix_fallocate(descriptor, 0, len(data))  # a full disk is found before anything is overwritten
        _put(descriptor, data)
        os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # the file may be longer by now, or half the new one
            _put(descriptor, before)
        raise


def _put(descriptor: int, data: bytes) -> None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    _write(descriptor, data)
    os.ftruncate(descriptor, len(data))


STALE_S: Final = 3600
"""So old is none that somebody still writes."""

MAX_LOOKED_AT: Final = 10_000
"""Entries of a folder that are looked at before one write."""

_NAME: Final = re.compile(r"\.refold-[0-9a-f]{16}\.tmp")


def temporary_name() -> str:
    """Give a name that nobody has."""
    return f".refold-{os.urandom(8).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Tell whether a file's name, without its folder, is one of these."""
    return _NAME.fullmatch(name) is not None


def remove_stale(folder: int) -> None:
    """Take away what kills left in the folder with that descriptor, if it is older than an hour. Raises nothing: what cannot
    be taken away stays. O(entries), up to a bound."""
    before = time.time() - STALE_S
    with suppress(OSError), os.scandir(folder) as listing:  # a folder that may be written to and not listed
        for entry in islice(listing, MAX_LOOKED_AT):
            if not is_temporary(entry.name) or not entry.is_file(follow_symlinks=False):
                continue
            with suppress(OSError):  # gone by now, or another user's
                if entry.stat(follow_symlinks=False).st_mtime < before:
                    os.unlink(entry.name, dir_fd=folder)


_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace_file(workspace: Workspace, place: WorkspacePath, before: bytes, data: bytes) -> None:
    """Write `data` in the place of `before`, which the file must still hold. Mode, owner and extended attributes stay.

    Raises ToolFailure: STALE for a file that holds something else, TOOL_FAILED for one that cannot be written.
    """
    with _said(place), _folder(workspace, place) as folder:
        try:
            write_over(folder, place.parts[-1], before, data, partial(workspace.open_file, place))
        except FileChangedError:
            raise stale(place) from None


def make_file(workspace: Workspace, place: WorkspacePath, data: bytes) -> None:
    """Write a file that must not be there yet, with the folders that it lacks, under the process's umask.

    Raises ToolFailure: STALE for one that is there, TOOL_FAILED for one that cannot be made.
    """
    made: list[WorkspacePath] = []
    try:
        with _said(place):
            _make_folders(workspace, WorkspacePath(place.parts[:-1]), made)
            with _folder(workspace, place) as folder:
                with temporary_file(folder, data, 0o666) as (name, descriptor):
                    os.fsync(descriptor)
                    _put_new(place, folder, name)
                sync_folder(folder)
    except BaseException:
        for each in reversed(made):
            with suppress(OSError, ToolFailure), _folder(workspace, each) as folder:  # not empty: somebody uses it
                os.rmdir(each.parts[-1], dir_fd=folder)
        raise


def is_writable(workspace: Workspace, place: WorkspacePath) -> bool:
    """Tell whether this user may write to a file; a mode that says no is what somebody meant. Raises ToolFailure for one that
    is not there."""
    with _said(place), _folder(workspace, place) as folder:
        return may_write(folder, place.parts[-1])


@contextmanager
def _folder(workspace: Workspace, place: WorkspacePath) -> Generator[int]:
    descriptor = workspace.open_folder(WorkspacePath(place.parts[:-1]))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _said(place: WorkspacePath) -> Generator[None]:
    """Turn what the operating system says into a failure for the model."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            reason = f"the disk is full ({os.strerror(error.errno or 0)}): {place.shown} was not changed"
            raise ToolFailure("TOOL_FAILED", "DiskFull", reason) from None
        reason = f"{place.shown} could not be written: {os.strerror(error.errno or errno.EIO)}"
        raise ToolFailure("TOOL_FAILED", "NotWritten", reason) from None


def _put_new(place: WorkspacePath, folder: int, name: str) -> None:
    try:
        os.link(name, place.parts[-1], src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise stale(place) from None
    except OSError as error:  # a file system without hard links: the look before the leap is all that there is
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        with suppress(FileNotFoundError):
            os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)
            raise stale(place) from None
        os.rename(name, place.parts[-1], src_dir_fd=folder, dst_dir_fd=folder)


def _make_folders(workspace: Workspace, place: WorkspacePath, made: list[WorkspacePath]) -> None:
    descriptor = workspace.open_folder(ROOT)
    try:
        for number, part in enumerate(place.parts, 1):
            above = descriptor
            try:
                descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            except FileNotFoundError:
                with suppress(FileExistsError):  # somebody was faster
                    os.mkdir(part, dir_fd=above)
                    made.append(WorkspacePath(place.parts[:number]))
                    sync_folder(above)
                descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            os.close(above)
    finally:
        os.close(descriptor)


def stale(place: WorkspacePath) -> ToolFailure:
    """Give the failure of a change whose file is not any more what the change was made for."""
    return ToolFailure("STALE", "FileChanged", f"{place.shown} was changed meanwhile; nothing was written; read it again")
