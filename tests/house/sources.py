"""The project's own Python files, read as text: nothing of them is run."""

from __future__ import annotations

import ast
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Source:
    """One file."""

    path: Path
    """Relative to the project's root."""
    text: str

    @property
    def name(self) -> str:
        """As it is imported: ``mirage.domain.job``."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def tree(self) -> ast.Module:
        return _parsed(self.text)

    def imports(self) -> set[str]:
        """Modules that it imports or names in a text, and what it takes from them: ``a``, ``a.b``."""
        found = set()
        for node in ast.walk(self.tree):
            match node:
                case ast.Import():
                    found |= {alias.name for alias in node.names}
                case ast.ImportFrom(module=str(module)):
                    found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        return found

    def texts(self) -> set[str]:
        """Its literals of text."""
        return {
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


@cache
def sources(folder: str) -> tuple[Source, ...]:
    """The Python files below a folder, programs without a suffix too."""
    return tuple(Source(path.relative_to(ROOT), path.read_text()) for path in _files(ROOT / folder))


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if "__pycache__" not in path.parts and path.is_file() and (path.suffix == ".py" or _is_program(path)):
            yield path


def _is_program(path: Path) -> bool:
    if path.suffix:
        return False
    with path.open("rb") as file:
        first = file.readline(100)
    return first.startswith(b"#!") and b"python" in first


def project() -> dict[str, Any]:
    """``pyproject.toml``."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())
