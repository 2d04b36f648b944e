"""Tables played on the small cluster: against the plain simulator, the control loop, kills and spoilt files."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from made_tables import PLAN, played
from small_trace import CLUSTER, DAY, HOUR, plan, trace

from mirage.domain.decision import ActionScores
from mirage.domain.errors import ConfigError, SubmissionRejected, TraceError
from mirage.domain.job import JobState
from mirage.domain.jobtable import Names
from mirage.domain.objective import Weights
from mirage.features.schema import encode, schema, schema_names
from mirage.replay import closedloop, episodes
from mirage.replay.closedloop import replay
from mirage.simulator.simulation import Simulation
from mirage.trace import readers
from mirage.training import chunks
from mirage.training.chunks import ARRAYS, MANIFEST, cluster_fingerprint, trace_fingerprint
from mirage.training.tables import Table, TablePlan, build_table, load_table

if TYPE_CHECKING:
    from mirage.domain.decision import Observation


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "small"


@pytest.fixture(scope="module")
def table(folder: Path) -> Table:
    return played(folder)


def equal(one: Table, other: Table) -> bool:
    same = (np.array_equal(getattr(one, name), getattr(other, name)) for name in ARRAYS)
    return all(same) and one.schema == other.schema and one.origin == other.origin


def test_the_shapes_are_the_plans(table: Table) -> None:
    assert table.features.shape == (20, 7, schema("v2").size)
    assert table.features.dtype == np.float32
    assert table.submit.shape == table.start.shape == (20, 7)
    assert table.nodes.tolist() == [1, 2] * 10
    assert table.episode_start.tolist() == [start for start in PLAN.starts() for _ in PLAN.nodes]
    assert (np.diff(table.submit, axis=1) == PLAN.grid).all()
    assert (table.submit[:, -1] == table.end).all()
    assert (table.end - table.submit[:, 0] == PLAN.limit).all()
    assert table.wait.max() > HOUR, "the cluster of this test must be contended"


def test_every_start_is_what_the_plain_simulator_does(table: Table) -> None:
    """Two submissions into a fresh simulation of the trace: no loop, no copies."""
    for episode in (0, 7, 13):
        for index in (0, 3, 6):
            simulation = Simulation(CLUSTER, trace())
            chain = PLAN.chains()[episode % 2]
            simulation.run_until(int(table.episode_start[episode]))
            first = simulation.submit(chain.link_request(1), PLAN.limit, JobState.TIMEOUT)
            simulation.run_until(int(table.submit[episode, index]))
            second = simulation.submit(chain.link_request(2), PLAN.limit, JobState.TIMEOUT)
            while simulation.job(second).start < 0:
                simulation.run_until(simulation.now + HOUR)
            assert simulation.job(second).start == table.start[episode, index]
            assert simulation.job(first).start == table.submit[episode, 0]


class Recorder:
    """Never submits; keeps the vector of everything that it is shown."""

    name = "recorder"

    def __init__(self, schema_name: str) -> None:
        self.schema = schema(schema_name)
        self.wants = replace(self.schema.wants, history=DAY)
        self.vectors: dict[tuple[int, int], np.ndarray] = {}
        self.past: list[tuple[int, int]] = []

    def predict(self, observation: Observation) -> ActionScores:
        assert observation.predecessor is not None
        assert observation.history is not None
        key = observation.predecessor.start, observation.time
        self.vectors[key] = encode(self.schema, observation)
        self.past.append((observation.time, len(observation.history)))
        return ActionScores(submit=0, hold=1)


@pytest.mark.parametrize("name", schema_names())
def test_features_are_what_the_control_loop_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every grid point the very vector that a predictor gets in a closed-loop replay."""
    small = replace(PLAN, end=PLAN.start + 9 * HOUR, nodes=(2,))
    table = played(tmp_path, name, plan=small)
    recorder = Recorder(name)
    for module in (closedloop, episodes):
        monkeypatch.setattr(module, "policy_predictor", lambda *_: recorder)
    replay(trace(), CLUSTER, plan("recorder", start=small.start, end=small.end, limit=small.limit))
    for episode in range(len(table)):
        for index in range(table.submit.shape[1] - 1):  # at the end the loop asks no predictor
            seen = recorder.vectors[int(table.submit[episode, 0]), int(table.submit[episode, index])]
            different = np.flatnonzero(seen != table.features[episode, index])
            assert not len(different), [table.schema.names[k] for k in different]
    submit = trace().submit
    for now, known in recorder.past:
        assert known == ((submit >= now - DAY) & (submit <= now)).sum()


def test_the_best_point_is_no_better_than_the_replays_oracle(table: Table) -> None:
    """The oracle also looks between the points of a grid four times as fine."""
    result = replay(trace(), CLUSTER, plan("oracle", start=PLAN.start, end=PLAN.end, limit=PLAN.limit))
    two = table.take(table.nodes == 2)
    returns = two.returns_of(two.best(Weights()), Weights()) * HOUR
    for outcome, found in zip(result.outcomes, returns, strict=True):
        assert abs(outcome.x) <= -found + 1e-6


def test_any_number_of_processes_builds_the_same(table: Table, tmp_path: Path) -> None:
    assert equal(played(tmp_path, workers=2), table)


def test_what_is_loaded_is_what_was_built(table: Table, folder: Path) -> None:
    assert equal(load_table(folder), table)
    assert table.origin.cluster_fingerprint == cluster_fingerprint(CLUSTER)
    assert table.origin.trace_fingerprint == trace_fingerprint(trace())
    assert table.origin.trace_end == trace().submit[-1]


def test_a_build_goes_on_with_what_is_missing_or_spoilt(table: Table, folder: Path, tmp_path: Path) -> None:
    copied(folder, tmp_path)
    first, second = tmp_path / "chunk-0000.npz", tmp_path / "chunk-0001.npz"
    second.write_bytes(second.read_bytes()[:-100])
    untouched, told = first.stat().st_mtime_ns, []
    again = build_table(
        trace(), CLUSTER, PLAN, schema("v2"), tmp_path, on_progress=lambda *counts: told.append(counts)
    )
    assert equal(again, table)
    assert first.stat().st_mtime_ns == untouched
    assert told == [(8, 10), (10, 10)]


KILLED = """
import sys
from pathlib import Path
from made_tables import played
if __name__ == "__main__":
    played(Path(sys.argv[1]), workers=2)
"""


def test_a_killed_build_leaves_nobody_behind_and_goes_on(table: Table, tmp_path: Path) -> None:
    script, target = tmp_path / "build.py", tmp_path / "table"
    script.write_text(KILLED)
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")])}
    build = subprocess.Popen([sys.executable, str(script), str(target)], env=env, start_new_session=True)
    while not list(target.glob("chunk-*.npz")):
        assert build.poll() is None
        time.sleep(0.02)
    build.send_signal(signal.SIGKILL)
    build.wait()
    while _alive_in_session(build.pid):
        time.sleep(0.05)
    assert equal(played(target), table)


def _alive_in_session(session: int) -> list[str]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(stat.parent.name)
    return found


# Bad input


def copied(folder: Path, tmp_path: Path) -> Path:
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.mark.parametrize(
    ("file", "spoil", "words"),
    [
        ("chunk-0001.npz", lambda content: content[: len(content) // 2], "chunk-0001.npz: is corrupt"),
        ("chunk-0001.npz", lambda content: b"", "chunk-0001.npz: is corrupt"),
        (
            "chunk-0000.npz",
            lambda content: content[:600] + b"x" * 50 + content[650:],
            "chunk-0000.npz: is corrupt",
        ),
        (MANIFEST, lambda content: content[:40], "manifest.json: not the manifest"),
        (MANIFEST, lambda content: content.replace(b'"format": 1', b'"format": 2'), "format 2"),
        (MANIFEST, lambda content: content.replace(b'"chunks": 2', b'"chunks": 0'), "chunks must be above 0"),
        (MANIFEST, lambda content: content.replace(b'"limit": 43200', b'"limit": 7200'), "belongs to another"),
        (MANIFEST, lambda content: content.replace(b'"schema": "v2"', b'"schema": "v9"'), "'v9' is none of"),
    ],
)
def test_spoilt_files_are_named(table: Table, folder: Path, tmp_path: Path, file, spoil, words: str) -> None:
    copy = copied(folder, tmp_path)
    (copy / file).write_bytes(spoil((copy / file).read_bytes()))
    with pytest.raises(ConfigError, match=words):
        load_table(copy)


def test_chunk_whose_head_claims_more_than_the_memory_is_named(
    table: Table, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve gigabytes, as 52 MB of a packed file can claim."""
    copy = copied(folder, tmp_path)
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f8", "fortran_order": False, "shape": (1_500_000_000,)})
    with zipfile.ZipFile(copy / "chunk-0000.npz", "a") as packed, packed.open("more.npy", "w") as file:
        file.write(head.getvalue())
    monkeypatch.setattr(chunks, "ARRAYS", ("more", *ARRAYS))
    monkeypatch.setattr(readers, "_SHARE", 1 << 40)
    with pytest.raises(TraceError, match=r"chunk-0000.npz: out of memory"):
        load_table(copy)


def test_missing_files_are_named(table: Table, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"manifest.json: file not found"):
        load_table(tmp_path / "nowhere")
    copy = copied(folder, tmp_path)
    (copy / "chunk-0000.npz").unlink()
    with pytest.raises(ConfigError, match=r"chunk-0000.npz: missing \(the table has 2 chunks\)"):
        load_table(copy)


def test_a_schema_of_another_version_is_refused(table: Table, folder: Path, tmp_path: Path) -> None:
    copy = copied(folder, tmp_path)
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps(manifest | {"schema_hash": "0" * 64}))
    with pytest.raises(ConfigError, match=r"manifest.json: was made with v2 of another version \(hash 0000"):
        load_table(copy)


def test_a_folder_with_another_table_is_left_alone(table: Table, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"holds another table \(another limit\)"):
        played(folder, plan=replace(PLAN, limit=6 * HOUR))
    with pytest.raises(ConfigError, match=r"another .*schema"):
        played(folder, "paper-v1")
    assert equal(load_table(folder), table)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"grid": 700}, "--grid"),
        ({"grid": 0}, "--grid"),
        ({"nodes": ()}, "--nodes"),
        ({"nodes": (1, 0)}, "--nodes"),
        ({"start": 5}, "--start"),
        ({"end": 5}, "--end"),
        ({"limit": 0}, "--limit"),
    ],
)
def test_a_plan_that_cannot_be_played_names_the_option(changes, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        played(tmp_path / "new", plan=replace(PLAN, **changes))
    assert not (tmp_path / "new").exists()


def test_a_job_that_the_cluster_refuses(tmp_path: Path) -> None:
    with pytest.raises(SubmissionRejected):
        played(tmp_path, plan=replace(PLAN, nodes=(7,)))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_trace_that_the_cluster_refuses(workers: int, tmp_path: Path) -> None:
    """Whichever process meets it first."""
    strange = replace(trace(), partition=Names.encode(["nowhere"] * len(trace())))
    with pytest.raises(TraceError, match="nowhere"):
        build_table(strange, CLUSTER, PLAN, schema("v2"), tmp_path / "new", workers=workers)


def test_fingerprints_follow_what_is_simulated() -> None:
    assert cluster_fingerprint(replace(CLUSTER, source="elsewhere")) == cluster_fingerprint(CLUSTER)
    assert cluster_fingerprint(replace(CLUSTER, name="other")) != cluster_fingerprint(CLUSTER)
    assert trace_fingerprint(replace(trace(), source="elsewhere")) == trace_fingerprint(trace())
    assert trace_fingerprint(trace(seed=1)) != trace_fingerprint(trace())
    assert isinstance(PLAN, TablePlan)
