"""Checks of this machine: directories, sockets, clock, the means of each acting mode."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import socket
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.bootstrap.leadership import controller_script
from mirage.client.address import SOCKET_VARIABLES
from mirage.config.places import SHARED_FOLDERS, daemon_socket, remark_on
from mirage.daemon.brief import Calls, read_calls
from mirage.daemon.doctor.account import answering, listening
from mirage.daemon.doctor.finding import fail, ok, warn
from mirage.daemon.state_directory import HEARTBEAT, read_beat
from mirage.domain.errors import ClusterUnavailable
from mirage.ownplaces import check_not_replaceable, check_places

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from mirage.backends.execution import CommandRunner
    from mirage.config.model import Config
    from mirage.daemon.doctor.finding import Finding
    from mirage.daemon.state_directory import Beat

_NEEDED = ("squeue", "sinfo", "sbatch", "scancel", "scontrol", "sacct")
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
_MUNGE_TTL = 300
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_ROOT = re.compile(r"(?<![\w!%-])(ALL|root|#0)(?![\w-])")
"""Matches root among the target users of a sudo rule."""
_SAID = 200  # maximum number of characters quoted from sudo
_AGES = 10
_MISSED = 3
_CYCLE_S = 60
"""Time that a slow cycle may take, s."""
_SCARCE_MB = 200


def check_commands(environment: Mapping[str, str]) -> Finding:
    """Check that Slurm's commands are installed."""
    path = environment.get("PATH", os.defpath)
    missing = [name for name in _NEEDED if shutil.which(name, path=path) is None]
    if missing:
        todo = "install Slurm's client commands here, or add their directory to PATH"
        return fail("commands", f"not found: {', '.join(missing)}", "the backend cli cannot work", todo)
    return ok("commands", f"all in {Path(str(shutil.which('squeue', path=path))).parent}")


def check_configuration(files: Sequence[Path], account: int) -> Iterator[Finding]:
    """Check that only root and the daemon's ``account`` can change the configuration."""
    places = [*files, *(each.parent / "conf.d" for each in files[:1] if (each.parent / "conf.d").is_dir())]
    for place in places:
        try:
            check_places(place.resolve(), {0, account})
        except PermissionError as error:
            todo = "run chown root and chmod go-w on it and the directories above"
            follows = f"other users can change {place} and make themselves administrators"
            yield fail("configuration", str(error).partition(";")[0], follows, todo)


def check_state(folder: Path) -> Iterator[Finding]:
    """Check that the state directory is usable and closed to other users."""
    if not folder.exists():
        parent = next(above for above in folder.parents if above.exists())
        if os.access(parent, os.W_OK | os.X_OK):
            yield ok("state", f"{folder} will be created")
        else:
            follows = "the daemon cannot start"
            yield fail("state", f"{folder} cannot be created", follows, "set another directory in service.state")
        return
    if not os.access(folder, os.W_OK | os.X_OK):
        yield fail("state", f"{folder} is not writable", "the daemon cannot start", "chown it, or set another")
    elif stat.S_IMODE(folder.stat().st_mode) & _OTHERS:
        mode = f"{stat.S_IMODE(folder.stat().st_mode):o}"
        follows = "other users may read the scripts and environments of chains there"
        yield warn("state", f"{folder} has mode {mode}", follows, f"chmod 700 {folder}")
    else:
        disk = os.statvfs(folder)
        yield check_free_space(folder, disk.f_bavail * disk.f_frsize >> 20)
    yield from _look_above(folder)


def _look_above(folder: Path) -> Iterator[Finding]:
    """Check that other users cannot replace the directory."""
    try:
        check_not_replaceable(folder)
    except PermissionError as error:
        todo = "chmod o-w (or +t) that directory, or set another one in service.state"
        yield fail("state", str(error), "any user can remove or replace the chains' state", todo)


def check_free_space(folder: Path, free_mb: int) -> Finding:
    """Check the free space of the state directory, MiB."""
    if free_mb >= _SCARCE_MB:
        return ok("state", str(folder))
    found = f"{folder}: {free_mb} MB free"
    todo = "free space there, or set another directory in service.state"
    if not free_mb:
        return fail("state", found, "nothing can be stored; cycles fail and no link is submitted", todo)
    return warn("state", found, "once the disk is full, no link is submitted", todo)


def check_place(folder: Path) -> Iterator[Finding]:
    """Report a state directory outside the user's home, and why."""
    remark, follows = remark_on(folder), "mirage submit reaches this daemon from this machine only"
    if remark and folder.parent == SHARED_FOLDERS[0]:
        yield ok("state", remark, follows)
    elif remark:
        yield warn("state", remark, follows, "set a directory on a local disk in service.state, or use PostgreSQL")


def _of_no_lock(config: Config, folder: Path) -> Finding:
    """Return the finding where no daemon of this account holds the lock of the state directory."""
    follows = "no chain gets successors now"
    if (controller := controller_script(config)) is not None:
        return _of_jobs(controller.parent)
    if (calls := read_calls(folder)) is not None:
        return _of_calls(calls, follows)
    if listening(config) is not None:
        if not _is_readable(folder):
            return ok("daemon", f"a daemon answers at {config.api.socket}; this account may not read its state")
        found = f"a daemon answers at {config.api.socket}, but not for the state directory {folder}"
        return fail("daemon", found, "the directory was removed or replaced", "restore it, then restart")
    if other := other_daemon(config):
        follows = "it manages your chains; findings about settings here concern only a daemon that you start"
        return ok("daemon", f"the daemon at {other} answers; you run none of your own", follows)
    return warn("daemon", "none runs", follows, "run mirage daemon, or systemctl start mirage")


def _of_jobs(shared: Path) -> Finding:
    """The finding where the chains' own jobs look after them."""
    files = [*shared.glob("lease.*"), *shared.glob("state.*")]
    last = max((file.stat().st_mtime for file in files), default=None)
    ago = "never" if last is None else f"{max(0, round(time.time() - last))} s ago"
    follows = f"errors of theirs are in {shared / 'controller.log'}"
    return ok(
        "daemon", f"none is needed: the jobs of your chains look after them; the last look was {ago}", follows
    )


def _of_calls(calls: Calls, follows: str) -> Finding:
    age, every = round(time.time() - calls.at), round(calls.every)
    found = f"mirage cycle is called every {every} s; the last call was {age} s ago"
    if not calls.ended(time.time()):
        return ok("daemon", found)
    return fail("daemon", found, follows, "its line in crontab is gone or fails: mirage install cron")


def _is_readable(folder: Path) -> bool:
    """Whether no permission keeps this account from the directory; there may be none."""
    try:
        next(folder.iterdir(), None)
    except PermissionError:
        return False
    except OSError:
        return True
    return os.access(folder, os.X_OK)


def check_daemon(config: Config) -> Finding:
    """Check that a daemon runs on this state, and its last cycles."""
    folder = Path(config.service.state)
    if not _is_locked(folder / "daemon.lock"):
        return _of_no_lock(config, folder)
    beat = read_beat(folder / HEARTBEAT)
    if beat is None:
        return ok("daemon", "runs, and has not completed a cycle yet")
    age = int(time.time()) - beat.time
    found = f"process {beat.pid}, last cycle {age} s ago: {beat.sentence[:120]}"
    if age > _late_after(beat, config):
        follows = "it hangs, or cannot write its state directory: no cycle has been recorded since"
        return fail("daemon", found, follows, "see the finding about the state directory, and the log")
    if beat.failed:
        found = f"process {beat.pid}: {beat.failed} cycles failed in a row: {beat.sentence[:120]}"
        return fail("daemon", found, "no link is submitted while cycles fail", "read the daemon's log")
    if beat.stuck:
        found = f"process {beat.pid}: {beat.stuck} predictor threads have run for more than a minute"
        follows = "the fallback predicts for chains whose predictor gets no free thread"
        return warn(
            "daemon", found, follows, "find the predictor that times out in the log; restart to end the threads"
        )
    return ok("daemon", found)


def other_daemon(config: Config) -> str:
    """The socket of another daemon, to which commands would connect; empty: no such daemon.

    The environment names it, or it is the machine's.
    """
    named = next((os.environ[name] for name in SOCKET_VARIABLES if os.environ.get(name)), "")
    path = named or str(daemon_socket(Path(config.api.socket)))
    return path if path != config.api.socket and answering(path) is not None else ""


def check_access(folder: Path) -> Iterator[Finding]:
    """Check that the running daemon uses the present keys and access policy."""
    beat = read_beat(folder / HEARTBEAT)
    if beat is not None and beat.outdated and _is_locked(folder / "daemon.lock"):
        follows = "the former content stays in force: a removed key or right is still valid"
        todo = "correct the file; it is read again within seconds"
        yield fail("access", beat.outdated, follows, todo)


def _late_after(beat: Beat, config: Config) -> float:
    """Return after how many seconds a missing beat means trouble; older daemons do not say when it is due."""
    if beat.due_s:
        return _MISSED * beat.due_s + _CYCLE_S
    return _AGES * max(60, config.loop.longest_interval)


def check_socket(config: Config) -> Finding:
    """Whether the API answers at its socket, and whether another daemon is in its place."""
    path = str(daemon_socket(Path(config.api.socket)))
    if not config.api.enabled:
        return warn("interface", "api.enabled = false", "mirage submit cannot reach the daemon", "set api.enabled")
    brief = controller_script(config) is not None or read_calls(Path(config.service.state)) is not None
    if not Path(path).exists() and brief:
        return ok("interface", "each command starts a daemon that ends after it")
    if not Path(path).exists() and (other := other_daemon(config)):
        return ok("interface", other)
    with socket.socket(socket.AF_UNIX) as to:
        try:
            to.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return warn("interface", f"no process answers on {path}", "no daemon runs there", "run mirage daemon")
        except OSError as error:
            todo = "let all users enter its directory (mode 755)"
            return fail("interface", f"{path}: {error.strerror}", "mirage submit cannot reach the daemon", todo)
    return ok("interface", f"answers on {path}")


def check_munge(auth_info: str) -> Finding:
    """Check that munge, which authenticates Slurm's commands, answers."""
    named = dict(part.partition("=")[::2] for part in auth_info.split(","))
    path = named.get("socket") or "/run/munge/munge.socket.2"
    with socket.socket(socket.AF_UNIX) as to:
        try:
            to.connect(path)
        except OSError as error:
            follows = "Slurm cannot authenticate its commands"
            return fail("munge", f"{path}: {error.strerror}", follows, "start munged (systemctl start munge)")
    return ok("munge", f"answers on {path}")


def check_clock(controller: int, ours: int, rate: float) -> Finding:
    """Check that both clocks agree; ``rate``: speed of Slurm's clock (1: real time)."""
    skew = (ours - controller) / rate
    found = f"ours is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's"
    if rate != 1:
        found += f", {abs(ours - controller)} s of Slurm's time"
    if abs(skew) >= _MUNGE_TTL:
        follows = "munge rejects credentials with that difference, and decisions come at the wrong time"
        return fail("clock", found, follows, "run chrony or ntpd on both machines")
    if abs(skew) >= 5:
        return warn("clock", found, "decisions are that early or late", "run chrony or ntpd on both machines")
    return ok("clock", "agrees with the controller's")


def check_helper(helper: Path) -> Iterator[Finding]:
    """Check that the sudo helper exists and that only root can change it."""
    if not helper.exists():
        yield fail("acting", f"{helper} is missing", "nothing can be submitted for others", "install it as root")
        return
    about = helper.stat()
    if about.st_uid != 0 or about.st_mode & _WRITABLE:
        follows = "a user who can change it can act as any user"
        yield fail(
            "acting", f"users other than root can change {helper}", follows, f"chown root {helper}; chmod 755"
        )
        return
    yield ok("acting", f"{helper} belongs to root")


def check_sudoers(helper: Path, sudo: CommandRunner) -> Finding:
    """Check for which users sudo lets this account run the helper without a password (``sudo -l``)."""
    follows = "nothing can be submitted for others"
    todo = "as root, install deploy/sudoers.d/mirage, and add the users to its group"
    try:
        answer = sudo.run(["sudo", "-n", "-l"])
    except ClusterUnavailable as error:
        return fail("acting", f"sudo cannot be run: {error}", follows, "install sudo")
    rules = " ".join(answer.out.split())  # sudo breaks lines where they are long
    found = re.findall(rf"\(([^()]*)\) NOPASSWD: [^()]*(?:{re.escape(str(helper))}|ALL)(?![\w./-])", rules)
    if not found:
        said = f": {answer.said[:_SAID]}" if answer.status else ""
        return fail(
            "acting", f"sudo does not let this account run {helper} without a password{said}", follows, todo
        )
    whose = "; ".join(found)
    if any(_ROOT.search(each) and "!root" not in each for each in found):
        follows = "a bug of the daemon could act as root"
        return warn("acting", f"sudo lets this account run {helper} for {whose}", follows, "add !root to the rule")
    return ok("acting", f"sudo lets this account run {helper} for {whose}")


def check_tracing(scope: Path = _PTRACE_SCOPE) -> Finding:
    """Check whether a user may trace a helper that runs as that user, before the helper forbids it."""
    try:
        restricted = scope.read_text(encoding="ascii").strip() != "0"
        found = "processes of a user may trace each other (kernel.yama.ptrace_scope is 0)"
    except OSError:
        restricted, found = False, "the kernel does not restrict tracing (no Yama)"
    if restricted:
        return ok("acting", "users cannot trace the helper that acts for them")
    follows = "right after its start, a user may stop or trace the helper that acts for that user"
    return warn("acting", found, follows, "set kernel.yama.ptrace_scope=1, if the kernel has Yama")


def check_privileges(state: Path) -> Iterator[Finding]:
    """Check that the running daemon may start sudo."""
    beat = read_beat(state / HEARTBEAT)
    if beat is None or not _is_locked(state / "daemon.lock") or not _may_gain_nothing(beat.pid):
        return
    todo = "install deploy/systemd/mirage-sudo.conf as mirage.service.d/sudo.conf, and restart the daemon"
    found = f"process {beat.pid} runs with NoNewPrivileges"
    yield fail("acting", found, "sudo cannot switch the user, so no link can be submitted", todo)


def _may_gain_nothing(pid: int) -> bool:
    """Whether the kernel denies the process and its children all new privileges; not known is no."""
    try:
        return "\nNoNewPrivs:\t1\n" in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def check_tokens(folder: Path) -> Iterator[Finding]:
    """Check that the token directory is closed to other users and has tokens."""
    if not folder.is_dir():
        yield fail(
            "acting", f"acting.tokens: {folder} is no directory", "no link can be submitted", "create it, mode 700"
        )
        return
    if stat.S_IMODE(folder.stat().st_mode) & _OTHERS:
        follows = "a user who reads a token can act as its owner"
        yield fail("acting", f"{folder} is accessible to other users", follows, f"chmod 700 {folder}")
    users = sorted(file.stem for file in folder.glob("*.jwt"))
    if users:
        yield ok("acting", f"tokens of {', '.join(users[:10])}{' and others' if len(users) > 10 else ''}")
    else:
        todo = "scontrol token username=USER > USER.jwt"
        yield warn("acting", f"{folder} has no token", "Mirage can act for no user yet", todo)


def _is_locked(file: Path) -> bool:
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
