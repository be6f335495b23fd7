"""Network file systems are recognised by the mount that holds a path, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from refold_protocol.errors import ConfigError
from refold_storage.disk import filesystem_type, parse_mounts, refuse_remote

MOUNTS = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
40 27 0:50 / /home rw,relatime shared:1 - nfs4 server:/home rw,vers=4.2
41 40 0:51 / /home/me/scratch rw - tmpfs tmpfs rw
42 27 0:52 / /mnt/a\040b\134c rw,relatime master:1 propagate_from:2 - cifs //server/share rw
43 27 0:53 / /over rw - nfs server:/x rw
44 43 0:54 / /over rw - xfs /dev/vdb rw
not a mount at all
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/var/lib/refold", "ext4"),
        ("/home", "nfs4"),
        ("/home/me/store", "nfs4"),
        ("/homeless", "ext4"),
        ("/home/me/scratch/store", "tmpfs"),
        ("/mnt/a b\\c/store", "cifs"),
        ("/over/store", "xfs"),
    ],
)
def test_the_innermost_and_last_mount_that_holds_a_path_counts(path: str, kind: str) -> None:
    assert parse_mounts(MOUNTS, path) == kind


def test_without_a_list_of_mounts_there_is_no_answer() -> None:
    assert parse_mounts("", "/home") is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph"])
def test_c_07_a_remote_file_system_is_refused_in_one_sentence(kind: str) -> None:
    """C-07: remote storage is refused in one clear sentence."""
    with pytest.raises(ConfigError) as caught:
        refuse_remote(Path("/home/me/store"), lambda path: kind)
    assert caught.value.key == "store.path"
    assert kind in caught.value.message
    assert "/home/me/store" in caught.value.message


@pytest.mark.parametrize("kind", ["ext4", "tmpfs", "overlay", "apfs", None])
def test_a_local_or_unknown_file_system_is_not(kind: str | None) -> None:
    refuse_remote(Path("/home/me/store"), lambda path: kind)


def test_the_temporary_folder_of_this_test_is_on_some_file_system(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    assert filesystem_type(tmp_path / "link") == "proc"
    assert filesystem_type(tmp_path) != "proc"
