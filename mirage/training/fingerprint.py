"""Marks by which a table, and a model trained on it, recognise their cluster and their trace."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np

from mirage.domain.jobtable import Names

if TYPE_CHECKING:
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
