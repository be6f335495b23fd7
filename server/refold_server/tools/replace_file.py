"""Owns the writing of a file in the workspace: what stood there is checked, and the new text is there whole or not at all.

A new file is written beside the old one, made durable, and renamed over it, so that a process or machine that dies leaves
one of the two, and a full disk the old one. A file with other names (hard links), of an owner or group that a new one could
not have, or in a folder that takes no new files, is written in place: its other names would keep the old text, others would
lose it. There, only a death amid that one write leaves a mixture. Of two writes of one file the second sees what the first did.

Every step goes through descriptors of folders that were opened from the workspace down and through no link, so that what is
put in the way meanwhile is not followed. Blocking; called in threads.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Final

from refold_server.tools.failure import ToolFailure
from refold_server.tools.paths import ROOT, Place, Workspace
from refold_server.tools.text_file import read_up_to
from refold_server.tools.unfinished import remove_stale, unfinished_name

_NEW_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FLAGS: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MOST_WAITED_S: Final = 2.0
_LOOK_AGAIN_S: Final = 0.002
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace_file(workspace: Workspace, place: Place, before: bytes, data: bytes) -> None:
    """Write `data` in the place of `before`, which the file must still hold. Mode, owner and extended attributes stay.

    Raises ToolFailure: STALE for a file that holds something else, TOOL_FAILED for one that cannot be written.
    """
    with _said(place), _folder(workspace, place) as folder:
        status = os.stat(place.parts[-1], dir_fd=folder, follow_symlinks=False)
        alone = status.st_nlink == 1 and os.access(".", os.W_OK, dir_fd=folder)
        if not (alone and _renamed_over(workspace, place, folder, status, before, data)):
            _write_in_place(workspace, place, folder, before, data)


def make_file(workspace: Workspace, place: Place, data: bytes) -> None:
    """Write a file that must not be there yet, with the folders that it lacks, under the process's umask.

    Raises ToolFailure: STALE for one that is there, TOOL_FAILED for one that cannot be made.
    """
    made: list[Place] = []
    try:
        with _said(place):
            _make_folders(workspace, Place(place.parts[:-1]), made)
            with _folder(workspace, place) as folder:
                with _beside(folder, data, 0o666) as (name, descriptor):
                    os.fsync(descriptor)
                    _put_new(place, folder, name)
                _sync_folder(folder)
    except BaseException:
        for each in reversed(made):
            with suppress(OSError, ToolFailure), _folder(workspace, each) as folder:  # not empty: somebody uses it
                os.rmdir(each.parts[-1], dir_fd=folder)
        raise


def is_writable(workspace: Workspace, place: Place) -> bool:
    """Tell whether this user may write to a file that is there; a mode that says no is what somebody meant."""
    with _said(place), _folder(workspace, place) as folder:
        return os.access(place.parts[-1], os.W_OK, dir_fd=folder)


def _renamed_over(workspace: Workspace, place: Place, folder: int, status: os.stat_result, before: bytes, data: bytes) -> bool:
    """Put a new file in the place of one that holds `before`. Gives False, with nothing done, where it could not have the
    owner and the group of that one."""
    with _beside(folder, data, 0o600) as (name, descriptor):
        if not _give_owner(status, descriptor):
            return False
        _give_look(workspace, place, status, descriptor)
        os.fsync(descriptor)
        with _one_writer(folder):
            _check(workspace, place, before)
            os.rename(name, place.parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
    _sync_folder(folder)
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


@contextmanager
def _folder(workspace: Workspace, place: Place) -> Generator[int]:
    descriptor = workspace.open_folder(Place(place.parts[:-1]))
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _said(place: Place) -> Generator[None]:
    """Turn what the operating system says into a failure for the model."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            reason = f"the disk is full ({os.strerror(error.errno or 0)}): {place.shown} was not changed"
            raise ToolFailure("TOOL_FAILED", "DiskFull", reason) from None
        reason = f"{place.shown} could not be written: {os.strerror(error.errno or errno.EIO)}"
        raise ToolFailure("TOOL_FAILED", "NotWritten", reason) from None


@contextmanager
def _beside(folder: int, data: bytes, mode: int) -> Generator[tuple[str, int]]:
    """Write a file of a name that nobody has; it is gone afterwards, unless it was renamed. So are old ones that kills left."""
    remove_stale(folder)
    name = unfinished_name()
    descriptor = os.open(name, _NEW_FLAGS, mode, dir_fd=folder)
    try:
        _write(descriptor, data)
        yield name, descriptor
    finally:
        os.close(descriptor)
        with suppress(FileNotFoundError):  # it was renamed
            os.unlink(name, dir_fd=folder)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _check(workspace: Workspace, place: Place, before: bytes) -> None:
    descriptor = workspace.open_file(place)
    try:
        if read_up_to(descriptor, len(before) + 1) != before:
            raise stale(place)
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


def _give_look(workspace: Workspace, place: Place, status: os.stat_result, descriptor: int) -> None:
    """Give a new file the mode and the attributes of the old one, as far as this user may."""
    os.fchmod(descriptor, status.st_mode & 0o7777)  # behind the owner, whose change takes special bits away
    if not hasattr(os, "listxattr"):  # macOS
        return
    old = workspace.open_file(place)
    try:
        for name in os.listxattr(old):
            with suppress(OSError):  # one that the system keeps for itself
                os.setxattr(descriptor, name, os.getxattr(old, name))
    except OSError:  # a file system without attributes
        return
    finally:
        os.close(old)


def _write_in_place(workspace: Workspace, place: Place, folder: int, before: bytes, data: bytes) -> None:
    _check(workspace, place, before)
    descriptor = os.open(place.parts[-1], _OLD_FLAGS, dir_fd=folder)
    try:
        with _one_writer(folder):
            if read_up_to(descriptor, len(before) + 1) != before:
                raise stale(place)
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


def _put_new(place: Place, folder: int, name: str) -> None:
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


def _make_folders(workspace: Workspace, place: Place, made: list[Place]) -> None:
    descriptor = workspace.open_folder(ROOT)
    try:
        for number, part in enumerate(place.parts, 1):
            above = descriptor
            try:
                descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            except FileNotFoundError:
                with suppress(FileExistsError):  # somebody was faster
                    os.mkdir(part, dir_fd=above)
                    made.append(Place(place.parts[:number]))
                    _sync_folder(above)
                descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            os.close(above)
    finally:
        os.close(descriptor)


def _sync_folder(folder: int) -> None:
    with suppress(OSError):  # the file is in its place; some file systems cannot say more
        os.fsync(folder)


def stale(place: Place) -> ToolFailure:
    """Give the failure of a change whose file is not any more what the change was made for."""
    return ToolFailure("STALE", "FileChanged", f"{place.shown} was changed meanwhile; nothing was written; read it again")
