"""Chains of a user for whom no daemon stays: cron's calls, and commands between them."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from training_script import PER_LINK, STEPS, TRAIN, steps_of
from user_shell import PATIENCE

if TYPE_CHECKING:
    from user_shell import Shell


def test_a_chain_is_continued_by_calls_alone(shell: Shell) -> None:
    (shell.home / "train.sh").write_text(TRAIN)
    shell.type("mirage cycle --every 1m")
    shell.type("mirage submit --done-file done train.sh")
    limit = time.monotonic() + PATIENCE
    while "DONE" not in shell.type("mirage chains -t all"):
        assert time.monotonic() < limit
        shell.type("mirage cycle --every 1m")
    shell.testbed.wait_until(lambda: "mirage cycle" not in shell.type("ps x -o args"), PATIENCE, "its end")
    done = steps_of(shell.home)
    assert [step for _, step in done] == list(range(1, STEPS + 1))
    assert len(list(itertools.groupby(job for job, _ in done))) == STEPS // PER_LINK


def test_commands_at_the_same_time_are_all_carried_out(shell: Shell) -> None:
    (shell.home / "sleep.sh").write_text("#!/bin/bash\n#SBATCH -N1 -t 300\nsleep 99999\n")
    shell.type("mirage cycle --every 1m")
    names = [f"chain{n}" for n in range(6)]
    with ThreadPoolExecutor(len(names) + 1) as pool:
        called = pool.submit(shell.type, "mirage cycle --every 1m")
        list(pool.map(lambda name: shell.type(f"mirage submit -J {name} sleep.sh"), names))
        called.result()
        list(pool.map(lambda name: shell.type(f"mirage chain pause {name}"), names))
        shown = shell.type("mirage chains")
        assert sum("PAUSED" in line for line in shown.splitlines()) == len(names), shown
        list(pool.map(lambda name: shell.type(f"mirage chain cancel {name}"), names))
    assert "PAUSED" not in shell.type("mirage chains -t all")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the end of the jobs")


def test_the_line_in_crontab_works_in_crons_environment(shell: Shell) -> None:
    table = shell.home / "table"
    program = shell.home / "bin" / "crontab"
    read = f'[ -e {table} ] && cat {table} || {{ echo "no crontab for me" >&2; exit 1; }}'
    program.write_text(f'#!/bin/sh\nif [ "$1" = - ]; then cat >{table}; else {read}; fi\n')
    program.chmod(0o755)
    shell.type("mirage install cron --yes --every 1m")
    shell.type("mirage submit -J sleep -N1 -t 300 --wrap 'sleep 99999'")
    (entry,) = [line for line in table.read_text().splitlines() if not line.startswith("#")]
    command = entry.removeprefix("* * * * * ").replace("\\%", "%")
    shell.testbed.wait_until(lambda: "mirage cycle" not in shell.type("ps x -o args"), PATIENCE, "its end")
    shell.type("scancel -n sleep")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the end of the job")
    (shell.home / "command").write_text(command)
    (start,) = [line for line in (shell.home / "bin" / "mirage").read_text().splitlines() if "PYTHONPATH" in line]
    path = start.split()[0]
    shell.type(f'env -i {path} HOME="$HOME" LOGNAME=me SHELL=/bin/sh PATH=/usr/bin:/bin /bin/sh ./command')
    state = shell.home / ".local" / "state" / "mirage"
    assert "event=daemon_stopped" in (state / "cron.log").read_text()
    assert "CANCELLED" in shell.type("mirage chains -t all")
    shell.type("mirage uninstall cron --yes")
    shell.testbed.wait_until(lambda: "mirage cycle" not in shell.type("ps x -o args"), PATIENCE, "its end")
    assert table.read_text() == ""
    assert not shell.says("mirage chains", "CHAIN")


def test_a_link_without_its_directory_does_not_begin_again_elsewhere(shell: Shell) -> None:
    """Slurm runs such a job in /tmp."""
    script = (
        "#!/bin/bash\n#SBATCH -J gone -N1 --exclusive -t 5 -o {home}/gone-%j.log\npwd >>{home}/places\nsleep 999\n"
    )
    (shell.home / "gone.sh").write_text(script.format(home=shell.home))
    shell.type("mirage cycle --every 1m")
    shell.type("mkdir work && cd work && mirage submit --links 9 --on-failure stop ../gone.sh")
    shell.testbed.wait_until((shell.home / "places").exists, PATIENCE, "the first link")
    (shell.home / "work").rename(shell.home / "elsewhere")
    shell.testbed.wait_until(lambda: shell.says("mirage chains -t all", "FAILED"), PATIENCE, "the failed link")
    assert (shell.home / "places").read_text().split() == [str(shell.home / "work")]
    assert "working directory of the links not found" in shell.type("mirage explain gone | tr '\\n' ' '")
    shell.testbed.wait_until(lambda: not shell.testbed.queue(), PATIENCE, "the end of its jobs")
