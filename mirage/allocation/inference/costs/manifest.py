"""Where a cost table comes from: kept next to it as JSON, so that its figures can be judged and made again."""

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
    """Of one model on one real unit."""

    repeats: int = Field(ge=1)
    median_seconds: float = Field(ge=0)
    p95_seconds: float = Field(ge=0)
    resident_bytes: int = Field(ge=0)
    """What the process holds more with the model loaded and run than before."""
    model_sha256: str


class UnitSource(_Document):
    """How one kind's column came about."""

    source: str
    clock_hz: float | None = Field(default=None, gt=0)
    """Cycles are told in this clock; none where seconds were measured."""
    hardware: str = ""
    """The cost model's description of the array, or the name of the real unit."""
    mapping: str = ""
    """How layers are laid over the array, or the settings of the runtime."""
    energy: str = ""
    """Where joules come from; says so where there are none."""
    measured: dict[str, Measurement] = Field(default_factory=dict)
    """By model; none where a cost model was asked."""


class Manifest(_Document):
    """Of a whole table."""

    format: Literal["mirage-costs-1"] = "mirage-costs-1"
    made_by: str
    """Tool and version."""
    models: dict[str, str]
    """What each is."""
    units: dict[str, UnitSource]
    hashes: dict[str, str] = Field(default_factory=dict)
    """SHA-256 of the table and of each unit's hardware and mapping."""


def manifest_path(table: Path) -> Path:
    """Next to the table: ``edge.csv`` has ``edge.manifest.json``."""
    return table.with_suffix(".manifest.json")


def write_manifest(manifest: Manifest, table: Path) -> None:
    """Written after the table, with the hashes of what is in it now."""
    hashes = {"table": sha256(table.read_bytes()).hexdigest(), **_unit_hashes(manifest)}
    text = manifest.model_copy(update={"hashes": hashes}).model_dump_json(indent=1)
    manifest_path(table).write_text(text + "\n", encoding="utf-8")


def read_manifest(table: Path) -> Manifest | None:
    """None where there is none. Raises ``ManifestError`` where it is damaged or not this table's."""
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
