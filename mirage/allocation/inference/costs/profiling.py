"""Cost tables measured on real units: whole networks in ONNX Runtime, one segment each.

A unit is named in option notation: ``cpu2=threads:2``, ``gpu=cuda:0``. Joules are those of the CPUs' packages by
Linux's powercap interface (RAPL): of all that ran, not of one process.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.allocation.inference.costs.tables import CostManifest, Measurement, UnitSource
from mirage.domain.errors import ArtifactMismatch, MirageError
from mirage.domain.inference import CostTable
from mirage.modelgraph.checking import read_network
from mirage.onnximport import onnx_runtime

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SPELLING = re.compile(r"(?P<kind>[A-Za-z0-9._-]+)=(?P<device>threads|cuda):(?P<number>\d{1,4})")


class BadUnit(MirageError):
    """A unit that is not in the form NAME=threads:N or NAME=cuda:N."""


@dataclass(frozen=True, slots=True)
class RealUnit:
    """Threads of this machine, or a CUDA device (an instance of MIG is one by CUDA_VISIBLE_DEVICES)."""

    kind: str
    device: str
    """``threads`` or ``cuda``."""
    number: int
    """Number of threads, or index of the device."""

    def __str__(self) -> str:
        return f"{self.device}:{self.number}"


def parse_unit(text: str) -> RealUnit:
    """Parse a unit. Raises ``BadUnit``."""
    found = SPELLING.fullmatch(text)
    if found is None or (found["device"] == "threads" and int(found["number"]) == 0):
        raise BadUnit(
            f"invalid unit {text!r}; expected NAME=threads:N (at least 1) or NAME=cuda:N, as cpu2=threads:2"
        )
    return RealUnit(found["kind"], found["device"], int(found["number"]))


POWERCAP = Path("/sys/class/powercap")
UNKNOWN = "not known: 0 stands for it"


class PackageMeter:
    """Energy counters of all CPU packages, in microjoules that wrap around."""

    def __init__(self, root: Path = POWERCAP) -> None:
        self._zones = sorted(zone for zone in root.glob("intel-rapl:*") if zone.name.count(":") == 1)
        self._before = self._read()

    @property
    def source(self) -> str:
        """Source of the figures, for a manifest."""
        return "RAPL, whole CPU packages" if self._before else UNKNOWN

    def joules(self) -> float:
        """Joules since the meter was created or last read; 0 if no counter is readable."""
        now = self._read()
        if not now or len(now) != len(self._before):
            return 0.0
        taken = [(after - before) % wrap for (after, wrap), (before, _) in zip(now, self._before, strict=True)]
        self._before = now
        return sum(taken) / 1e6

    def _read(self) -> list[tuple[int, int]]:
        """Counter and range of each package; empty where one cannot be read."""
        try:
            return [(_number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")) for zone in self._zones]
        except (OSError, ValueError):
            return []


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


PIECE = "network"
TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(bool)": np.bool_,
}


class CannotProfile(MirageError):
    """A network or a unit that cannot be measured here; the text names it and the reason."""


@dataclass(frozen=True, slots=True)
class ProfileRepeats:
    """Number of runs of a network: first unmeasured, then measured."""

    warmup: int = 5
    measured: int = 50


@dataclass(frozen=True, slots=True)
class Profile:
    """Measurements of one network on one unit."""

    measurement: Measurement
    joules: float


def profile(
    models: Sequence[Path], units: Sequence[RealUnit], repeats: ProfileRepeats, progress: Callable[[str], None]
) -> tuple[CostTable, CostManifest]:
    """The measured table: seconds are the median of a run, with batch 1 where the network leaves sizes open.

    Raises ``CannotProfile``, ``MissingExtra``.
    """
    names = [path.stem for path in models]
    for what, given in (("network", names), ("unit", [unit.kind for unit in units])):
        twice = sorted({name for name in given if given.count(name) > 1})
        if twice:
            raise CannotProfile(f"duplicate {what} name: {', '.join(twice)}; each {what} needs a different one")
    found: dict[tuple[str, str], Profile] = {}
    for path in models:
        for unit in units:
            found[path.stem, unit.kind] = one = measure(path, unit, repeats)
            seconds = one.measurement.median_seconds
            progress(f"{path.stem} on {unit.kind}: median {seconds * 1e3:.3f} ms")
    return _table(names, units, found), _manifest(models, units, found)


def measure(path: Path, unit: RealUnit, repeats: ProfileRepeats) -> Profile:
    """One network on one unit, with nothing else running in this process."""
    runtime, held = onnx_runtime("profiling networks"), _resident()
    session = _session(runtime, path, unit)
    feeds = {given.name: _filled(given, path) for given in session.get_inputs()}
    run = _runner(session, feeds, path, unit)
    for _ in range(repeats.warmup):
        run()
    meter = PackageMeter()
    seconds = [_timed(run) for _ in range(repeats.measured)]
    joules = meter.joules() / repeats.measured if unit.device == "threads" else 0.0
    measurement = Measurement(
        repeats=repeats.measured,
        median_seconds=float(np.median(seconds)),
        p95_seconds=float(np.quantile(seconds, 0.95)),
        resident_bytes=max(0, _resident() - held),
        model_sha256=sha256(path.read_bytes()).hexdigest(),
    )
    return Profile(measurement, joules)


def _session(runtime: Any, path: Path, unit: RealUnit) -> Any:
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.inter_op_num_threads = 1
    providers: list[Any] = ["CPUExecutionProvider"]
    if unit.device == "threads":
        options.intra_op_num_threads = unit.number
    else:
        if "CUDAExecutionProvider" not in runtime.get_available_providers():
            raise CannotProfile(
                f"{unit.kind}: this ONNX Runtime has no CUDA; install onnxruntime-gpu and use a GPU"
            )
        providers = [("CUDAExecutionProvider", {"device_id": unit.number}), *providers]
    try:
        read_network(path)
        session = runtime.InferenceSession(str(path), options, providers=providers)
    except ArtifactMismatch as error:
        raise CannotProfile(str(error)) from None
    except Exception as error:  # the runtime raises various classes
        raise CannotProfile(f"{path}: {str(error).splitlines()[0]}") from error
    if unit.device == "cuda" and "CUDAExecutionProvider" not in session.get_providers():
        raise CannotProfile(f"{unit.kind}: CUDA device {unit.number} cannot be used")
    return session


def _filled(given: Any, path: Path) -> np.ndarray:
    """An input: small random numbers for floats, zeros for integers that may be positions; open sizes are 1."""
    kind = TYPES.get(given.type)
    if kind is None:
        raise CannotProfile(
            f"{path}: input {given.name!r} is a {given.type}; only tensors of numbers are supported"
        )
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in given.shape]
    if np.issubdtype(kind, np.floating):
        return np.random.default_rng(0).standard_normal(shape).astype(kind)
    return np.zeros(shape, dtype=kind)


def _runner(session: Any, feeds: dict[str, np.ndarray], path: Path, unit: RealUnit) -> Callable[[], None]:
    def run() -> None:
        session.run(None, feeds)

    try:
        run()
    except Exception as error:  # the runtime raises various classes
        raise CannotProfile(f"{path} does not run on {unit.kind}: {str(error).splitlines()[0]}") from error
    return run


def _timed(run: Callable[[], None]) -> float:
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


def _table(names: list[str], units: Sequence[RealUnit], found: dict[tuple[str, str], Profile]) -> CostTable:
    profiles = [[found[name, unit.kind] for unit in units] for name in names]
    seconds = np.array([[one.measurement.median_seconds for one in row] for row in profiles])
    return CostTable(
        models=tuple(names),
        first=np.arange(len(names) + 1, dtype=np.int32),
        pieces=(PIECE,) * len(names),
        kinds=tuple(unit.kind for unit in units),
        seconds=seconds,
        compute_seconds=seconds.copy(),
        joules=np.array([[one.joules for one in row] for row in profiles]),
        dram_bytes=np.zeros_like(seconds),
    )


def _manifest(
    models: Sequence[Path], units: Sequence[RealUnit], found: dict[tuple[str, str], Profile]
) -> CostManifest:
    meter = PackageMeter()
    return CostManifest(
        made_by=f"onnxruntime {onnx_runtime('profiling networks').__version__}",
        models={path.stem: f"measured, {path.name}" for path in models},
        units={
            unit.kind: UnitSource(
                source="measured, median of whole networks",
                hardware=_processor() if unit.device == "threads" else f"CUDA device {unit.number}",
                mapping=str(unit),
                energy=meter.source if unit.device == "threads" else UNKNOWN,
                measured={path.stem: found[path.stem, unit.kind].measurement for path in models},
            )
            for unit in units
        },
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else 'a processor'}, {len(names)} cores seen"
