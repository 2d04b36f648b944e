"""Record the output of this Slurm about jobs of all kinds, for tests of parsers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from onehost import cluster
from onehost.commandrecordings import CELL, LATER, MARK, QUESTIONS, record
from onehost.errors import TestbedError
from onehost.layout import Layout
from onehost.programs import slurm_version
from onehost.recorder import Recorder
from onehost.restrecordings import record_rest
from onehost.zoo import Zoo

if TYPE_CHECKING:
    from collections.abc import Callable

    from onehost.settings import Settings


def capture(settings: Settings, target: Path, say: Callable[[str], None]) -> None:
    """Start a testbed, fill it with jobs, record all output into ``target``/VERSION, wipe the testbed."""
    if not settings.privileged:
        raise TestbedError("capture records several users and their accounts; run it as root")
    layout = Layout(Path(settings.directory))
    if layout.directory.exists():
        raise TestbedError(
            f"{layout.directory} exists; capture needs a separate testbed: wipe it or name another --dir"
        )
    cluster.start(settings, say)
    try:
        folder = target / slurm_version()
        say(f"recording into {folder}")
        record_all(settings, layout, Recorder(folder).emptied())
    finally:
        cluster.wipe(layout, say)


def record_all(settings: Settings, layout: Layout, recorder: Recorder) -> None:
    """Submit the jobs, then record every query about them."""
    zoo = Zoo(settings, layout)
    zoo.populate()
    record(QUESTIONS, zoo.jobs, layout, recorder)
    versions = record_rest(f"http://127.0.0.1:{settings.base_port + 3}", zoo.jobs, layout, recorder)
    record(LATER, zoo.jobs, layout, recorder)
    recorder.finish(
        {
            "slurm_version": slurm_version(),
            "rest_versions": versions,
            "speed": settings.speed,
            "cell": CELL,
            "mark": MARK,
            "jobs": zoo.jobs,
        }
    )
