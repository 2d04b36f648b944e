"""Access control lists, held against what the kernel lets a process of that user do."""

from __future__ import annotations

import itertools
import os
import pwd
import struct
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirage.backends.file_check import AccessList, Viewer, check_files, read_access_list
from mirage.domain.files import FileState, Presence

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTRIBUTE = "system.posix_acl_access"
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 0x01, 0x02, 0x04, 0x08, 0x10, 0x20
NONE, SEARCH = 0, 1
NOT_NAMED = 0xFFFF_FFFF
OWNER, OWN_GROUP = 4_001, 5_001
STRANGER, OTHER_GROUP = 4_002, 5_002
AS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="becomes other users")
pytestmark = AS_ROOT


def packed(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mirage-acl-") as name:
        Path(name).chmod(0o755)
        directory = Path(name) / "home"
        directory.mkdir(0o700)
        (directory / "secret").touch()
        os.chown(directory, OWNER, OWN_GROUP)
        try:
            os.setxattr(
                directory,
                ATTRIBUTE,
                packed((USER_OBJ, 7, NOT_NAMED), (GROUP_OBJ, 0, NOT_NAMED), (OTHER, 0, NOT_NAMED)),
            )
        except OSError as error:
            pytest.skip(f"{name}: no access control lists: {error.strerror}")
        yield directory


def kernel_lets_search(directory: Path) -> list[bool]:
    """Whether it lets each of the ``VIEWERS``: asked by one child, which goes back to root in between."""
    child = os.fork()
    if child == 0:
        status = 0
        try:
            for place, (uid, groups) in enumerate(VIEWERS):
                os.setgroups(groups)
                os.setresgid(groups[0], groups[0], 0)
                os.setresuid(uid, uid, 0)
                status |= os.access(directory, os.X_OK) << place
                os.setresuid(0, 0, 0)
        except OSError:
            status = 1 << len(VIEWERS)
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert 0 <= status < 1 << len(VIEWERS)
    return [bool(status >> place & 1) for place in range(len(VIEWERS))]


def we_let_search(directory: Path, uid: int, groups: tuple[int, ...]) -> bool:
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        return Viewer("user", uid, frozenset(groups)).may_search(descriptor, os.fstat(descriptor))
    finally:
        os.close(descriptor)


VIEWERS = (
    (OWNER, (OWN_GROUP,)),
    (STRANGER, (OWN_GROUP,)),
    (STRANGER, (OTHER_GROUP,)),
    (4_003, (5_003, OTHER_GROUP)),
    (4_003, (5_003,)),
)


def test_acl_every_list_lets_in_whom_the_kernel_lets_in(home: Path) -> None:
    grants = itertools.product((NONE, SEARCH), repeat=6)
    for owner, named, group, named_group, mask, other in grants:
        entries = (
            *((USER_OBJ, 6 | owner, NOT_NAMED), (USER, named, STRANGER), (GROUP_OBJ, group, NOT_NAMED)),
            *((GROUP, named_group, OTHER_GROUP), (MASK, mask, NOT_NAMED), (OTHER, other, NOT_NAMED)),
        )
        os.setxattr(home, ATTRIBUTE, packed(*entries))
        assert [we_let_search(home, *viewer) for viewer in VIEWERS] == kernel_lets_search(home), entries


def test_acl_every_mode_lets_in_whom_the_kernel_lets_in(home: Path) -> None:
    os.removexattr(home, ATTRIBUTE)
    for mode in (0o700, 0o710, 0o701, 0o711, 0o100, 0o010, 0o001, 0o670, 0o707, 0o000):
        home.chmod(mode)
        assert [we_let_search(home, *viewer) for viewer in VIEWERS] == kernel_lets_search(home), oct(mode)


def test_acl_of_the_daemon_lets_no_member_of_the_group_in(home: Path) -> None:
    """The result of `setfacl -m u:daemon:x`: the mode's group bits are the mask, and the group has nothing."""
    daemon = 4_009
    os.setxattr(
        home,
        ATTRIBUTE,
        packed(
            *((USER_OBJ, 7, NOT_NAMED), (USER, 1, daemon), (GROUP_OBJ, 0, NOT_NAMED)),
            *((MASK, 1, NOT_NAMED), (OTHER, 0, NOT_NAMED)),
        ),
    )
    assert home.stat().st_mode & 0o777 == 0o710
    curious = Viewer("curious", STRANGER, frozenset({OWN_GROUP}))
    for name in ("secret", "nothing", "nowhere/x"):
        (state,) = check_files([str(home / name)], curious)
        assert (state.presence, state.denied) == (Presence.UNKNOWN, True)
        assert name not in state.reason
    os.chown(home / "secret", daemon, OWN_GROUP)
    assert check_files([str(home / "secret")], Viewer("daemon", daemon)) == (FileState(Presence.PRESENT),)


@pytest.mark.parametrize("attribute", [b"", b"\2\0\0\0\1", b"\1\0\0\0", packed() + b"x"])
def test_acl_that_is_none_grants_nothing(attribute: bytes) -> None:
    with pytest.raises(ValueError, match="not a POSIX"):
        AccessList.parse(attribute)
    about = Path("/").stat()
    assert not AccessList(()).lets_search(about, STRANGER, ())


def test_acl_of_a_file_system_without_lists_is_its_mode() -> None:
    descriptor = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    try:
        about = os.fstat(descriptor)
        assert read_access_list(descriptor, about).lets_search(about, pwd.getpwnam("daemon").pw_uid, ())
    finally:
        os.close(descriptor)
