"""One file of a user's, seen as that user would see it; and links, owners and directories that deceive."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mirage.backends.file_check import Viewer, check_files
from mirage.domain.files import HANDOVER_FOLDER, FileState, Presence

if TYPE_CHECKING:
    from collections.abc import Iterator

PEOPLE = [person for person in pwd.getpwall() if person.pw_uid != 0]
OWNER, STRANGER = PEOPLE[0], PEOPLE[1]
as_root = pytest.mark.skipif(os.getuid() != 0, reason="gives files to other users")


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that every user may enter, and that belongs to OWNER where this process may give it away."""
    folder = Path(tempfile.mkdtemp(prefix="mirage-files-"))
    folder.chmod(0o755)
    if os.getuid() == 0:
        os.chown(folder, OWNER.pw_uid, OWNER.pw_gid)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)  # shutil.rmtree calls itself for each level


def seen(path: Path | str, name: str = OWNER.pw_name) -> FileState:
    own = pwd.getpwuid(os.getuid()).pw_name
    (state,) = check_files([str(path)], Viewer.of(name if os.getuid() == 0 else own))
    return state


def touch(path: Path, owner: pwd.struct_passwd = OWNER) -> Path:
    path.touch()
    if os.getuid() == 0:
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return path


def test_a_file_is_absent_until_it_is_there(home: Path) -> None:
    assert seen(home / "done") == FileState(Presence.ABSENT)
    assert seen(home / "run" / "done") == FileState(Presence.ABSENT), "nor is its directory"
    touch(home / "done")
    assert seen(home / "done") == FileState(Presence.PRESENT)
    assert seen(home / "done" / "x") == FileState(Presence.ABSENT), "a file is no directory"
    assert seen(f"{home}//./x/../done").presence is Presence.ABSENT, "x is not there"
    (home / "x").mkdir()
    assert seen(f"{home}//./x/../done").presence is Presence.PRESENT


@pytest.mark.parametrize(
    "path", ["", "done", "/a\nb", "/a\0b", "/" + "x" * 256, "/x" * 2_100, "/\x1b[2J", "/\ud800"]
)
def test_what_is_no_path_is_never_present(path: str) -> None:
    state = seen(path)
    assert (state.presence, state.denied) == (Presence.UNKNOWN, True)
    assert state.reason.isprintable()


def test_only_regular_files_count(home: Path) -> None:
    (home / "directory").mkdir()
    os.mkfifo(home / "fifo")
    for name in ("directory", "fifo"):
        assert seen(home / name).presence is Presence.UNKNOWN
    assert seen("/dev/null").presence is Presence.UNKNOWN


def test_links_of_the_owner_are_followed_to_a_file_that_is_there(home: Path) -> None:
    link = home / "done"
    link.symlink_to("scratch/result")
    assert seen(link) == FileState(Presence.ABSENT), "it dangles"
    (home / "scratch").mkdir()
    touch(home / "scratch" / "result")
    assert seen(link) == FileState(Presence.PRESENT)
    (home / "there").symlink_to(home / "scratch")
    assert seen(home / "there" / "result") == FileState(Presence.PRESENT)


def test_links_that_lead_in_a_circle_have_an_end(home: Path) -> None:
    (home / "a").symlink_to("b")
    (home / "b").symlink_to("a")
    assert seen(home / "a").presence is Presence.UNKNOWN


@as_root
def test_the_file_of_another_user_does_not_count(home: Path) -> None:
    home.chmod(0o1777)
    touch(home / "done", STRANGER)
    state = seen(home / "done")
    assert (state.presence, state.denied) == (Presence.UNKNOWN, False)
    assert STRANGER.pw_name in state.reason
    os.chown(home / "done", 0, 0)
    assert seen(home / "done").presence is Presence.PRESENT, "root may end any chain"


def test_hard_link_does_not_count(home: Path) -> None:
    """In a sticky directory other users cannot rename the owner's files, but can link one they may write to."""
    touch(home / "log")
    (home / "done").hardlink_to(home / "log")
    assert seen(home / "done").presence is Presence.UNKNOWN
    (home / "log").unlink()
    assert seen(home / "done").presence is Presence.PRESENT


@as_root
def test_the_link_of_another_user_is_not_followed(home: Path) -> None:
    home.chmod(0o1777)
    touch(home / "result")
    (home / "done").symlink_to("result")
    os.lchown(home / "done", STRANGER.pw_uid, STRANGER.pw_gid)
    assert seen(home / "done").presence is Presence.UNKNOWN
    os.chown(home, STRANGER.pw_uid, STRANGER.pw_gid)
    state = seen(home / "done")
    assert state.presence is Presence.UNKNOWN, "it may lead to any file of the owner's, such as their .profile"
    assert STRANGER.pw_name in state.reason


@as_root
def test_a_handover_folder_of_another_user_does_not_count(home: Path) -> None:
    """The owner of the directory may give one of the chain owner's files there another link's name."""
    home.chmod(0o1777)
    folder = home / HANDOVER_FOLDER
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    touch(folder / "svc.2.ready")
    for uid, presence in (
        (STRANGER.pw_uid, Presence.UNKNOWN),
        (OWNER.pw_uid, Presence.PRESENT),
        (0, Presence.PRESENT),
    ):
        os.chown(folder, uid, 0)
        assert seen(folder / "svc.2.ready").presence is presence


@as_root
@pytest.mark.parametrize("mode", [0o700, 0o750, 0o600])
def test_a_directory_that_the_owner_may_not_search_discloses_nothing(home: Path, mode: int) -> None:
    os.chown(home, STRANGER.pw_uid, STRANGER.pw_gid)
    touch(home / "secret")
    home.chmod(mode)
    there, missing = seen(home / "secret"), seen(home / "missing")
    assert there == missing
    assert (there.presence, there.denied) == (Presence.UNKNOWN, True)
    assert str(home) in there.reason
    assert f"{mode:04o}" in there.reason


@as_root
def test_what_this_process_may_not_search_is_denied_by_name(home: Path) -> None:
    """In a process of the daemon's account, for which a home of mode 0700 is closed."""
    touch(home / "done")
    home.chmod(0o700)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(STRANGER.pw_gid)
        os.setuid(STRANGER.pw_uid)
        (state,) = check_files([str(home / "done")], Viewer.of(OWNER.pw_name))
        os.write(writing, repr((state.presence.value, state.denied, state.reason)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    presence, denied, reason = eval(os.read(reading, 10_000))
    assert (presence, denied) == ("unknown", True)
    for word in (str(home), STRANGER.pw_name, OWNER.pw_name, "0700"):
        assert word in reason


def test_a_user_whom_the_machine_does_not_know_has_no_files() -> None:
    with pytest.raises(KeyError):
        Viewer.of("no such person")


# Ways that are long.


def deep(folder: Path, levels: int) -> str:
    """This number of nested directories, made without a path of their length."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", 0o755, dir_fd=here)
        here, before = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(before)
    os.close(os.open("done", os.O_CREAT, dir_fd=here))
    os.close(here)
    return str(folder) + "/d" * levels + "/done"


def test_filecheck_the_longest_path_is_seen(home: Path) -> None:
    levels = (4_095 - len(str(home)) - len("/done")) // 2
    assert seen(deep(home, levels), "root").presence is Presence.PRESENT


def test_filecheck_links_that_multiply_names_are_unknown(home: Path) -> None:
    """Each leads over hundreds of names, up and down, to the next."""
    (home / "x").mkdir()
    for number in range(38):
        (home / f"l{number}").symlink_to("x/../" * 800 + f"l{number + 1}")
    state = seen(home / "l0" / "done", "root")
    assert (state.presence, state.denied) == (Presence.UNKNOWN, True)
    assert len(state.reason) < 600


def test_filecheck_names_of_one_check_are_bounded_in_all(home: Path) -> None:
    paths = [deep(home, 1_500)] * 64
    states = check_files(paths, Viewer.of("root" if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name))
    assert {state.presence for state in states[:5]} == {Presence.PRESENT}
    assert {(state.presence, state.denied) for state in states[10:]} == {(Presence.UNKNOWN, False)}, "later again"
    assert all(len(state.reason) < 600 for state in states)


def test_filecheck_a_file_is_no_directory_even_upwards(home: Path) -> None:
    touch(home / "done")
    touch(home / "file")
    assert seen(f"{home}/file/../done").presence is Presence.ABSENT


def test_filecheck_leaves_no_descriptor_open(home: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in (home / "none" / "done", home / ("n" * 300), home):
        seen(path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
