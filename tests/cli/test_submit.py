"""``mirage submit`` as a process: dry runs without a daemon, and chains made through a real socket."""

from __future__ import annotations

import grp
import json
import os
import pwd
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from api_world import world
from cli.submit_world import SCRIPT, folder, submit

from mirage.cli.chainoptions import CHAIN, chain_document, new_chain_id
from mirage.domain.chain import HandoverPolicy, Steering
from mirage.domain.errors import BadSpelling
from mirage.domain.failurepolicy import FailureAction, FailureKind
from mirage.domain.job import WarnSignal
from mirage.domain.objective import Objective, ObjectiveKind
from mirage.domain.tags import owned_id
from mirage.slurm.sbatchoptions import Word

if TYPE_CHECKING:
    from api_world import World

__all__ = ["folder", "world"]

ME = pwd.getpwuid(os.getuid()).pw_name
EVERYTHING = """
--total-time=10-00:00:00 --done-file=done --done-exit-code=none --signal=B:USR1@300 --grace=90 --name=svc
--max-overlap=30m --handover=on-start --on-failure=stop,node=retry --steering=hold --predictor=reactive
--aim=no-interruption=90%
"""


def plan(folder: Path, *arguments: str, **variables: str) -> dict[str, Any]:
    """The request that a dry run would submit."""
    done = submit(folder, "--dry-run", "--json", *arguments, **variables)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_dry_run_shows_the_first_link_and_sends_nothing(folder: Path) -> None:
    document = plan(folder, "train.sh")
    assert document["chain"] | {"chain_id": ""} == {
        "chain_id": "",
        "name": "train.sh",
        "owner": ME,
        "done": {"links": 8},
    }
    assert document["script"] == SCRIPT
    assert {"--nodes=2", "--time=2-00:00:00", "--gres=gpu:a100:4", "--job-name=train.sh"} <= set(
        document["sbatch"]
    )
    assert f"--comment=mirage:{document['chain']['chain_id']}:1" in document["sbatch"]
    text = submit(folder, "--dry-run", "train.sh").stdout
    assert text.startswith("Dry run: nothing is submitted")
    assert text.endswith(SCRIPT)


def test_flags_count_more_than_lines_of_the_script(folder: Path) -> None:
    document = plan(folder, "--links=3", "-N1", "train.sh", SBATCH_TIMELIMIT="60", SBATCH_PARTITION="gpu")
    assert document["chain"]["done"] == {"links": 3}
    assert "--nodes=1" in document["sbatch"]
    assert {"--time=01:00:00", "--partition=gpu"} <= set(document["sbatch"])


@pytest.mark.parametrize(
    ("arguments", "limit"), [((), "1-00:00:00"), (("-p", "gpu"), "01:00:00"), (("-p", "cpu,gpu"), "01:00:00")]
)
def test_without_a_limit_the_partitions_counts(folder: Path, arguments: tuple[str, ...], limit: str) -> None:
    assert f"--time={limit}" in plan(folder, *arguments, "--wrap", "sleep 1")["sbatch"]


def test_an_unknown_partition_and_a_slurm_that_is_not_there(folder: Path) -> None:
    done = submit(folder, "--dry-run", "-p", "nix", "--wrap", "true")
    assert (done.returncode, "there are: cpu, gpu" in done.stderr) == (2, True)
    (folder / "bin" / "scontrol").unlink()
    done = submit(folder, "--dry-run", "--wrap", "true", PATH=str(folder / "bin"))
    assert (done.returncode, "--time is missing" in done.stderr) == (1, True)


def test_scripts_from_standard_input_and_wrap(folder: Path) -> None:
    done = submit(folder, "--dry-run", "--json", stdin=SCRIPT.encode() + b"# caf\xe9\n")
    document = json.loads(done.stdout)
    assert document["script"] == SCRIPT + "# caf\udce9\n"
    assert "--job-name=sbatch" in document["sbatch"]
    document = plan(folder, "--wrap", "sleep 1")
    assert document["script"].splitlines()[0] == "#!/bin/sh"
    assert document["script"].splitlines()[-1] == "sleep 1"
    assert "--job-name=wrap" in document["sbatch"]


def test_submit_passes_arguments_beside_the_script(folder: Path) -> None:
    found = plan(folder, "train.sh", "--epochs", "3", "a b", "")
    assert found["arguments"] == ["--epochs", "3", "a b", ""]
    assert found["script"] == SCRIPT
    shown = submit(folder, "--dry-run", "train.sh", "a b").stdout
    assert "SCRIPT \\\n  'a b'\n" in shown


def test_submit_reads_what_a_job_inherits_from_the_shell(folder: Path, world: World) -> None:
    shell = "umask 027; ulimit -n 99; exec nice -n 5 "
    done = submit(folder, "train.sh", "a", shell=shell, MIRAGE_SOCKET=str(world.socket), RAW="\udcff")
    assert done.returncode == 0, done.stderr
    batch = world.loop.records[0].chain.request.batch
    assert batch is not None
    assert (batch.umask, dict(batch.resource_limits)["NOFILE"], batch.process_nice) == (0o027, 99, 5)
    assert (batch.arguments, dict(batch.environment)["RAW"]) == (("a",), "\udcff")


@pytest.mark.skipif(os.getuid() != 0, reason="changes its group")
def test_submit_group_of_the_shell_is_no_links_and_named(folder: Path) -> None:
    group = next(each for each in grp.getgrall() if each.gr_gid != pwd.getpwuid(os.getuid()).pw_gid)
    shell = f"exec setpriv --regid={group.gr_gid} --keep-groups"
    assert group.gr_name in submit(folder, "--dry-run", "train.sh", shell=shell).stderr
    assert submit(folder, "--dry-run", "train.sh").stderr == ""


def test_a_health_command_needs_the_wrapper(folder: Path) -> None:
    document = plan(folder, "--health-command", "curl -f http://localhost/ok", "train.sh")
    assert "sh -c 'curl -f http://localhost/ok'" in document["script"]
    assert document["chain"]["handover"] == {"policy": "when-ready"}


def test_secrets_and_the_enclosing_job_stay_behind(folder: Path) -> None:
    names = plan(folder, "train.sh", SLURM_JWT="t", SLURM_JOB_ID="1", SLURM_NTASKS="2", MINE="3")["environment"]
    assert "MINE" in names
    assert not {"SLURM_JWT", "SLURM_JOB_ID", "SLURM_NTASKS", "MIRAGE_SOCKET"} & set(names)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--no-such",), 2, "there is no option --no-such"),
        (("--nodes",), 2, "needs a value"),
        (("-N1", ":", "-N2", "train.sh"), 2, "heterogeneous"),
        (("nix.sh",), 1, "No such file"),
        (("--array=1-3", "train.sh"), 2, "one chain for each task"),
        (("--dependency=singleton", "train.sh"), 2, "every link would carry it"),
        (("--test-only", "train.sh"), 2, "--dry-run"),
        (("--wait", "train.sh"), 2, "mirage chains"),
        (("--wrap=true", "train.sh"), 2, "not permitted with --wrap"),
        (("--total-time=10", "train.sh"), 2, "command line: expected a number with its unit"),
        (("--total-time=25", "train.sh"), 2, "write 25s, 25m, 25h or 25d"),
        (("--lead=3", "train.sh"), 2, "write 3s, 3m, 3h or 3d"),
        (("--max-overlap=x", "train.sh"), 2, "command line: expected a number with its unit"),
        (("--links=x", "train.sh"), 2, "whole number"),
        (("--handover=soon", "train.sh"), 2, "none, overlap, when-ready, on-start"),
        (("--handover=none", "--health-command=true", "train.sh"), 2, "--handover=when-ready"),
        (("--on-failure=shrug", "train.sh"), 2, "continue, retry, stop"),
        (("--on-failure=fire=stop", "train.sh"), 2, "exit, node, cancelled"),
        (("--steering=left", "train.sh"), 2, "auto, off, nice, hold"),
        (("--done-exit-code=300", "train.sh"), 2, "255"),
        (("--links=0", "train.sh"), 2, "1 or more"),
        (("--total-time=0s", "train.sh"), 2, "above 0"),
        (("--name=", "train.sh"), 2, "expected a name"),
        (("--on-failure=exit=stop,exit=continue", "train.sh"), 2, "exit is given twice"),
        (("--on-failure=stop,exit=stop", "train.sh"), 2, "exit is given twice"),
        (("--on-failure=stop", "--retries=2", "train.sh"), 2, "--on-failure does not retry"),
        (("--grace=-5", "train.sh"), 2, "expected a time such as 48h"),
        (("--predictor=fixed:nan", "train.sh"), 2, "a number with its unit"),
        (("--predictor=../model", "train.sh"), 2, "without a path"),
        (("--held-links=999999999", "train.sh"), 2, "at most 1000000"),
        (("--begin=9999-12-31", "train.sh"), 2, "the job: begin: expected 0 to"),
        (("--nodes=2000000", "train.sh"), 2, "the job: nodes: expected 1 to"),
        (("--nice=-1", "train.sh"), 2, "the job: nice: expected 0 to"),
        ((f"--job-name={'x' * 257}", "train.sh"), 2, "the job: name: "),
        (("--signal=FOO", "train.sh"), 2, "--signal=FOO': command line: expected a signal"),
        (("--mail-type=FOO", "train.sh"), 2, "--mail-type=FOO': command line: expected "),
    ],
)
def test_mistakes_are_one_line_and_the_right_code(
    folder: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    done = submit(folder, "--dry-run", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--total-time=UNLIMITED", "omit the option"),
        ("--max-overlap=infinite", "0 means no limit"),
        ("--grace=-1", ""),
        ("--grace=UNLIMITED", ""),
        ("--lead=UNLIMITED", ""),
        ("--aim=overlap=-1", ""),
        ("--predictor=fixed:UNLIMITED", ""),
    ],
)
def test_submit_unlimited_duration_is_rejected(folder: Path, option: str, words: str) -> None:
    (folder / "lines.sh").write_text(f"#!/bin/sh\n#SBATCH -t 5\n#MIRAGE {option}\nsleep 1\n")
    for arguments in ((option, "train.sh"), ("lines.sh",)):
        done = submit(folder, "--dry-run", *arguments)
        assert done.returncode == 2
        assert "only a job's time limit can be UNLIMITED" in done.stderr
        assert words in done.stderr
        assert option.split("=", maxsplit=1)[0] in done.stderr


def test_submit_unlimited_time_limit_is_accepted(folder: Path) -> None:
    assert submit(folder, "--dry-run", "--time=UNLIMITED", "train.sh").returncode == 0


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("#MIRAGE --lynx 8", "bad.sh:2: there is no option --lynx"),
        ("#MIRAGE --dry-run", "bad.sh:2: there is no option --dry-run"),
        ("#MIRAGE 8", "bad.sh:2: expected an option"),
        ("#SBATCH --array=1", "bad.sh:2: cannot work in a chain"),
        ("#SBATCH -N1 -H", "bad.sh:2: sbatch would hold every link"),
        ("#SBATCH hetjob", "bad.sh:2: a heterogeneous job"),
        ("#PBS -l walltime=1:00:00", "line 2: directive of another batch system"),
        ('#SBATCH -J "x', "bad.sh:2: the"),
    ],
)
def test_mistakes_in_the_script_name_the_line(folder: Path, line: str, words: str) -> None:
    (folder / "bad.sh").write_text(f"#!/bin/sh\n{line}\ntrue\n")
    done = submit(folder, "--dry-run", "-t", "1:00:00", "bad.sh")
    assert done.returncode == 2
    assert words in done.stderr


def test_zero_needs_no_unit(folder: Path) -> None:
    chain = plan(folder, "--steering=pin", "--lead", "0", "--max-overlap=0", "train.sh")["chain"]
    assert (chain["lead"], chain["handover"]["max_overlap"]) == (0, 0)


@pytest.mark.parametrize(("exclusive", "warned"), [((), True), (("--exclusive",), False)])
def test_pin_without_whole_nodes_warns(
    folder: Path, world: World, exclusive: tuple[str, ...], warned: bool
) -> None:
    done = submit(folder, "--steering=pin", *exclusive, "train.sh", MIRAGE_SOCKET=str(world.socket))
    assert done.returncode == 0, done.stderr
    assert ("--exclusive" in done.stderr) is warned


def test_the_chain_reaches_the_loop_as_it_was_described(folder: Path, world: World) -> None:
    done = submit(folder, *shlex.split(EVERYTHING), "train.sh", MIRAGE_SOCKET=str(world.socket), MINE="1")
    assert done.returncode == 0, done.stderr
    (record,) = world.loop.records
    chain = record.chain
    assert done.stdout == f"Submitted chain {chain.chain_id}\n"
    assert chain.owner == chain.request.user == ME
    assert (chain.name, chain.steering, chain.predictor) == ("svc", Steering.HOLD, "reactive")
    assert chain.aim == Objective(ObjectiveKind.NO_INTERRUPTION, 0.9)
    assert (chain.done.links, chain.done.total_time) == (8, 864_000)
    assert (chain.done.file, chain.done.exit_code) == (f"{folder}/done", None)
    assert chain.handover.policy is HandoverPolicy.ON_START
    assert chain.handover.signal == WarnSignal("USR1", 90, batch_only=True)
    assert chain.handover.max_overlap == 1_800
    assert chain.failures.exit.recovery is FailureAction.STOP
    assert chain.failures.node.recovery is FailureAction.RETRY
    assert chain.failures.of(FailureKind.CANCELLED).recovery is FailureAction.STOP
    assert chain.request.warn == WarnSignal("USR1", 300, batch_only=True)
    assert chain.request.batch is not None
    assert chain.request.batch.text == SCRIPT
    assert chain.request.batch.directory == str(folder)
    assert dict(chain.request.batch.environment)["MINE"] == "1"


def test_other_forms_of_the_answer(folder: Path, world: World) -> None:
    socket = str(world.socket)
    parsable = submit(folder, "--parsable", "train.sh", MIRAGE_SOCKET=socket)
    assert parsable.stdout.strip() == world.loop.records[0].chain.chain_id
    as_json = submit(folder, "--json", "train.sh", "--socket", program="mbatch", MIRAGE_SOCKET=socket)
    assert json.loads(as_json.stdout)["chain"]["id"] == world.loop.records[1].chain.chain_id
    elsewhere = submit(folder, "--quiet", "--socket", socket, "train.sh", program="mbatch")
    assert (elsewhere.returncode, elsewhere.stdout) == (0, "")
    assert len(world.loop.records) == 3


SBATCH = """\
#!/bin/sh
case "$*" in *--test-only*) ;; *) exit 9;; esac
echo "allocation failure: $SAID" >&2
exit 1
"""
SINFO = """\
#!/bin/sh
echo "$NODES"
"""
SCONTROL = """\
#!/bin/sh
case "$*" in
  *reservation*) echo "ReservationName=course StartTime=1 EndTime=2000000000 Users=bob $RESERVED";;
  *partition*) echo "PartitionName=v100 Nodes=n[1-4] Default=NO"; echo "PartitionName=cpu Nodes=c1 Default=YES";;
esac
"""


@pytest.fixture
def rejecting(folder: Path) -> Path:
    """A Slurm that rejects what it is asked about, in words of the test's."""
    for name, text in (("sbatch", SBATCH), ("sinfo", SINFO), ("scontrol", SCONTROL)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("said", "nodes", "accepted"),
    [
        ("Invalid qos specification", "idle", False),
        ("Requested node configuration is not available", "idle", False),
        ("Requested node configuration is not available", "drain*", True),
        ("Requested node configuration is not available", "resv", True),
        ("Requested node configuration is not available", "alloc State=ACTIVE Nodes=n2,c1", True),
        ("Requested node configuration is not available", "alloc State=ACTIVE Nodes=other", False),
        ("AssocMaxSubmitJobLimit: Job violates accounting/QOS policy", "idle", True),
        ("Unable to contact slurm controller (connect failure)", "idle", True),
    ],
)
def test_permanent_rejection_fails_at_submission(
    rejecting: Path, world: World, said: str, nodes: str, accepted: bool
) -> None:
    state, _, reserved = nodes.partition(" ")
    settings = {"MIRAGE_SOCKET": str(world.socket), "SAID": said, "NODES": state}
    settings["RESERVED"] = reserved or "State=INACTIVE Nodes=n2,c1"
    done = submit(rejecting, "train.sh", **settings)
    assert (done.returncode, len(world.loop.records)) == ((0, 1) if accepted else (1, 0))
    assert accepted or said in done.stderr
    assert submit(rejecting, "--no-check", "train.sh", **settings).returncode == 0


def test_a_script_that_says_when_it_is_ready_finds_the_folder_made(folder: Path, world: World) -> None:
    assert submit(folder, "train.sh", MIRAGE_SOCKET=str(world.socket)).returncode == 0
    assert not (folder / ".mirage").exists()
    assert submit(folder, "--handover=when-ready", "train.sh", MIRAGE_SOCKET=str(world.socket)).returncode == 0
    ready = Path(world.loop.records[1].chain.handover_file(1))
    assert ready.parent == folder / ".mirage"
    assert ready.parent.is_dir()
    done = submit(folder, "--handover=when-ready", "-D", "/nowhere", "train.sh", MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, "directory '/nowhere' does not exist" in done.stderr) == (2, True)


def test_done_file_of_an_earlier_chain_is_named_before_it_ends_a_new_one(folder: Path, world: World) -> None:
    chained = ("--done-file=all.done", "train.sh")
    (folder / "all.done").symlink_to("gone")
    done = submit(folder, *chained, MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, len(world.loop.records)) == (2, 0)
    assert str(folder / "all.done") in done.stderr
    assert submit(folder, "--no-check", *chained, MIRAGE_SOCKET=str(world.socket)).returncode == 0
    (folder / "all.done").unlink()
    assert submit(folder, *chained, MIRAGE_SOCKET=str(world.socket)).returncode == 0


def test_done_file_that_can_never_count_is_rejected_as_such(folder: Path, world: World) -> None:
    (folder / "model.done").mkdir()
    done = submit(folder, "--done-file=model.done", "train.sh", MIRAGE_SOCKET=str(world.socket))
    assert (done.returncode, len(world.loop.records)) == (2, 0)
    assert "never" in done.stderr


def test_help_is_there_without_heavy_imports(folder: Path) -> None:
    done = submit(folder, "--help")
    assert done.returncode == 0
    assert "--total-time" in done.stdout
    code = "import sys; from mirage.cli.main import app; from mirage.cli.submit import submit; submit(['--help'])"
    heavy = "print(sorted({'fastapi', 'uvicorn', 'pydantic', 'sqlalchemy', 'numba', 'rich'} & set(sys.modules)))"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{code}; {heavy}"], capture_output=True, text=True, check=True, cwd=folder
    )
    assert loaded.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("name", "start"), [("train", "train-"), ("my train/1", "my-train-1-"), ("", "chain-"), ("ü" * 90, "chain-")]
)
def test_chain_ids_are_readable_unlike_and_fit_for_tags(name: str, start: str) -> None:
    ids = {new_chain_id(name, "ada") for _ in range(50)}
    assert len(ids) == 50
    assert {owned_id(chain_id, "ada") for chain_id in ids} == ids, "as the daemon makes them"
    assert all(chain_id.startswith(start) and ":" not in chain_id and len(chain_id) <= 64 for chain_id in ids)


@pytest.mark.parametrize(
    "option",
    ["--links=999999999", "--lead=99999d", "--max-overlap=99999d", "--name=a\x1b]0;b", "--grace=999999999"],
)
def test_submit_option_beyond_its_bounds_is_refused_with_its_place(option: str) -> None:
    given, _ = CHAIN.read([Word(option, "job.sh:2")])
    with pytest.raises(BadSpelling, match=r"job\.sh:2") as refused:
        chain_document({each.name: each for each in given}, "/home/ada", None)
    assert str(refused.value).isprintable()
