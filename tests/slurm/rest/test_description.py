"""Requests as job descriptions: nothing that was asked for is lost, in whichever version."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirage.domain.errors import SubmissionRejected
from mirage.domain.job import (
    UNLIMITED,
    BatchScript,
    Dependency,
    DependencyKind,
    JobChange,
    JobId,
    JobRequest,
    WarnSignal,
)
from mirage.slurm.rest.description import describe, describe_change, option_variables
from mirage.slurm.rest.versions import NEWEST, lower_change, lower_submission

NOW = 1_700_000_000
SCRIPT = "#!/bin/sh\n"
REQUEST = JobRequest("link", "alice", 3_600, tag="mirage:c:1", batch=BatchScript(SCRIPT))


def asked(*options: str, script: str = SCRIPT, **changes: Any) -> dict[str, Any]:
    return describe(replace(REQUEST, batch=BatchScript(script, options), **changes), NOW)


def test_the_script_counts_less_than_the_request_and_that_less_than_the_options() -> None:
    script = "#!/bin/sh\n#SBATCH -A fromscript -p fromscript --qos=fromscript\ntrue\n#SBATCH --wckey=never\n"
    found = asked("--qos=fromoptions", script=script, partition="asked", qos="asked")
    assert (found["account"], found["partition"], found["qos"]) == ("fromscript", "asked", "fromoptions")
    assert "wckey" not in found


@pytest.mark.parametrize(
    ("option", "fields"),
    [
        ("--mail-type=END,TIME_LIMIT_80", {"mail_type": ["END", "TIME=80%"]}),
        ("--mail-type=ALL", {"mail_type": ["BEGIN", "END", "FAIL", "REQUEUE", "STAGE_OUT"]}),
        ("--gpus=a100:2", {"tres_per_job": "gres/gpu:a100:2"}),
        ("--gpus-per-task=1", {"tres_per_task": "gres/gpu:1"}),
        ("--nodes=2-4", {"minimum_nodes": 2, "maximum_nodes": 4}),
        ("--exclusive=user", {"shared": ["user"]}),
        ("--mem-per-cpu=2G", {"memory_per_cpu": {"set": True, "infinite": False, "number": 2_048}}),
        ("--begin=now+1hour", {"begin_time": {"set": True, "infinite": False, "number": NOW + 3_600}}),
        ("--open-mode=append", {"open_mode": ["APPEND"]}),
        ("--no-requeue", {"requeue": False}),
        ("--nice", {"nice": 100}),
        ("--signal=B:USR2@90", {"kill_warning_signal": "USR2", "kill_warning_flags": ["BATCH_JOB"]}),
    ],
)
def test_options(option: str, fields: dict[str, Any]) -> None:
    assert asked(option).items() >= fields.items()


@pytest.mark.parametrize("option", ["--ntasks=100", "--gpus=8", "--nodelist=a[1-3]"])
def test_how_many_nodes_is_slurms_to_choose_where_the_options_leave_it_to_slurm(option: str) -> None:
    """Like ``sbatch`` without ``--nodes``: a job of one node could not hold 100 tasks."""
    assert asked("--ntasks-per-node=4", nodes=2)["maximum_nodes"] == 2
    assert "maximum_nodes" not in asked("--sockets-per-node=2", nodes=1), "no maximum was given"
    assert not {"minimum_nodes", "maximum_nodes"} & asked(option, nodes=1).keys()
    script = "#!/bin/sh\n#SBATCH --nodes=2-4\n"
    found = asked(option, script=script, nodes=1)
    assert (found["minimum_nodes"], found["maximum_nodes"]) == (2, 4), "the script's own line still counts"


@pytest.mark.parametrize(
    ("script", "options", "megabytes", "field"),
    [
        ("#SBATCH --mem=10G", ("--mem-per-cpu=1G",), 4_096, "memory_per_cpu"),
        ("#SBATCH --mem-per-cpu=1G", ("--mem=3G",), 0, "memory_per_node"),
        ("#SBATCH --mem-per-cpu=1G", (), 3_072, "memory_per_node"),
        ("#SBATCH --mem=3G", (), 0, "memory_per_node"),
    ],
)
def test_memory_is_said_once(script: str, options: tuple[str, ...], megabytes: int, field: str) -> None:
    found = asked(*options, script=f"#!/bin/sh\n{script}\n", memory_mb_per_node=megabytes)
    assert {name: found[name]["number"] for name in found if name.startswith("memory")} == {
        field: 1_024 if field == "memory_per_cpu" else 3_072
    }


@pytest.mark.parametrize("option", ["--cpus-per-gpu=2", "--mem-per-gpu=1G", "--gpus-per-socket=1", "--nodefile=x"])
def test_sizes_in_words_that_rest_does_not_have_are_refused_by_name(option: str) -> None:
    with pytest.raises(SubmissionRejected, match=option):
        asked(option, "--gpus=2", cpus_per_node=4, memory_mb_per_node=2_048)


@pytest.mark.parametrize(
    "option",
    ["--x11", "--export=NONE", "--array=1-5", "--signal=R:USR1", "--switches=2", "--nosuch", "--ntasks=many"],
)
def test_what_cannot_be_said_is_refused_by_name(option: str) -> None:
    with pytest.raises(SubmissionRejected, match=option[:8]) as refused:
        asked(option)
    assert refused.value.reason.isalnum()


def test_heterogeneous_jobs_are_refused() -> None:
    with pytest.raises(SubmissionRejected, match="heterogeneous"):
        asked(script="#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n")


def test_nothing_to_run_is_refused() -> None:
    with pytest.raises(SubmissionRejected, match="nothing to run"):
        describe(replace(REQUEST, batch=None), NOW)


def test_a_nul_is_refused() -> None:
    with pytest.raises(SubmissionRejected, match="NUL"):
        describe(replace(REQUEST, batch=BatchScript(SCRIPT, environment=(("A", "b\0c"),))), NOW)


def test_dependencies() -> None:
    conditions = (
        Dependency(DependencyKind.AFTERANY, JobId(3)),
        Dependency(DependencyKind.AFTER, JobId(4), 90),
        Dependency(DependencyKind.SINGLETON),
    )
    assert asked(dependencies=conditions)["dependency"] == "afterany:3,after:4+2,singleton"


def full() -> dict[str, Any]:
    return asked(
        "--output=x", "--exclude=a1", "--mail-type=END", "--gpus=2", "--nodes=2",
        nodes=2, limit=UNLIMITED, begin=NOW, held=True, nice=5, exclusive=True, requeue=False,
        memory_mb_per_node=10, gres_per_node=(("npu", 2),), warn=WarnSignal("USR1", 60),
    )  # fmt: skip


def test_from_40_on_as_it_is() -> None:
    assert lower_submission(46, full()) == lower_submission(40, full()) == {"job": full()}


def test_39_has_plain_instants_and_another_spelling_of_gres() -> None:
    job = lower_submission(39, full())["job"]
    assert job["begin_time"] == NOW
    assert (job["tres_per_job"], job["tres_per_node"]) == ("gres:gpu:2", "gres:npu:2")
    changed = {name for name in full() if job[name] != full()[name]}
    assert changed == {"begin_time", "tres_per_job", "tres_per_node"}


def test_up_to_38_in_sbatchs_words() -> None:
    body = lower_submission(38, full())
    assert body == lower_submission(36, full())
    assert body["script"] == SCRIPT
    assert body["job"] == {
        "name": "link",
        "nodes": 2,
        "time_limit": "UNLIMITED",
        "no_requeue": True,
        "hold": True,
        "nice": 5,
        "exclusive": "exclusive",
        "begin_time": f"uts{NOW}",
        "memory_per_node": "10M",
        "gpus": "2",
        "gres": "npu:2",
        "signal": "USR1@60",
        "standard_output": "x",
        "exclude_nodes": "a1",
        "mail_type": "END",
        "comment": "mirage:c:1",
        "current_working_directory": "/",
        "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin", "SLURM_SUBMIT_DIR": "/", "SLURM_GPUS": "2"},
    }


def test_what_38_has_no_field_for_is_refused_by_name() -> None:
    with pytest.raises(SubmissionRejected, match=r"v0\.0\.38 has no field for overcommit"):
        lower_submission(38, asked("--overcommit"))


def test_nodes_that_it_must_have() -> None:
    description = asked(node_list="a[1-2]")
    assert description["required_nodes"] == "a[1-2]"
    assert lower_submission(38, description)["job"]["nodelist"] == "a[1-2]"
    change = describe_change(JobChange(node_list="a1"))
    assert lower_change(38, change) == {"nodelist": "a1"}


def test_changes() -> None:
    change = {"hold": False, "nice": 0, "begin_time": {"set": True, "infinite": False, "number": 1_000_000}}
    assert lower_change(46, change) == change
    assert lower_change(39, change) == {"hold": False, "nice": 0, "begin_time": 1_000_000, "environment": []}
    assert lower_change(37, change) == {"hold": False, "nice": 0, "begin_time": "uts1000000"}


def test_description_has_what_sbatch_takes_from_the_shell() -> None:
    limits = (("NOFILE", 512), ("STACK", -1))
    batch = BatchScript(
        SCRIPT, environment=(("PATH", "/bin"), ("PWD", "/scratch")), directory="/home", umask=0o027,
        resource_limits=limits, arguments=("a b", "", "-p"),
    )  # fmt: skip
    found = describe(replace(REQUEST, batch=batch), NOW)
    assert found["argv"] == ["link", "a b", "", "-p"]
    assert set(found["environment"]) == {
        "PATH=/bin", "PWD=/scratch", "SLURM_SUBMIT_DIR=/scratch", "SLURM_UMASK=0027", "SLURM_RLIMIT_NOFILE=512",
        "SLURM_RLIMIT_STACK=18446744073709551615",
    }  # fmt: skip
    assert "requeue" not in found
    lowered = lower_submission(38, found)
    assert "argv" not in lowered["job"], "slurmrestd 22.05.8 does not survive it"
    assert "set -- 'a b' '' -p\n" in lowered["script"]
    assert lower_submission(39, found)["job"]["argv"] == found["argv"]
    with pytest.raises(SubmissionRejected, match="InvalidScript"):
        lower_submission(38, found | {"script": "no interpreter"})
    asked_for = describe(replace(REQUEST, batch=replace(batch, options=("--propagate=NOFILE",))), NOW)
    assert "SLURM_RLIMIT_NOFILE=U512" in asked_for["environment"]


LEAST = {"PATH=/bin", "SLURM_SUBMIT_DIR=/"}


@pytest.mark.parametrize(
    ("version", "option", "variables"),
    [
        (38, "--cpus-per-task=04", {"SLURM_CPUS_PER_TASK=4"}),
        (46, "-c4", {"SLURM_CPUS_PER_TASK=4"}),
        (38, "--ntasks=3", {"SLURM_NTASKS=3", "SLURM_NPROCS=3"}),
        (38, "--ntasks-per-node=2", {"SLURM_NTASKS_PER_NODE=2"}),
        (38, "--ntasks-per-core=1", {"SLURM_NTASKS_PER_CORE=1"}),
        (38, "--ntasks-per-socket=2", {"SLURM_NTASKS_PER_SOCKET=2"}),
        (38, "--threads-per-core=1", {"SLURM_THREADS_PER_CORE=1"}),
        (38, "--gpus=a100:2", {"SLURM_GPUS=a100:2"}),
        (38, "--gpus-per-node=2", {"SLURM_GPUS_PER_NODE=2"}),
        (39, "--gpus-per-task=1", {"SLURM_GPUS_PER_TASK=1"}),
        (42, "--gpus-per-task=1", set()),
        (41, "--open-mode=append", {"SLURM_OPEN_MODE=a"}),
        (38, "--open-mode=truncate", {"SLURM_OPEN_MODE=t"}),
        (42, "--open-mode=append", set()),
        (38, "--container=/c", {"SLURM_CONTAINER=/c"}),
        *(
            (38, option, set())
            for option in ("--mem=3G", "--gres=gpu:1", "--nodes=2", "--mincpus=3", "--export=ALL")
        ),
    ],
)
def test_description_has_the_variables_of_an_option(version: int, option: str, variables: set[str]) -> None:
    """The defaults of the sbatch in the Slurm with this API version (src/sbatch/opt.c, src/common/env.c)."""
    for script, options in ((SCRIPT, (option,)), (f"#!/bin/sh\n#SBATCH {option}\n", ())):
        batch = BatchScript(script, options, environment=(("PATH", "/bin"),))
        found = describe(replace(REQUEST, batch=batch), NOW, version=version)
        assert set(found["environment"]) == LEAST | variables


def test_description_option_counts_more_than_shell_and_script() -> None:
    environment = (("PATH", "/bin"), ("SLURM_NTASKS", "9"), ("SLURM_CONTAINER", "/own"), ("SLURM_GPUS", "7"))
    batch = BatchScript("#!/bin/sh\n#SBATCH -n 4\n", ("--ntasks=3", "--container=/c"), environment=environment)
    found = describe(replace(REQUEST, batch=batch), NOW)["environment"]
    assert set(found) == LEAST | {"SLURM_NTASKS=3", "SLURM_NPROCS=3", "SLURM_CONTAINER=/own", "SLURM_GPUS=7"}


def test_description_counts_tasks_as_sbatch_does_of_whole_nodes() -> None:
    options = ("--sockets-per-node=2", "--threads-per-core=1")
    assert "SLURM_NTASKS=6" in asked("--nodes=3", *options)["environment"]
    assert "SLURM_NTASKS=4" in asked(*options, nodes=2)["environment"]
    for other in ("--nodes=1-3", "--ntasks-per-node=1"):
        assert not [text for text in asked(other, *options)["environment"] if text.startswith("SLURM_NTASKS=")]


def test_description_has_the_dependency_as_variable() -> None:
    found = asked(dependencies=(Dependency(DependencyKind.AFTERANY, JobId(3)),))
    assert "SLURM_JOB_DEPENDENCY=afterany:3" in found["environment"]


@pytest.mark.parametrize(
    "changes",
    [
        {"text": "#!/bin/sh\n\udcff"},
        {"environment": (("A", "\udcff"),)},
        {"arguments": ("\udcff",)},
        {"arguments": ("\0",)},
    ],
)
def test_description_refuses_what_json_would_change(changes: dict[str, Any]) -> None:
    with pytest.raises(SubmissionRejected, match="InvalidText"):
        describe(replace(REQUEST, batch=replace(BatchScript(SCRIPT), **changes)), NOW)


@pytest.mark.parametrize("options", [("--nodes=2k", "--threads-per-core=2"), ("--ntasks=1e3",)])
def test_option_variables_of_no_plain_number_are_left_out(options: tuple[str, ...]) -> None:
    batch = BatchScript("#!/bin/sh\n", options=options)
    found = option_variables(JobRequest("x", "alice", 3_600, batch=batch), NEWEST)
    assert not {"SLURM_NTASKS", "SLURM_NPROCS"} & found.keys()
