"""Write the charts that the README shows: ``make charts``.

They are figures of the site as separate files, one for each colour scheme.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sitepages.benchmarktables import benchmark_text
from sitepages.figures import FIGURES

from mirage.replay.svg import INKS, PAPER

ROOT = Path(__file__).resolve().parents[2]
CHARTS = ("handovers",)
SCHEMES = ("light", "dark")
_FONT = "system-ui, -apple-system, 'Segoe UI', sans-serif"


def chart(name: str, scheme: str, text: str) -> str:
    """Return a figure as an SVG document; ``text`` is that of the benchmark pages.

    Raises ``NoSuchTable`` where the benchmarks have no such table or row.
    """
    colours = {ink.name: ink.dark if scheme == "dark" else ink.light for ink in INKS}
    svg = re.sub(r"var\(--([\w-]+)\)", lambda found: colours[found[1]], FIGURES[name](text))
    opening, rest = svg.split(">", 1)
    opening = opening.replace("<svg", f'<svg xmlns="http://www.w3.org/2000/svg" font-family="{_FONT}"', 1)
    return f'{opening}><rect width="100%" height="100%" fill="{colours[PAPER.name]}"/>{rest}\n'


def main(directory: Path) -> None:
    """Write every chart in both colour schemes."""
    directory.mkdir(parents=True, exist_ok=True)
    text = benchmark_text(ROOT)
    for name in CHARTS:
        for scheme in SCHEMES:
            (directory / f"{name}-{scheme}.svg").write_text(chart(name, scheme, text), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
