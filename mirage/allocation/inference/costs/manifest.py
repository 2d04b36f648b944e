"""Origin of a cost table, stored next to it as JSON, so that its figures can be judged and reproduced."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mirage.documentfaults import faults_of, reader_of
from mirage.domain.errors import MirageError

if TYPE_CHECKING:
    from pathlib import Path


class ManifestError(MirageError):
    """A manifest that cannot be read, or that belongs to another table."""


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Measurement(_Document):
    """Measurements of one model on one real unit."""

    repeats: int = Field(ge=1)
    median_seconds: float = Field(ge=0)
    p95_seconds: float = Field(ge=0)
    resident_bytes: int = Field(ge=0)
    """Additional memory of the process after the model was loaded and run, in bytes."""
    model_sha256: str


class UnitSource(_Document):
    """Origin of the column of one kind."""

    source: str
    clock_hz: float | None = Field(default=None, gt=0)
    """Clock of the cycles, in Hz; ``None`` where seconds were measured."""
    hardware: str = ""
    """The cost model's description of the array, or the name of the real unit."""
    mapping: str = ""
    """How layers are mapped to the array, or the settings of the runtime."""
    energy: str = ""
    """Origin of the joules; states it if joules are unknown."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """Measurements by model; empty for a cost model."""


class Manifest(_Document):
    """Origin of a whole table."""

    format: Literal["mirage-costs-1"] = "mirage-costs-1"
    made_by: str
    """Tool and version."""
    models: dict[str, str]
    """Description of each model."""
    units: dict[str, UnitSource]
    hashes: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the table and of each unit's hardware and mapping."""


def manifest_path(table: Path) -> Path:
    """Path of the manifest: ``edge.csv`` has ``edge.manifest.json``."""
    return table.with_suffix(".manifest.json")


def write_manifest(manifest: Manifest, table: Path) -> None:
    """Write it after the table, with the hashes of the table's content."""
    hashes = {"table": sha256(table.read_bytes()).hexdigest(), **_unit_hashes(manifest)}
    text = manifest.model_copy(update={"hashes": hashes}).model_dump_json(indent=1)
    manifest_path(table).write_text(text + "\n", encoding="utf-8")


def read_manifest(table: Path) -> Manifest | None:
    """``None`` for a table without a manifest. Raises ``ManifestError`` if it is damaged or of another table."""
    path = manifest_path(table)
    if not path.exists():
        return None
    try:
        manifest = reader_of(Manifest).validate_json(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path}: {error}") from error
    except ValidationError as error:
        raise ManifestError(f"{path}: {faults_of(error)[0]}") from error
    found = {"table": sha256(table.read_bytes()).hexdigest(), **_unit_hashes(manifest)}
    wrong = sorted({name for name, _ in found.items() ^ manifest.hashes.items()})
    if wrong:
        raise ManifestError(f"{path}: written for another state of: {', '.join(wrong)} (SHA-256 differs)")
    return manifest


def _unit_hashes(manifest: Manifest) -> dict[str, str]:
    return {
        f"{kind}.{part}": sha256(text.encode()).hexdigest()
        for kind, unit in manifest.units.items()
        for part, text in (("hardware", unit.hardware), ("mapping", unit.mapping))
    }
