"""Owns the writing of a file in the workspace: how it is put in its place is `placing.py`'s, who may be written and what a
model is told is decided here.

Every step goes through descriptors of folders that were opened from the workspace down and through no link, so that what is
put in the way meanwhile is not followed. Blocking; called in threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from refold_server.tools.failure import ToolFailure
from refold_server.tools.paths import ROOT, Place, Workspace
from refold_server.tools.placing import FileChangedError, beside, may_write, put_over, sync_folder

_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def replace_file(workspace: Workspace, place: Place, before: bytes, data: bytes) -> None:
    """Write `data` in the place of `before`, which the file must still hold. Mode, owner and extended attributes stay.

    Raises ToolFailure: STALE for a file that holds something else, TOOL_FAILED for one that cannot be written.
    """
    with _said(place), _folder(workspace, place) as folder:
        try:
            put_over(folder, place.parts[-1], before, data, partial(workspace.open_file, place))
        except FileChangedError:
            raise stale(place) from None


def make_file(workspace: Workspace, place: Place, data: bytes) -> None:
    """Write a file that must not be there yet, with the folders that it lacks, under the process's umask.

    Raises ToolFailure: STALE for one that is there, TOOL_FAILED for one that cannot be made.
    """
    made: list[Place] = []
    try:
        with _said(place):
            _make_folders(workspace, Place(place.parts[:-1]), made)
            with _folder(workspace, place) as folder:
                with beside(folder, data, 0o666) as (name, descriptor):
                    os.fsync(descriptor)
                    _put_new(place, folder, name)
                sync_folder(folder)
    except BaseException:
        for each in reversed(made):
            with suppress(OSError, ToolFailure), _folder(workspace, each) as folder:  # not empty: somebody uses it
                os.rmdir(each.parts[-1], dir_fd=folder)
        raise


def is_writable(workspace: Workspace, place: Place) -> bool:
    """Tell whether this user may write to a file; a mode that says no is what somebody meant. Raises ToolFailure for one that
    is not there."""
    with _said(place), _folder(workspace, place) as folder:
        return may_write(folder, place.parts[-1])


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
                    sync_folder(above)
                descriptor = os.open(part, _FOLDER_FLAGS, dir_fd=above)
            os.close(above)
    finally:
        os.close(descriptor)


def stale(place: Place) -> ToolFailure:
    """Give the failure of a change whose file is not any more what the change was made for."""
    return ToolFailure("STALE", "FileChanged", f"{place.shown} was changed meanwhile; nothing was written; read it again")
