"""The reference of the configuration, from the model of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirage.config.model import Config
from mirage.config.reference import ConfigTable, Key, tables
from sitepages.markdown import code, page, plain, table

if TYPE_CHECKING:
    from collections.abc import Iterator

_ABOUT = """\
Every key of the file that `mirage daemon --config FILE` reads, with its default. The same as a template:
[mirage.toml](../files/deploy/mirage.toml), as `mirage config reference` writes it.

Durations are seconds, or texts such as `90s`, `10m`, `30d`. Files of `conf.d/` in the directory of the
configuration file override it. Environment variables override both: `MIRAGE_` and the key in capitals, with two
underscores between section and key, such as `MIRAGE_LOOP__INTERVAL=30s`. An unknown key is an error, and so is a
`conf.d` that cannot be listed. `mirage config check FILE` checks a file. `mirage config show` prints the values in
force and their sources."""


def settings_page() -> str:
    """Every key with its default, what it is for, and the variable that overrides it."""
    return page(
        "# Configuration",
        _ABOUT,
        *(block for each in tables(Config) for block in _blocks(each)),
    )


def _blocks(found: ConfigTable) -> Iterator[str]:
    yield f"## [{found.name}]"
    yield plain(found.words)
    yield table(("key", "default", "meaning"), map(_row, found.keys))
    for key in found.keys:
        if key.row:
            yield f"### [[{found.name}.{key.name}]]"
            yield f"This table may occur several times. {plain(key.words)}"
            yield table(("key", "default", "meaning"), map(_row, key.row))


def _row(key: Key) -> tuple[str, str, str]:
    value = code(key.value) if key.is_default else f"none; such as {code(key.value)}"
    return code(key.name), value, plain(key.words)
