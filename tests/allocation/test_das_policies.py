"""Trained agents as files: what is written is read again, decides as in training, and is rejected where
damaged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="training needs torch")
pytest.importorskip("onnx", reason="agents are exported by onnx")

from das_views import instant, pool_of  # noqa: E402

from mirage.allocation.ddl.das.policies import (  # noqa: E402
    ORDERING,
    PLACEMENT,
    das_placer,
    read_artifact,
    write_artifact,
)
from mirage.allocation.ddl.generator import ModelClass, TaskMix, draw_tasks  # noqa: E402
from mirage.allocation.ddl.registry import ordering, placer  # noqa: E402
from mirage.allocation.ddl.simulation import DispatchRules, SimulatedPool  # noqa: E402
from mirage.artifact import MANIFEST  # noqa: E402
from mirage.domain.errors import ArtifactMismatch, ConfigError  # noqa: E402
from mirage.domain.pool import SpeedTable  # noqa: E402
from mirage.training.das.agents import (  # noqa: E402
    Agents,
    graphs_of,
    process_of,
)
from mirage.training.das.networks import DasShape  # noqa: E402
from mirage.training.das.rollouts import play  # noqa: E402

if TYPE_CHECKING:
    from pathlib import Path


def simulated(seed: int, tasks: int = 25) -> SimulatedPool:
    """A small pool whose tasks slow each other."""
    rng = np.random.default_rng(seed)
    pool = pool_of(3, 4)
    drawn = draw_tasks(TaskMix((ModelClass("", 1.0, (1, 2, 4), (1.0, 1.0, 1.0)),), count=tasks), rng, 12)
    speeds = SpeedTable(
        rng.integers(0, 4, (tasks, 1, 3)).astype(np.int32), np.ones(4), rng.uniform(0.5, 1.0, (4, 4))
    )
    return SimulatedPool(drawn, pool, speeds, DispatchRules())


def disturbed_agents(shape: DasShape) -> Agents:
    """Agents whose every weight says something."""
    torch.manual_seed(3)
    agents = Agents(shape, pool_of(3, 4).switch)
    with torch.no_grad():
        for weight in agents.parameters():
            weight.add_(0.1 * torch.randn(weight.shape))
    return agents


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    agents = disturbed_agents(DasShape())
    made = tmp_path_factory.mktemp("agents") / "das"
    return write_artifact(made, graphs_of(agents), process_of(agents), {"seed": 3}, {"jct": 1.0})


@pytest.mark.parametrize(
    "shape",
    [DasShape(), DasShape(communicates=False), DasShape(walks=False), DasShape(communicates=False, walks=False)],
)
def test_agents_in_use_do_what_they_do_in_training(shape: DasShape, tmp_path: Path) -> None:
    agents = disturbed_agents(shape)
    made = write_artifact(tmp_path / "das", graphs_of(agents), process_of(agents), {}, {})
    used = simulated(1).play(ordering(f"das:{made}"), placer(f"das:{made}"))
    (trained,) = play([simulated(1)], agents, None)
    np.testing.assert_allclose(used.end, trained.outcome.end)
    np.testing.assert_array_equal(used.start, trained.outcome.start)


def test_agents_go_with_any_other_policy(folder: Path) -> None:
    for pair in ((f"das:{folder}", "best-fit"), ("fifo", f"das:{folder}")):
        outcome = simulated(2).play(ordering(pair[0]), placer(pair[1]))
        assert np.isfinite(outcome.end).all()


def test_machines_by_other_numbers_get_the_same_scores(folder: Path) -> None:
    view = instant(4, pool_of(4, 8), pending=10, running=6)
    scores = ordering(f"das:{folder}").score(view)
    assert scores.shape == (10,)
    assert np.isfinite(scores).all()


def test_strict_placing_stops_at_the_first_that_is_left(folder: Path) -> None:
    view = instant(8, pool_of(2, 4), pending=12, running=3)
    found = das_placer(str(folder)).place(view, view.pending, strict=True)
    assert [placement.task for placement in found] == view.pending[: len(found)].tolist()


def test_the_manifest_says_what_they_are(folder: Path) -> None:
    manifest, graphs = read_artifact(folder)
    assert set(manifest.files) == set(graphs) == {ORDERING, PLACEMENT}
    assert manifest.training == {"seed": 3}


@pytest.mark.parametrize("name", [ORDERING, PLACEMENT])
def test_changed_files_are_refused(folder: Path, tmp_path: Path, name: str) -> None:
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / name).write_bytes(b"other")
    with pytest.raises(ArtifactMismatch, match="was damaged or changed"):
        read_artifact(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ArtifactMismatch, match="cannot be read"):
        read_artifact(tmp_path)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"format": 99}, "update mirage"),
        ({"schema_hash": "0" * 64}, "train the agents again"),
        ({"more": 1}, "again"),
    ],
)
def test_manifests_of_other_versions_are_refused(
    folder: Path, tmp_path: Path, change: dict[str, object], told: str
) -> None:
    document = json.loads((folder / MANIFEST).read_text())
    (tmp_path / MANIFEST).write_text(json.dumps(document | change))
    with pytest.raises(ArtifactMismatch, match=told):
        read_artifact(tmp_path)


def test_a_folder_without_agents_is_said(tmp_path: Path) -> None:
    with pytest.raises(ArtifactMismatch, match="name the directory of a trained model"):
        placer(f"das:{tmp_path}")


def test_agents_are_not_written_over(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is there already"):
        write_artifact(folder, {}, read_artifact(folder)[0].process, {}, {})
