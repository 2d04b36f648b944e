"""Whether a model is used on the cluster that it has learned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.domain.errors import ArtifactMismatch

if TYPE_CHECKING:
    from mirage.predictors.artifacts.manifest import ClusterMark


def check_cluster(trained: ClusterMark, name: str) -> None:
    """Raise ``ArtifactMismatch`` for a model of another cluster than ``name``; empty: that is not known."""
    if name and trained.name != name:
        raise ArtifactMismatch(
            "cluster", f"the model was trained on {trained.name!r}, and this daemon's is {name!r}: train one here"
        )


def check_home(trained: ClusterMark, name: str, fingerprint: str) -> str:
    """What to say of a model of the cluster ``name``, which now has the ``fingerprint``; empty: nothing.

    A cluster whose configuration was changed since is the same one: the model rejects by itself what it has not
    seen. Raises ``ArtifactMismatch`` for a model of another cluster.
    """
    if trained.fingerprint == fingerprint:
        return ""
    if trained.name == name:
        return f"the configuration of the cluster {name!r} was changed since the model was trained: train it again"
    raise ArtifactMismatch(
        "cluster",
        f"the model was trained on {trained.name!r} (fingerprint {trained.fingerprint[:12]}), and this is "
        f"{name!r} ({fingerprint[:12]}): train one here",
    )
