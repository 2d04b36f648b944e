"""Directory of a table: a manifest of its content, and one compressed .npz for every few episodes.

By the fingerprints a table, and a model trained on it, recognise their cluster and their trace.
"""

from __future__ import annotations

import json
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from mirage import __version__
from mirage.atomic_file import draft_of, write_atomically
from mirage.documentreading import faults_of, parse_own_json, reader_of
from mirage.domain.errors import ConfigError
from mirage.domain.jobtable import Names
from mirage.features.schema import schema as schema_named
from mirage.features.table import Origin, Table
from mirage.trace.readers import within_free_memory

if TYPE_CHECKING:
    from pathlib import Path

    from mirage.domain.jobtable import JobTable
    from mirage.simulator.cluster import ClusterConfig


def cluster_fingerprint(cluster: ClusterConfig) -> str:
    """SHA-256 (hex) of a cluster's configuration, independent of its source."""
    settings = {name: value for name, value in asdict(cluster).items() if name != "source"}
    return sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def trace_fingerprint(trace: JobTable) -> str:
    """SHA-256 (hex) of a trace's jobs, independent of the file name."""
    digest = sha256()
    for field in fields(trace):
        value = getattr(trace, field.name)
        digest.update(field.name.encode())
        if isinstance(value, np.ndarray):
            digest.update(f"{value.dtype.str}{value.shape}".encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Names):
            digest.update(json.dumps(value.vocabulary).encode())
            digest.update(value.codes.tobytes())
    return digest.hexdigest()


FORMAT = 1
MANIFEST = "manifest.json"

_CORRUPT = (
    *(OSError, ValueError, KeyError, EOFError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError),
    RuntimeError,  # zipfile: an entry that is encrypted, or compressed in an unknown way
)
"""Exceptions of numpy for a file in another format."""

_AXES = {"features": 3, "submit": 2, "start": 2, "end": 1, "episode_start": 1, "nodes": 1, "limit": 1}
"""Axes of each array of a chunk, episodes first; as in ``Table``."""
ARRAYS = tuple(_AXES)

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class TableManifest:
    """Content of a directory, finished or not."""

    schema: str
    schema_hash: str
    origin: Origin
    nodes: tuple[int, ...]
    limit: int
    partition: str
    chunks: int
    """Number of chunk files of the finished table."""
    mirage: str = __version__
    format: int = FORMAT

    @property
    def hand_overs(self) -> int:
        """Largest possible number of handovers: those that never begin are left out."""
        starts = range(self.origin.first, self.origin.last + 1, self.origin.every)
        return len(starts) * len(self.nodes)

    def text(self) -> str:
        """The manifest as JSON text."""
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"

    @property
    def mark(self) -> str:
        """Mark that every chunk of this table carries."""
        return sha256(self.text().encode()).hexdigest()


_MANIFEST = reader_of(TableManifest)


def read_manifest(folder: Path) -> TableManifest:
    """The manifest of a directory. Raises ``ConfigError`` naming the file."""
    path = folder / MANIFEST
    try:
        manifest = _MANIFEST.validate_python(parse_own_json(path.read_bytes()), extra="forbid")
    except FileNotFoundError:
        raise ConfigError(str(path), "file not found; name the directory of a table") from None
    except ValidationError as error:
        raise ConfigError(str(path), f"not the manifest of a table: {faults_of(error)[0]}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(str(path), f"not the manifest of a table: {error}") from error
    if manifest.origin.every < 1:
        raise ConfigError(str(path), "not the manifest of a table: origin.every must be above 0")
    if manifest.chunks < 1:
        raise ConfigError(str(path), "not the manifest of a table: chunks must be above 0")
    if manifest.format != FORMAT:
        raise ConfigError(str(path), f"has format {manifest.format}; this version reads {FORMAT}")
    return manifest


def begin(folder: Path, manifest: TableManifest) -> None:
    """Create the directory, or verify that it holds this table. Raises ``ConfigError`` if it holds another."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / MANIFEST).exists():
        write_atomically(folder / MANIFEST, manifest.text().encode())
        return
    kept = read_manifest(folder)
    if kept != manifest:
        one, other = asdict(kept), asdict(manifest)
        named = ", ".join(name for name in one if one[name] != other[name])
        raise ConfigError(
            str(folder), f"holds another table (another {named}): name another directory or delete it"
        )


def chunk_path(folder: Path, number: int) -> Path:
    """The file of a chunk."""
    return folder / f"chunk-{number:04}.npz"


def write_chunk(folder: Path, number: int, manifest: TableManifest, arrays: Arrays) -> None:
    """Write a chunk, completely or not at all."""
    named: dict[str, Any] = {"mark": np.array(manifest.mark)} | arrays
    with draft_of(chunk_path(folder, number)) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **named)


def read_chunk(folder: Path, number: int, manifest: TableManifest) -> Arrays:
    """The arrays of a chunk.

    Raises ``ConfigError`` naming a file that is missing, corrupt or another table's, ``TraceError`` for one
    that is larger than the memory.
    """
    path = chunk_path(folder, number)
    try:
        with within_free_memory(str(path)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an array with a header of an older version is valid as well
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                arrays = {name: file[name] for name in ("mark", *ARRAYS)}
    except FileNotFoundError:
        raise ConfigError(str(path), f"missing (the table has {manifest.chunks} chunks); build it again") from None
    except _CORRUPT as error:
        raise ConfigError(str(path), f"is corrupt: {error}; delete it and build the table again") from error
    if str(arrays.pop("mark")) != manifest.mark:
        raise ConfigError(str(path), f"belongs to another table than {MANIFEST} states; build the table again")
    if fault := _fault_in(arrays):
        raise ConfigError(str(path), f"is corrupt: {fault}; delete it and build the table again")
    return arrays


def _fault_in(arrays: Arrays) -> str:
    for name, axes in _AXES.items():
        array = arrays[name]
        if not isinstance(array, np.ndarray) or array.ndim != axes or array.dtype.kind not in "iuf":
            return f"{name} is not an array of numbers with {axes} axes"
    strange = (name for name in ARRAYS if len(arrays[name]) != len(arrays["end"]))
    return next((f"{name} and end have different numbers of handovers" for name in strange), "")


def read_table(folder: Path) -> Table:
    """A finished table. Raises ``ConfigError`` naming the file that is missing, corrupt or of another schema."""
    manifest = read_manifest(folder)
    schema = schema_named(manifest.schema)
    if schema.hash != manifest.schema_hash:
        raise ConfigError(
            str(folder / MANIFEST),
            f"was made with {manifest.schema} of another version (hash {manifest.schema_hash[:12]}, "
            f"here {schema.hash[:12]}): build the table again",
        )
    return Table(schema=schema, origin=manifest.origin, **_joined(folder, manifest))


def _joined(folder: Path, manifest: TableManifest) -> Arrays:
    """The arrays of all chunks end to end, read in place: two tables may not fit in memory together."""
    whole: Arrays = {}
    done = 0
    for number in range(manifest.chunks):
        chunk = read_chunk(folder, number, manifest)
        following = done + len(chunk["end"])
        try:
            for name, array in chunk.items():
                if name not in whole:
                    whole[name] = np.empty((manifest.hand_overs, *array.shape[1:]), dtype=array.dtype)
                whole[name][done:following] = array
        except (ValueError, MemoryError, OverflowError) as error:
            told = f"does not match {MANIFEST} and the chunks before: {error}; build the table again"
            raise ConfigError(str(chunk_path(folder, number)), told) from error
        done = following
    return {name: array[:done] for name, array in whole.items()}
