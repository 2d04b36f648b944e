"""``mirage install`` and ``uninstall``: what starts Mirage for a user without privileges, and its place in PATH.

Each shows first what it would write, and changes nothing else of the file or directory.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from mirage.cli.arguments import UsageError, duration_of
from mirage.cli.printing import show
from mirage.domain.errors import ConfigError
from mirage.ownprocess import own_python

install_app = typer.Typer(help="Have cron or systemd start Mirage, or put it into PATH.", no_args_is_help=True)
uninstall_app = typer.Typer(help="Remove what mirage install has written.", no_args_is_help=True)

Yes = Annotated[bool, typer.Option("-y", "--yes", help="Write without confirmation.")]
Every = Annotated[
    str,
    typer.Option("--every", metavar="TIME", help="Interval: 1m, 2m, 5m, 10m, 15m, 20m, 30m or 1h."),
]
_INTERVALS = (1, 2, 5, 10, 15, 20, 30, 60)
_BEGIN = "# mirage: begin; mirage uninstall cron removes these lines"
_END = "# mirage: end"
_CRONS_PATH = ("/usr/bin", "/bin")
_KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH")
_KEPT_SECTIONS = ("MIRAGE_CLUSTER__", "MIRAGE_SERVICE__")
"""Variables of this shell that are repeated, as cron and systemd set none. Others may be secret, and the list of
processes shows them to all users."""
_NO_CRONTAB = "no crontab"
_TOO_LONG = 990
"""Bytes of a line that every cron reads."""


@install_app.command("cron")
def install_cron_command(every: Every = "10m", yes: Yes = False) -> None:
    """Have cron process your chains at intervals, where no process may stay.

    The entry repeats the variables of this shell that Slurm's commands need. Run the command again after a move of
    Mirage. Between two calls, commands such as mirage chains start Mirage by themselves for a moment.
    """
    line = _entry(every)
    before = _crontab()
    _confirm(f"crontab of this user gets the line\n\n{line}\n", yes)
    _write_crontab(_without_entry(before) + f"{_BEGIN}\n{line}\n{_END}\n")
    show("written; this is the first call:")
    done = subprocess.run([*mirage_words(), "cycle", f"--every={every}"], check=False)  # noqa: S603 - this program
    if done.returncode:
        raise ConfigError("cron", "the first call failed; cron will call again. mirage doctor names what to do")
    show("ready: mirage submit, mirage chains and all other commands work now")


@uninstall_app.command("cron")
def uninstall_cron_command(yes: Yes = False) -> None:
    """Remove the line from crontab. Your chains then continue only while a daemon runs."""
    from mirage.config.places import CALLS, used_places

    before = _crontab()
    after = _without_entry(before)
    if after == before:
        show("crontab of this user has no line of Mirage")
    else:
        _confirm("crontab of this user loses the line of Mirage", yes)
        _write_crontab(after)
        show("removed; chains that are not over continue only while mirage daemon runs")
    (used_places(os.environ, os.getuid())[0] / CALLS).unlink(missing_ok=True)


def _entry(every: str) -> str:
    seconds = duration_of("--every", every)
    minutes, rest = divmod(seconds, 60)
    if rest or minutes not in _INTERVALS:
        raise UsageError("--every", f"{every} is no interval of cron's; use 1m, 2m, 5m, 10m, 15m, 20m, 30m or 1h")
    offset = os.getuid() % minutes  # not all users of a site at the same minute
    when = f"{offset}-59/{minutes}" if minutes > 1 else "*"
    words = ["env", *(f"{name}={value}" for name, value in slurm_variables().items()), *mirage_words()]
    command = shlex.join([*words, "cycle", f"--every={every}", "--log"])
    if not command.isprintable():
        raise ConfigError("crontab", f"a path or variable has a control character: {command!r}")
    command = command.replace("%", r"\%")
    line = f"{when if minutes < 60 else offset} * * * * {command}"
    if len(os.fsencode(line)) > _TOO_LONG:
        problem = f"the line would have {len(os.fsencode(line))} bytes, and cron reads {_TOO_LONG}; shorten PATH"
        raise ConfigError("crontab", problem)
    return line


def slurm_variables() -> dict[str, str]:
    """What Slurm's commands and Mirage need of this shell's environment."""
    found = {name: os.environ[name] for name in _KEPT if os.environ.get(name)}
    found |= {name: value for name, value in os.environ.items() if name.startswith(_KEPT_SECTIONS) and value}
    for name in sorted(os.environ.keys() - found.keys()):
        if name.startswith("MIRAGE_") and "__" in name:
            show(f"${name} is not written there: set it in mirage.toml", err=True)
    sbatch = shutil.which("sbatch")
    if sbatch is None:
        raise ConfigError("PATH", "sbatch is not found; load Slurm's module first, or extend PATH")
    found |= _own_path()
    place = str(Path(sbatch).parent)
    return found if place in _CRONS_PATH else {"PATH": ":".join((place, *_CRONS_PATH)), **found}


def _own_path() -> dict[str, str]:
    """The search path where this program itself is found by it, as a module of the site may have it."""
    import mirage

    used = {Path(place).resolve() for place in sys.path}
    named = [
        place for place in os.environ.get("PYTHONPATH", "").split(":") if place and Path(place).resolve() in used
    ]
    package = Path(mirage.__file__).resolve().parents[1]
    return {"PYTHONPATH": ":".join(named)} if package in map(Path.resolve, map(Path, named)) else {}


def mirage_words() -> list[str]:
    """The words that start this Mirage, whatever PATH is."""
    script = Path(own_python()[0]).parent / "mirage"
    return [str(script)] if os.access(script, os.X_OK) else own_python("-m", "mirage")


def _crontab() -> str:
    """The user's crontab; empty if the user has none. Raises ``ConfigError`` where it cannot be read."""
    done = _run(["crontab", "-l"])
    if done.returncode == 0:
        return done.stdout
    if _NO_CRONTAB in done.stderr:
        return ""
    raise ConfigError("crontab", f"cannot be read: {done.stderr.strip() or f'exit code {done.returncode}'}")


def _write_crontab(text: str) -> None:
    done = _run(["crontab", "-"], text)
    if done.returncode:
        raise ConfigError("crontab", f"cannot be written: {done.stderr.strip() or f'exit code {done.returncode}'}")
    if (found := _crontab()) != text:
        raise ConfigError("crontab", f"{len(text)} characters were written, and {len(found)} others are there now")


def _run(words: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(  # noqa: S603 - fixed commands
            words,
            input=text,
            capture_output=True,
            check=False,
            encoding="utf-8",
            errors="surrogateescape",
            env=environment,
            timeout=60,
        )
    except FileNotFoundError:
        raise ConfigError(words[0], "this machine has no such command; use mirage daemon") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(words[0], "no answer within a minute") from None


def _without_entry(text: str) -> str:
    """The crontab without the lines of Mirage. Raises ``ConfigError`` where their end is missing."""
    kept, inside = list[str](), False
    for line in text.splitlines(keepends=True):
        if line.rstrip("\n") == _BEGIN:
            inside = True
        elif inside and line.rstrip("\n") == _END:
            inside = False
        elif not inside:
            kept.append(line)
    if inside:
        raise ConfigError("crontab", f"the line {_END!r} is missing after {_BEGIN!r}; remove both with crontab -e")
    return "".join(kept) if not kept or kept[-1].endswith("\n") else "".join(kept) + "\n"


def _confirm(about: str, yes: bool) -> None:
    typer.echo(about)
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("--yes", "is needed if stdin is no terminal")
    typer.confirm("Write it?", abort=True)


# systemd and PATH

_UNIT = "mirage.service"


@install_app.command("user-unit")
def install_unit_command(yes: Yes = False) -> None:
    """Have systemd run the daemon as you, from login or, with lingering, from boot."""
    file, text = _unit_file(), _unit_text()
    if file.exists() and file.read_text(encoding="utf-8") != text:
        show(f"{file} is there already and differs; it is replaced")
    _confirm(f"{file} gets\n\n{text}", yes)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    for words in (["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", _UNIT]):
        done = _run(words)
        if done.returncode:
            problem = f"{shlex.join(words)} failed: {done.stderr.strip() or f'exit code {done.returncode}'}"
            raise ConfigError(str(file), f"is written, but {problem}; without systemd use mirage install cron")
    show("the daemon runs; `loginctl enable-linger` keeps it running after you log out, where the site permits it")


@uninstall_app.command("user-unit")
def uninstall_unit_command(yes: Yes = False) -> None:
    """Stop the daemon and remove its unit."""
    file = _unit_file()
    if not file.exists():
        show(f"there is no {file}")
        return
    _confirm(f"the daemon stops, and {file} is removed", yes)
    _run(["systemctl", "--user", "disable", "--now", _UNIT])
    file.unlink()
    _run(["systemctl", "--user", "daemon-reload"])
    show("removed; chains that are not over continue only while mirage daemon runs")


def _unit_file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(folder) / "systemd" / "user" / _UNIT


def _unit_text() -> str:
    import mirage

    package = Path(mirage.__file__).parent
    places = (package / "deploy", package.parent / "deploy" / "systemd")
    source = next(place for place in places if (place / "mirage-user.service").exists())
    unit = (source / "mirage-user.service").read_text(encoding="utf-8")
    words = [word.replace("%", "%%") for word in mirage_words()]
    quoted = " ".join(word if shlex.quote(word) == word else f'"{word}"' for word in words)
    variables = slurm_variables()
    if any(not value.isprintable() or '"' in value or "\\" in value for value in (*variables.values(), quoted)):
        raise ConfigError("systemd", "a path or variable has a quote, a backslash or a control character")
    lines = "".join(f'Environment="{name}={value.replace("%", "%%")}"\n' for name, value in variables.items())
    return unit.replace("ExecStart=%h/.local/bin/mirage daemon", f"{lines}ExecStart={quoted} daemon")


@install_app.command("path")
def install_path_command(yes: Yes = False) -> None:
    """Put links to mirage and mbatch into ~/.local/bin."""
    links = _links()
    _confirm("\n".join(f"{link} -> {target}" for link, target in links.items()), yes)
    for link, target in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise ConfigError(str(link), "is no symbolic link: move it away first")
        link.symlink_to(target)
    place = next(iter(links)).parent
    if str(place) not in os.environ.get("PATH", "").split(":"):
        show(f'{place} is not in PATH: add `export PATH="{place}:$PATH"` to your shell\'s start file')


@uninstall_app.command("path")
def uninstall_path_command(yes: Yes = False) -> None:
    """Remove the links from ~/.local/bin."""
    found = [link for link, target in _links().items() if link.is_symlink() and link.readlink() == target]
    if not found:
        show("there is no link to this Mirage in ~/.local/bin")
        return
    _confirm("\n".join(f"{link} is removed" for link in found), yes)
    for link in found:
        link.unlink()


def _links() -> dict[Path, Path]:
    scripts = Path(own_python()[0]).parent
    return {Path.home() / ".local" / "bin" / name: scripts / name for name in ("mirage", "mbatch")}
