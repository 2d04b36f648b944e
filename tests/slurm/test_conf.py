"""The text of slurm.conf: pairs, records, comments, continuations, includes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain.errors import ConfigError
from mirage.slurm.conf import ConfText, parse


def test_pairs_are_case_insensitive_and_the_last_one_wins():
    conf = parse("SelectType=select/linear\nselecttype = select/cons_tres  # newer\n", "slurm.conf")
    setting = conf.get("SELECTTYPE")
    assert setting is not None
    assert (setting.key, setting.value, setting.line) == ("selecttype", "select/cons_tres", 2)


def test_several_pairs_stand_on_one_line():
    conf = parse('ClusterName=x MaxTime=1-0 Note="two words"', "f")
    assert [(s.key, s.value) for s in conf.settings] == [
        ("ClusterName", "x"),
        ("MaxTime", "1-0"),
        ("Note", "two words"),
    ]


def test_a_value_may_hold_equal_signs_and_brackets():
    conf = parse("SchedulerParameters=bf_interval=2,bf_continue\nPort=[26108-26111]", "f")
    assert [s.value for s in conf.settings] == ["bf_interval=2,bf_continue", "[26108-26111]"]


def test_records_keep_their_pairs_together_and_in_order():
    text = 'NodeName=c[1-4] CPUs=4 Gres=gpu:1\nPartitionName=all Nodes=ALL\nDownNodes=c2 Reason="bad fan"\n'
    conf = parse(text, "slurm.conf")
    assert [(r.kind, r.name) for r in conf.records] == [
        ("nodename", "c[1-4]"),
        ("partitionname", "all"),
        ("downnodes", "c2"),
    ]
    assert conf.settings == ()
    node, _, down = conf.records
    cpus = node.get("Procs", "CPUs")
    assert cpus is not None
    assert (cpus.value, cpus.where) == ("4", "slurm.conf:1: CPUs")
    reason = down.get("reason")
    assert reason is not None
    assert reason.value == "bad fan"


def test_gres_lines_are_records_with_or_without_nodes():
    conf = parse("AutoDetect=off\nNodeName=a[1-2] Name=gpu Type=a100\nName=npu Count=8\n", "gres.conf")
    assert [(r.kind, r.name) for r in conf.records] == [("nodename", "a[1-2]"), ("name", "npu")]
    assert conf.get("autodetect") is not None


def test_comments_continuations_and_escaped_hashes():
    text = "# a whole line\n\nNodeName=c1 \\\n   CPUs=4 \\   # said below\n   Feature=a\\#b\nClusterName=z # end\n"
    conf = parse(text, "f")
    (node,) = conf.records
    assert [(s.key, s.value) for s in node.settings] == [("NodeName", "c1"), ("CPUs", "4"), ("Feature", "a#b")]
    assert node.settings[0].line == 3
    name = conf.get("ClusterName")
    assert name is not None
    assert (name.value, name.line) == ("z", 6)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("SchedulerParameters=a=1,\\\nb=2,\\\nc\nPort=3", [("SchedulerParameters", "a=1,b=2,c"), ("Port", "3")]),
        ("A=1 \\\nB=2", [("A", "1"), ("B", "2")]),
        ("A=1\\\n B=2", [("A", "1"), ("B", "2")]),
        ("A=1,\\ # why\n2", [("A", "1,2")]),
        ("A=1,\\  \r\n2", [("A", "1,2")]),
        ('A="1,\\\n 2"', [("A", "1, 2")]),
    ],
)
def test_a_value_goes_on_in_the_next_line(text: str, pairs: list[tuple[str, str]]) -> None:
    """Slurm removes the backslash and the line's end, nothing else (_strip_continuation in parse_config.c)."""
    assert [(s.key, s.value) for s in parse(text, "f").settings] == pairs


def test_of_two_backslashes_neither_joins_lines() -> None:
    assert [s.value for s in parse("A=1\\\\\nB=2", "f").settings] == ["1\\\\", "2"]


def test_windows_line_ends_and_a_continuation_at_the_end():
    assert [s.value for s in parse("A=1\r\nB=2 \\", "f").settings] == ["1", "2"]


def test_a_blank_value_is_kept():
    (record,) = parse("PartitionName=empty Nodes=", "f").records
    nodes = record.get("nodes")
    assert nodes is not None
    assert nodes.value == ""


def test_includes_are_read_in_place_with_the_cluster_name():
    asked: list[tuple[str, str]] = []

    def include(path: str, where: str) -> tuple[str, str]:
        asked.append((path, where))
        return path, "NodeName=c1\nPartitionName=p Nodes=c1"

    conf = parse("ClusterName=Linux\n  INCLUDE  nodes_%c.conf  # all of them\nMaxArraySize=5", "f", include)
    assert asked == [("nodes_linux.conf", "f:2")]
    assert [(r.kind, r.settings[0].file, r.settings[0].line) for r in conf.records] == [
        ("nodename", "nodes_linux.conf", 1),
        ("partitionname", "nodes_linux.conf", 2),
    ]
    assert [s.key for s in conf.settings] == ["ClusterName", "MaxArraySize"]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("ClusterName=x\nthis is not a pair\n", "f:2", "this is not a pair"),
        ("A=1 stray", "f:1", "stray"),
        ("Include other.conf", "f:1", "other.conf"),
        ("\\\n\\\n =5", "f:1", "expected Key=Value"),
    ],
)
def test_errors_name_the_line(text: str, place: str, said: str):
    with pytest.raises(ConfigError) as caught:
        parse(text, "f")
    assert caught.value.where == place
    assert said in str(caught.value)


def test_an_include_of_itself_ends_with_an_error():
    with pytest.raises(ConfigError, match="include itself"):
        parse("Include me", "f", lambda path, _: (path, "Include me"))


@given(st.text(alphabet=st.sampled_from('aN=#\\\n\r "[]-,1 \tInclude'), max_size=80) | st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str):
    try:
        conf = parse(text, "f", lambda path, _: (path, "A=1"))
    except ConfigError:
        return
    assert isinstance(conf, ConfText)


WORDS = st.text(alphabet="abcXYZ019_", min_size=1, max_size=8)
VALUES = st.text(alphabet="abc019,[]:=/-. ", max_size=12).map(str.strip)


@given(st.lists(st.tuples(WORDS, VALUES), max_size=6))
def test_written_pairs_are_read_back(pairs: list[tuple[str, str]]):
    text = "\n".join(f'{key}="{value}"' for key, value in pairs)
    conf = parse(text, "f")
    read = [(s.key, s.value, s.line) for s in conf.settings] + [
        (s.key, s.value, s.line) for r in conf.records for s in r.settings
    ]
    assert sorted(read) == sorted((key, value, line) for line, (key, value) in enumerate(pairs, start=1))
