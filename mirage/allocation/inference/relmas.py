"""Trained agents as policies for requests: they score once per period, and a compiled matcher uses the scores.

An agent is a directory with the actor as ONNX, and a manifest. ``RelmasEncoder`` builds its observation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage import __version__
from mirage.allocation.graph import Graph
from mirage.allocation.inference.compiled_policies import Desk
from mirage.allocation.inference.kernel.scored import KINDS, SETTINGS, decide_scored
from mirage.allocation.inference.kernel.seeing import PAIR, PIECE, STATE, ObservedRows, Usual, gather, see
from mirage.allocation.inference.scores import CORE_WATTS, RequestScores
from mirage.artifact import (
    MANIFEST,
    digests_of,
    library_versions,
    manifest_as,
    manifest_text,
    read_files,
    read_manifest,
    refuse_other_schema,
    write_folder,
)
from mirage.documentreading import reader_of
from mirage.domain.errors import ArtifactMismatch
from mirage.domain.inference import Dispatch

if TYPE_CHECKING:
    from mirage.allocation.inference.kernel.layout import Look
    from mirage.domain.inference import Float64, SystemView

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]

MOST = 64
"""Most ready segments in an observation: those with the earliest deadlines that can still be kept."""

RECENT = 0.9
"""Weight of earlier observations, per observation."""

SCHEMA = "relmas-v2"
SCHEMA_HASH = sha256("|".join((SCHEMA, *PIECE, *PAIR, *STATE, str(MOST))).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class RelmasObservation:
    """The observation at one time. Rows (N) are by deadline; those that are late in any case come last."""

    order: Int32
    """[N] Rows of the view's ready requests, then of running ones; -1 less the model of requests to come."""
    piece: Float32
    """[N, len(PIECE)]"""
    pair: Float32
    """[N, K, len(PAIR)]"""
    state: Float32
    """[len(STATE)]"""
    model: Int32
    """[N]"""
    models: int
    """Number of models, M."""

    def scores(self, action: NDArray[np.floating]) -> RequestScores:
        """Distribute ``action`` [at least N, KINDS + K] to the requests."""
        told = np.asarray(action[: len(self.order)], dtype=np.float64)
        present = self.order >= 0
        coming = np.zeros((self.models, KINDS + self.pair.shape[1]))
        coming[-1 - self.order[~present]] = told[~present]
        return RequestScores(self.order[present], told[present], coming)


class RelmasEncoder:
    """Observes one system over time, and remembers its usual arrivals."""

    def __init__(self, first: Int32, dram_bytes: NDArray[np.float64]) -> None:
        """Columns of the cost table."""
        models = len(first) - 1
        self._usual = Usual(
            allowed=np.full(models, np.nan),
            tenant=np.zeros(models, np.int32),
            weight=np.ones(models),
            often=np.zeros(models),
            moved=_bytes_left(first, dram_bytes),
            kinds=np.zeros((3, dram_bytes.shape[1])),
        )

    def copy(self) -> RelmasEncoder:
        """An independent observer with the same memory."""
        other = object.__new__(RelmasEncoder)
        other._usual = Usual(*(part.copy() for part in self._usual))
        return other

    def look(self, look: Look, now: float, count: int, period: float) -> RelmasObservation:
        """The observation of the ``count`` ready requests, the running ones, and those to come."""
        slots = look.ready[:count]
        deadline = look.deadline[slots]
        late = deadline - now < look.least[look.piece[slots]]
        chosen = np.lexsort((deadline, late))[:MOST].astype(np.int32)
        self._remember(look, slots)
        rows = _room(len(chosen) + len(look.kind) + len(self._usual.often))
        found = gather(look, now, chosen, self._usual, rows)
        late = rows.deadline[:found] - rows.begins[:found] < look.least[rows.piece[:found]]
        order = np.lexsort((rows.deadline[:found], late)).astype(np.int32)
        seen = (
            np.zeros((found, len(PIECE)), np.float32),
            np.zeros((found, look.seconds.shape[1], len(PAIR)), np.float32),
            np.zeros(len(STATE), np.float32),
        )
        see(look, now, period, rows, order, count, self._usual, *seen)
        return RelmasObservation(rows.row[order], *seen, rows.model[order], len(self._usual.often))

    def _remember(self, look: Look, slots: NDArray[np.integer]) -> None:
        usual, model = self._usual, look.model[slots]
        if not len(model):
            return
        usual.allowed[model] = look.deadline[slots] - look.arrival[slots]
        usual.tenant[model], usual.weight[model] = look.tenant[slots], look.weight[slots]
        usual.often[:] *= RECENT
        usual.often[:] += (1.0 - RECENT) / len(model) * np.bincount(model, minlength=len(usual.often))


def _room(count: int) -> ObservedRows:
    whole, part = np.zeros((3, count), np.int32), np.zeros((3, count))
    return ObservedRows(whole[0], whole[1], whole[2], part[0], part[1], part[2])


def _bytes_left(first: Int32, dram_bytes: NDArray[np.float64]) -> NDArray[np.float64]:
    """[L] Seconds to the end of the model, each segment on the kind that moves the fewest bytes."""
    least = np.fmin.reduce(dram_bytes, axis=1)
    for begin, end in pairwise(first):
        least[begin:end] = np.cumsum(least[begin:end][::-1])[::-1]
    return np.asarray(least)


FORMAT = 1
ACTOR = "actor.onnx"


@dataclass(frozen=True, slots=True)
class Matching:
    """How scores are applied: parameters of ``kernel.scored``, and the scoring period."""

    period: float = 0.05
    """Period T_s, in seconds."""
    density: float = 0.0
    reach: float = 4.0
    hopping: float = 1.0
    crowding: float = 0.0
    holding: float = 1.0
    thrift: float = 16.0
    margin: float = 0.2
    leaving: float = 0.5


@dataclass(frozen=True, slots=True)
class RelmasManifest:
    """Metadata of a trained agent."""

    plugin: str
    """``relmas`` or ``odra``."""
    matching: Matching
    training: dict[str, Any]
    """Training scenarios, settings and seeds."""
    metrics: dict[str, float]
    """Results on the validation workloads."""
    decision_seconds: float
    """Seconds of one decision with many requests, measured where it was trained; simulated systems wait for it."""
    libraries: dict[str, str]
    files: dict[str, str]
    """SHA-256 (hex) of every other file."""
    schema: str = SCHEMA
    schema_hash: str = SCHEMA_HASH
    mirage: str = __version__
    format: int = FORMAT


_MANIFEST = reader_of(RelmasManifest)


def read_agent(folder: Path, plugin: str) -> tuple[RelmasManifest, bytes]:
    """The manifest and the verified graph. Raises ``ArtifactMismatch`` naming the file."""
    manifest = _manifest(folder)
    if manifest.plugin != plugin:
        raise ArtifactMismatch(
            str(folder / MANIFEST), f"is of a {manifest.plugin!r} agent; use {manifest.plugin}:{folder}"
        )
    refuse_other_schema(folder, (manifest.schema, manifest.schema_hash), (SCHEMA, SCHEMA_HASH))
    return manifest, read_files(folder, manifest.files, (ACTOR,))[ACTOR]


def policy_name(folder: Path) -> str:
    """The policy name of the agent in ``folder``: ``relmas:DIR`` or ``odra:DIR``.

    Raises ``ArtifactMismatch``.
    """
    return f"{_manifest(folder).plugin}:{folder}"


def _manifest(folder: Path) -> RelmasManifest:
    return manifest_as(_MANIFEST, read_manifest(folder, FORMAT), folder, "an agent for requests")


def write_agent(
    folder: Path,
    plugin: str,
    actor: bytes,
    matching: Matching,
    training: dict[str, Any],
    metrics: dict[str, float],
    decision_seconds: float,
) -> Path:
    """Write an agent to ``folder``, completely or not at all. Raises ``ConfigError`` for an existing directory."""
    files = {ACTOR: actor}
    versions, digests = library_versions("torch"), digests_of(files)
    manifest = RelmasManifest(plugin, matching, training, metrics, decision_seconds, versions, digests)
    return write_folder(folder, {**files, MANIFEST: manifest_text(asdict(manifest)).encode()})


def parameters_of(matching: Matching) -> Float64:
    """Settings in the form of ``kernel.scored``."""
    return np.array([getattr(matching, name) for name in SETTINGS])


class LearnedPolicy:
    """A ``ScoredPolicy`` with an actor. Without one every score is 0: the plain matcher."""

    def __init__(self, name: str, matching: Matching, actor: Graph | None, decision_seconds: float = 0.0) -> None:
        self.name, self.parameters = name, parameters_of(matching)
        self.period = np.inf if actor is None else matching.period
        self.decision_seconds, self.decision_joules = decision_seconds, decision_seconds * CORE_WATTS
        self._actor = actor
        self.begin()

    def begin(self) -> None:
        """See ``ports.RequestPolicy``."""
        self._kept: dict[int, Float64] = {}
        self._coming: Float64 | None = None
        self._desk = Desk()
        self._eye: RelmasEncoder | None = None
        self._next = -np.inf

    def scores(self, view: SystemView) -> RequestScores:
        """See ``ScoredPolicy``."""
        return self._score(self._desk.look(view), view)

    def decide(self, view: SystemView) -> Dispatch:
        """See ``ports.RequestPolicy``. Scores again at the end of the period."""
        look = self._desk.look(view)
        kept, draft = self._recall(look, view), self._desk.draft(look)
        count = decide_scored(self.parameters, kept, look, view.now, len(view.request), draft)
        return Dispatch(draft.ready[:count].copy(), draft.unit[:count].copy())

    def _score(self, look: Look, view: SystemView) -> RequestScores:
        if self._eye is None:
            self._eye = RelmasEncoder(look.first, look.dram_bytes)
        sight = self._eye.look(look, view.now, len(view.request), self.period)
        return sight.scores(act(self._actor, sight))

    def _recall(self, look: Look, view: SystemView) -> Float64:
        """State by slot; only that of requests still present is kept."""
        if self._coming is None:
            self._coming = np.zeros((len(look.first) - 1, KINDS + look.seconds.shape[1]))
        numbers, new = look.number.tolist(), self._coming[look.model]
        found = [self._kept.get(number, other) for number, other in zip(numbers, new, strict=True)]
        kept = np.array(found).reshape(new.shape)
        if view.now >= self._next and len(view.request):
            scores = self._score(look, view)
            kept[scores.rows], self._coming = scores.kept, scores.coming
            self._next = view.now + self.period
        self._kept = dict(zip(numbers, kept, strict=True))
        return kept


def act(actor: Graph | None, sight: RelmasObservation) -> Float64:
    """[N, KINDS + K] Scores of the actor."""
    if actor is None or not len(sight.order):
        return np.zeros((len(sight.order), KINDS + sight.pair.shape[1]))
    mask = np.ones((1, len(sight.order)), np.float32)
    inputs: dict[str, NDArray[np.float32]] = {"piece": sight.piece, "pair": sight.pair, "state": sight.state}
    (scores,) = actor.run(mask=mask, **{name: value[None] for name, value in inputs.items()})
    return np.asarray(scores[0], dtype=np.float64)


def relmas(folder: str) -> LearnedPolicy:
    """The RELMAS-style agent in a directory. Raises ``ArtifactMismatch``, ``MissingExtra``."""
    return _learned("relmas", folder)


def odra(folder: str) -> LearnedPolicy:
    """The ODRA-style agent in a directory. Raises ``ArtifactMismatch``, ``MissingExtra``."""
    return _learned("odra", folder)


def _learned(plugin: str, folder: str) -> LearnedPolicy:
    manifest, content = read_agent(Path(folder), plugin)
    actor = Graph(content, Path(folder) / ACTOR)
    return LearnedPolicy(f"{plugin}:{folder}", manifest.matching, actor, manifest.decision_seconds)


def listed() -> LearnedPolicy:
    """The matcher without an agent: the baseline that both agents learn to correct."""
    return LearnedPolicy("listed", Matching(), None)
