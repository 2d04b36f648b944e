from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from mirage.api.agentstatus import TaskStatus
from mirage.documentreading import MOST_FAULTS, faults_of, reader_of
from mirage.domain.chain import Chain

MANY = 90_000
REPORTS_ALL = {
    "mirage/allocation/engine/taskfile.py",
    "mirage/allocation/inference/serving/configfile.py",
    "mirage/allocation/inference/workload/scenario.py",
    "mirage/api/access/policy.py",
    "mirage/config/loading.py",
    "mirage/simulator/configuration/clusterfile.py",
}
"""Files of configuration: their authors see all errors, up to a bound."""
OWN = {
    "mirage/api/routes/predictors.py",
    "mirage/api/web/internal_client.py",
    "mirage/bench/api.py",
    "mirage/bench/daemon.py",
    "mirage/documentreading.py",
}
"""Documents that this process, or a daemon that it asks, wrote."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (TaskStatus, {"lanes": {"a": [1] * MANY}}),
        (TaskStatus, {"lanes": {str(number): 1 for number in range(MANY)}}),
        (TaskStatus, {"links": [{"job": 1, "began": 1.0, "nodes": {"a": [1] * MANY}}]}),
        (TaskStatus, {"links": [1] * MANY}),
        (TaskStatus, {"tasks": [[]] * MANY}),
        (Chain, {"handover": {"notify": [1] * MANY}, "request": {"environment": [1] * MANY}}),
        (dict[str, float], {str(number): [] for number in range(MANY)}),
        (list[tuple[str, int]], [["a"] * MANY] * 3),
    ],
)
def test_reader_of_many_wrong_values_makes_few_errors(kind: type[Any], document: Any) -> None:
    reader = reader_of(kind)
    tracemalloc.start()
    with pytest.raises(ValidationError) as caught:
        reader.validate_python(document)
    found = faults_of(caught.value)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == caught.value.error_count() < 20
    assert most < 10 * MANY


def test_reader_gives_what_pydantic_gives() -> None:
    document = {"version": 1, "time": 1.0, "over": False, "links": [], "tasks": [], "lanes": {"a": []}}
    assert reader_of(TaskStatus).validate_python(document) == TaskStatus.model_validate(document)


def test_faults_of_more_errors_than_are_told_are_one() -> None:
    with pytest.raises(ValidationError) as caught:
        _Strict.model_validate({f"k{number}": 0 for number in range(MOST_FAULTS + 1)})
    (fault,) = faults_of(caught.value)
    assert (fault.path, fault.kind) == ((), "too_many")
    with pytest.raises(ValidationError) as caught:
        _Strict.model_validate({f"k{number}": 0 for number in range(MOST_FAULTS)})
    assert len(faults_of(caught.value)) == MOST_FAULTS


def test_documents_of_others_are_read_by_the_reader() -> None:
    root = Path(__file__).parents[1]
    words = ("TypeAdapter(", ".model_validate(", ".model_validate_json(")
    others = {
        name
        for path in (root / "mirage").rglob("*.py")
        if any(word in path.read_text(encoding="utf-8") for word in words)
        and (name := str(path.relative_to(root))) not in REPORTS_ALL | OWN
    }
    assert others == set(), "use mirage.documentreading.reader_of"
