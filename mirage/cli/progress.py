"""How far a long piece of work is, on stderr."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def steps(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar, told how many steps are done and of how many; nothing where stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = (name, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, total=total, completed=done)


@contextmanager
def sentences() -> Iterator[Callable[[str], None]]:
    """What is being done: one line that changes on a terminal, else a line each."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True)
        return
    with console.status("") as status:
        yield status.update
