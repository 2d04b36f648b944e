"""An installation without SciPy says which extra brings it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mirage.allocation.ddl.placers import cutting_prices
from mirage.domain.errors import MissingExtra


def test_missing_scipy_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(MissingExtra) as missing:
        cutting_prices(np.array([2]), np.array([1]))
    assert missing.value.extra == "bounds"
