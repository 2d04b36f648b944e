"""The project's own Python files, each parsed once: nothing of them is run."""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
_NAME = re.compile(r"[a-z_0-9.]+(:\w+)?")


@dataclass(frozen=True, slots=True)
class Source:
    """A summary of one file; its tree is not kept, since all trees together would fill the memory."""

    path: Path
    """Relative to the project's root."""
    text: str
    imports: frozenset[str]
    """Modules that it imports, and what it takes from them: ``a``, ``a.b``."""
    texts: frozenset[str]
    """Its literals of text that could be a name."""
    functions: tuple[tuple[str, int], ...]
    """Names and lengths in lines."""
    public: frozenset[str]
    """Classes, methods, functions and constants; what a decorator registers is used by that."""

    @property
    def name(self) -> str:
        """The name by which it is imported: ``mirage.domain.job``."""
        parts = self.path.with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def sources(folder: str) -> tuple[Source, ...]:
    """The Python files below a directory, programs without a suffix too."""
    return tuple(map(_read, _files(ROOT / folder)))


def _read(path: Path) -> Source:
    text = path.read_text()
    tree = ast.parse(text)
    imports, texts, functions = set[str](), set[str](), list[tuple[str, int]]()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                imports |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                imports |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
            case ast.Constant(value=str(value)) if _NAME.fullmatch(value):
                texts.add(value)
            case ast.FunctionDef(end_lineno=int(end)) | ast.AsyncFunctionDef(end_lineno=int(end)):
                functions.append((node.name, end - node.lineno + 1))
    public = frozenset(name for name in _defined(tree) if not name.startswith("_"))
    return Source(path.relative_to(ROOT), text, frozenset(imports), frozenset(texts), tuple(functions), public)


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        match node:
            case ast.ClassDef():
                yield node.name
                yield from (each.name for each in node.body if isinstance(each, ast.FunctionDef) and _plain(each))
            case ast.FunctionDef() | ast.AsyncFunctionDef() if _plain(node):
                yield node.name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _plain(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    known = {"property", "staticmethod", "classmethod"}
    return all(isinstance(each, ast.Name) and each.id in known for each in function.decorator_list)


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
