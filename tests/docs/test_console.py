"""Answers that differ from what a document shows are found."""

from __future__ import annotations

import pytest
from console import Typed, typed

TEXT = """
## One

```console
$ first --option
NAME  STATE ...
mine  ACTIVE
$ second | cat >file
```

## Two

```console
$ third
Submitted chain mine-...
```
"""


def test_commands_are_read_by_section() -> None:
    assert list(typed(TEXT, "One")) == [
        Typed("first --option", "NAME  STATE ..."),
        Typed("second | cat >file", ""),
    ]
    assert [each.command for each in typed(TEXT, "Two")] == ["third"]
    with pytest.raises(AssertionError):
        list(typed(TEXT, "Three"))


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("NAME  STATE ...", "NAME STATE  REASON\nmine"),
        ("Submitted chain mine-...", "Submitted chain mine-x1"),
        ("mine-..., a chain", "mine-x1, a chain"),
        ("", ""),
    ],
)
def test_what_is_as_shown_passes(shown: str, said: str) -> None:
    Typed("command", shown).check(said)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("NAME  STATE ...", "NAME  STATUS  REASON"),
        ("NAME  STATE", "NAME"),
        ("Submitted chain mine-...", "mirage: no daemon answers"),
        ("mine-..., a chain", "yours-x1, a chain"),
        ("ok ...", ""),
    ],
)
def test_what_is_not_is_found(shown: str, said: str) -> None:
    with pytest.raises(AssertionError, match="command"):
        Typed("command", shown).check(said)
