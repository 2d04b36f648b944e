"""A seeded workload generator: models of queues, the fit of a model to a job table, tables drawn from it.

>>> from mirage.trace.generator import generate
>>> table = generate("demo", seed=1)
"""

from mirage.trace.generator.drawing import generate, presets, scaled, workload_model
from mirage.trace.generator.fitting import Closeness, compare, fit, statistics
from mirage.trace.generator.model import WorkloadModel, load_model, save_model

__all__ = [
    "Closeness",
    "WorkloadModel",
    "compare",
    "fit",
    "generate",
    "load_model",
    "presets",
    "save_model",
    "scaled",
    "statistics",
    "workload_model",
]
