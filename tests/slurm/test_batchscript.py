"""Batch scripts, their options and the jobs they become; the truth is what a real sbatch (22.05) made."""

from __future__ import annotations

import contextlib
import getopt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain import bounds
from mirage.domain.errors import BadSpelling
from mirage.domain.job import UNLIMITED, JobRequest, WarnSignal
from mirage.slurm.batchscript import (
    MIRAGE_LINE,
    SBATCH_LINE,
    check_bounds,
    check_script,
    foreign_line,
    read_directives,
    read_interpreter,
)
from mirage.slurm.jobrequest import REFUSED, Sources, Surroundings, read_request, said_by_options
from mirage.slurm.option_values import parse_begin
from mirage.slurm.sbatch import capture, sbatch_arguments
from mirage.slurm.sbatchoptions import SBATCH, Takes, Word, given_by_environment

AROUND = Surroundings("job.sh", "alice", "/home/alice", 1_700_000_000, lambda partition: 3_600)


def words(line: str) -> list[str]:
    """The content of one #SBATCH line."""
    return [word.text for word in read_directives(f"#!/bin/sh\n{line}\ntrue\n", SBATCH_LINE, "q").words]


def on_command_line(text: str) -> Sources:
    given, rest = SBATCH.read([Word(word, "command line") for word in text.split()])
    assert rest == ()
    return Sources(command=given)


def request(text: str) -> JobRequest:
    return read_request(on_command_line(text), AROUND, "#!/bin/sh\n")[0]


def options(text: str) -> tuple[str, ...]:
    batch = request(text).batch
    assert batch is not None
    return batch.options


# Recorded: (line, the words that sbatch took from it, as its job name and comment showed).
RECORDED = [
    ('#SBATCH --comment="a # b" -J x', ["--comment=a # b", "-J", "x"]),
    ("#SBATCH --comment=a#b -J x", ["--comment=a"]),
    (r"#SBATCH --comment='a\'b' -J x", ["--comment=a'b", "-J", "x"]),
    (r'#SBATCH --comment="a\"b" -J x', ['--comment=a"b', "-J", "x"]),
    (r"#SBATCH --comment=a\\", ["--comment=a\\"]),
    ('#SBATCH "" -J x', []),
    ("#SBATCH -J x hetjob", ["-J", "x"]),
    ("#SBATCH-J x", ["-J", "x"]),
    ("#SBATCH --comment=a\\ b -J x", ["--comment=a", "b", "-J", "x"]),
    ('#SBATCH --comment="a\\ b" -J x', ["--comment=a b", "-J", "x"]),
    (" #SBATCH -J x", []),
    ("# foo\n\n  \t\n#SBATCH -J x\n#SBATCH -J y #c", ["-J", "x", "-J", "y"]),
    ("true\n#SBATCH -J x", []),
]


@pytest.mark.parametrize(("line", "expected"), RECORDED)
def test_lines_are_split_as_sbatch_splits_them(line: str, expected: list[str]) -> None:
    assert words(line) == expected


@pytest.mark.parametrize("line", [r'#SBATCH --comment="a\\"b" -J x', '#SBATCH -J "x', "#SBATCH : -J x"])
def test_what_sbatch_refuses_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(BadSpelling, match="q:2: "):
        words(line)


def test_other_marks_have_lines_of_their_own() -> None:
    text = "#!/bin/sh\n#SBATCH -N 2\n#MIRAGE --links 8\n#SBATCH hetjob\n"
    assert [word.text for word in read_directives(text, MIRAGE_LINE, "q").words] == ["--links", "8"]
    assert read_directives(text, SBATCH_LINE, "q").components == ("q:4",)
    assert foreign_line(text) == 0
    assert foreign_line("#!/bin/sh\n#PBS -N a\n") == 2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("echo\n", "interpreter"),
        ("#!/bin/sh\r\n", "DOS"),
        ("#!/bin/sh\na\0b", "NUL"),
    ],
)
def test_what_is_no_batch_script(text: str, problem: str) -> None:
    with pytest.raises(BadSpelling, match=problem):
        check_script(text, "train.sh")


MOST_WORDS = "#SBATCH" + " -H" * bounds.MOST_DIRECTIVE_WORDS
MOST_LINES = "\n".join(["#SBATCH -H"] * bounds.MOST_DIRECTIVES)
LARGEST = "#SBATCH -J" + "x" * (bounds.LARGEST_DIRECTIVES - 10)


@pytest.mark.parametrize("lines", [MOST_WORDS, MOST_LINES, LARGEST], ids=["words", "lines", "characters"])
def test_directives_within_bounds_are_read_and_one_more_is_not(lines: str) -> None:
    text = f"#!/bin/sh\n\n{lines}\ntrue\n#SBATCH -H\n"
    check_script(text, "q")
    assert read_directives(text, SBATCH_LINE, "q").words
    for read in (check_script, check_bounds, lambda text, name: read_directives(text, SBATCH_LINE, name)):
        with pytest.raises(BadSpelling, match=r"q.*line \d+"):
            read(text.replace("\ntrue", "\n#SBATCH -H\ntrue"), "q")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#!/bin/sh", ("/bin/sh",)),
        ("#! \t/bin/sh \t", ("/bin/sh",)),
        ("#!/usr/bin/env  -S a  b \t", ("/usr/bin/env", "-S a  b")),
        ("#!/bin/sh " + "x" * 245, ("/bin/sh", "x" * 245)),
        ("#!/bin/sh " + "x" * 246, None),
        ("#!/bin/sh a" + " " * 300 + "x", None),
        ("#!/bin/sh " + "é" * 123, None),
        ("#! \t", None),
        ("echo", None),
        ("", None),
    ],
    ids=lambda part: str(part)[:20],
)
@pytest.mark.parametrize("rest", ["", "\n", "\ntrue\n"])
def test_interpreter_is_what_the_kernel_reads(line: str, expected: tuple[str, ...] | None, rest: str) -> None:
    if expected is not None:
        assert read_interpreter(line + rest, "q") == expected
        return
    with pytest.raises(BadSpelling, match=r"q.*first line"):
        read_interpreter(line + rest, "q")


@pytest.mark.parametrize("option", ["-n", "-c", "--gpus=gpu:", "--gpus=", "--ntasks-per-node=", "--mincpus="])
def test_number_of_many_digits_is_left_to_sbatch(option: str) -> None:
    number = "9" * 5_000
    assert number in "".join(options(f"-N1 {option}{number}"))


@given(st.text(max_size=200))
def test_any_text_is_split_or_refused(text: str) -> None:
    with contextlib.suppress(BadSpelling):
        for word in read_directives(f"#SBATCH {text}", SBATCH_LINE, "q").words:
            assert word.text


plain_words = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=12)


@given(st.lists(plain_words.filter(lambda word: word.lower() not in ("hetjob", "packjob")), max_size=6))
def test_quoted_words_come_back_whole(given_words: list[str]) -> None:
    quoted = " ".join('"' + word.replace("\\", r"\\").replace('"', r"\"") + '"' for word in given_words)
    assert words(f"#SBATCH {quoted}") == given_words


LONG = [option.name + ("=" if option.takes is Takes.VALUE else "") for option in SBATCH.own]
SHORT = "".join(
    o.short + (":" if o.takes is Takes.VALUE else "") for o in SBATCH.own if o.short and o.short != "k"
)
PIECES = """
-N2 -N 2 --nodes=3 --no --node --exc --exclusive --nice -HQ -HN4 -- - x --hold --hold=1 --part p --ntasks-per=2
--tasks-per=2 --zz -Jx -Z
"""
pieces = st.sampled_from(PIECES.split())


@given(st.lists(pieces, max_size=6))
def test_options_are_read_as_getopt_reads_them(line: list[str]) -> None:
    """Python's getopt stops at the first other word too; of values that may be left out it knows nothing."""
    try:
        expected, rest = getopt.getopt(line, SHORT, LONG)
    except getopt.GetoptError:
        with pytest.raises(BadSpelling):
            SBATCH.read([Word(word, "") for word in line])
        return
    given_options, left = SBATCH.read([Word(word, "") for word in line])
    assert [word.text for word in left] == rest
    named = {f"-{o.short}": o.meaning for o in SBATCH.own} | {f"--{o.name}": o.meaning for o in SBATCH.own}
    assert [(g.name, g.value or "") for g in given_options] == [(named[name], value) for name, value in expected]


def test_the_environment_counts_more_than_the_script_and_less_than_the_command_line() -> None:
    environment = {"SBATCH_PARTITION": "e", "SBATCH_QOS": "e", "SBATCH_REQUEUE": "1", "HOME": "/"}
    script, _ = SBATCH.read([Word(word, "job.sh:2") for word in ["-ps", "-qs", "-As"]])
    command, _ = SBATCH.read([Word("-pc", "command line")])
    found, _ = read_request(Sources(script, given_by_environment(environment), command), AROUND, "#!/bin/sh\n")
    assert (found.partition, found.qos, found.account) == ("c", "e", "s")
    assert found.batch is not None
    assert found.requeue is True


@pytest.mark.parametrize(
    ("line", "requeue", "options"),
    [
        ("", None, ()),
        ("--requeue", True, ()),
        ("--no-requeue", False, ()),
        ("--requeue=expedite", True, ("--requeue=expedite",)),
    ],
)
def test_requeue_is_only_what_was_asked_for(line: str, requeue: bool | None, options: tuple[str, ...]) -> None:
    found = request(f"-t 1 {line}")
    assert found.batch is not None
    assert (found.requeue, found.batch.options) == (requeue, options)


def test_fields_are_filled() -> None:
    found = request(
        "-N 2 -t 1-12 -p gpu -A acc -q high --gres=gpu:a100:4,npu:1 -C a&b --exclusive --nice=50 --mem=10G "
        "--reservation=r -J name -D work --no-requeue --signal=B:USR1@300 -H --begin=now+1hour"
    )
    assert found.nodes == 2
    assert found.limit == 36 * 3_600
    assert (found.partition, found.account, found.qos, found.reservation) == ("gpu", "acc", "high", "r")
    assert found.gres_per_node == (("gpu:a100", 4), ("npu", 1))
    assert found.features == ("a", "b")
    assert found.exclusive
    assert found.held
    assert not found.requeue
    assert (found.nice, found.memory_mb_per_node, found.name) == (50, 10_240, "name")
    assert found.warn == WarnSignal("USR1", 300, batch_only=True)
    assert found.begin == AROUND.now + 3_600
    assert found.batch is not None
    assert found.batch.directory == "/home/alice/work"
    assert found.batch.options == ("--nodes=2",)


def test_other_options_are_passed_on_in_order_and_the_last_counts() -> None:
    assert options("--mail-type=END -o a.log --mail-type=FAIL -n 4") == (
        "--output=a.log",
        "--mail-type=FAIL",
        "--ntasks=4",
    )


def test_a_default_that_was_asked_for_is_said_lest_the_script_counts() -> None:
    assert "--nice=0" in options("--nice=0")
    assert "--oversubscribe" in options("--exclusive --oversubscribe")
    assert not request("--exclusive --oversubscribe").exclusive


def test_the_partition_is_asked_where_no_limit_is_given() -> None:
    asked: list[str] = []
    around = Surroundings("n", "alice", "/", 0, lambda partition: asked.append(partition) or 7_200)  # type: ignore[func-returns-value]
    assert read_request(on_command_line("-p long"), around, "#!/bin/sh\n")[0].limit == 7_200
    assert asked == ["long"]


@pytest.mark.parametrize(
    ("text", "limit"), [("0", UNLIMITED), ("10:10", 660), ("30", 1_800), ("UNLIMITED", UNLIMITED)]
)
def test_time_limits_are_whole_minutes(text: str, limit: int) -> None:
    assert request(f"-t {text}").limit == limit


@pytest.mark.parametrize(
    ("text", "cpus", "nodes"),
    [
        ("-c 8", 8, 1),
        ("--ntasks-per-node=4 -c 8 -N 2", 32, 2),
        ("-n 8 -N 2", 4, 2),
        ("-n 7 -N 2", 0, 2),
        ("-n 100", 0, 1),
        ("-n 4 -N 1-2", 0, 1),
        ("-n 1 -c 4", 4, 1),
        ("-n 8 --ntasks-per-node=2", 2, 4),
        ("--mincpus=16", 16, 1),
        ("", 0, 1),
    ],
)
def test_cpus_are_summed_up_where_that_is_certain(text: str, cpus: int, nodes: int) -> None:
    found = request(text)
    assert (found.cpus_per_node, found.nodes) == (cpus, nodes)


def test_what_options_say_is_not_to_be_rendered_twice() -> None:
    found = request("--gpus-per-node=a100:4 -c 8 -n 8")
    assert found.gres_per_node == (("gpu:a100", 4),)
    assert said_by_options(found) == {"gres_per_node", "cpus_per_node", "nodes"}
    assert said_by_options(request("--gres=gpu:4 --mem=1G")) == frozenset()
    assert request("--gpus=8 -N 2").gres_per_node == (("gpu", 4),)
    assert request("--gpus=8").gres_per_node == ()


@pytest.mark.parametrize(
    "gpus", ["--gpus-per-node=v100:1", "--gpus=2", "--gpus-per-task=1", "--gpus-per-socket=1"]
)
def test_request_gres_beside_an_option_for_gpus_is_passed_on(gpus: str) -> None:
    for text in (f"--gres=gpu:v100:2,npu:1 {gpus}", f"{gpus} --gres=gpu:v100:2,npu:1"):
        found = request(text)
        assert found.gres_per_node == (("gpu:v100", 2), ("npu", 1))
        arguments = sbatch_arguments(found)
        assert [word for word in arguments if word.startswith("--gres")] == ["--gres=gpu:v100:2,npu:1"]
        assert gpus in arguments


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_what_cannot_work_in_a_chain_is_refused_with_a_reason(option: str) -> None:
    takes = {o.name: o.takes for o in SBATCH.own}[option]
    with pytest.raises(BadSpelling, match="cannot work in a chain"):
        request(f"--{option}=1" if takes is Takes.VALUE else f"--{option}")


@pytest.mark.parametrize(
    "text", ["-N a", "--nice=x", "--signal=1.5", "-t soon", "--mem=lots", "--gres=a:b:c:d", "--begin=x"]
)
def test_what_cannot_be_read_names_its_place(text: str) -> None:
    with pytest.raises(BadSpelling, match="command line"):
        request(text)


def test_two_ways_to_ask_for_memory_exclude_each_other() -> None:
    with pytest.raises(BadSpelling, match="exclude"):
        request("--mem=1G --mem-per-cpu=1G")


def test_a_comment_gives_way_to_the_mark() -> None:
    found, remarks = read_request(on_command_line("--comment=mine"), AROUND, "#!/bin/sh\n")
    assert found.batch is not None
    assert found.batch.options == ()
    assert "mine" in remarks[0]


@pytest.mark.parametrize(("text", "expected"), [("NONE", ""), ("A,B=1", "A,B=1,")])
def test_the_links_variables_pass_whatever_is_exported(text: str, expected: str) -> None:
    (option,) = options(f"--export={text}")
    assert option.startswith(f"--export={expected}MIRAGE_CHAIN_ID,MIRAGE_LINK,")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 0),
        ("now+60", 60),
        ("now+2hours", 7_200),
        ("now-1day", -86_400),
        ("uts1700000060", 60),
        ("tomorrow", 86_400),
    ],
)
def test_relative_instants(text: str, seconds: int) -> None:
    assert parse_begin(text, 1_700_000_000) == 1_700_000_000 + seconds


def test_a_time_of_day_that_has_passed_is_tomorrows(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    noon = 1_700_049_600  # 2023-11-15 12:00 UTC
    assert parse_begin("13:30", noon) == noon + 5_400
    assert parse_begin("noon", noon) == noon + 86_400
    assert parse_begin("2023-11-16T12:00:30", noon) == noon + 86_430


@given(st.text(max_size=20))
def test_any_instant_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(BadSpelling):
        assert isinstance(parse_begin(text, 1_700_000_000), int)


def test_the_environment_keeps_what_is_the_users() -> None:
    inside = {
        "HOME": "/h",
        "SLURM_JOB_ID": "1",
        "SLURM_NNODES": "2",
        "SLURM_CONF": "c",
        "SLURM_JWT": "t",
        "MIRAGE_LINK": "3",
    }
    assert dict(capture(inside)) == {"HOME": "/h", "SLURM_CONF": "c"}
    assert dict(capture({"SLURM_MPI_TYPE": "pmix", "SLURM_JWT": "t"})) == {"SLURM_MPI_TYPE": "pmix"}
