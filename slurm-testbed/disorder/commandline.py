"""``slurm-testbed/chaos``: run rounds, write one line each, and skip rounds that are in the log."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))  # the final judgement is that of the runs without a Slurm

from disorder.rounds import Ground, document  # noqa: E402
from keepalive.program import find_program  # noqa: E402
from keepalive.surroundings import Surroundings  # noqa: E402
from onehost.layout import Layout  # noqa: E402
from onehost.people import OPERATOR  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds; exit code 1 where an invariant was violated."""
    args = _parser().parse_args(argv)
    first, _, last = args.seeds.partition("-")
    done = _done(args.log)
    ground = Ground(Surroundings.of(args.dir), find_program(OPERATOR), Layout(args.dir), args.work)
    for seed in range(int(first), int(last or first) + 1):
        if seed in done:
            continue
        played = ground.play(seed)
        with args.log.open("a") as log:
            log.write(f"{document(played)}\n")
        sys.stdout.write(f"seed {seed}: {played.links} links, {len(played.story)} failures, {played.seconds} s\n")
        for each in (*played.broken, *(played.story if played.broken else ())):
            sys.stdout.write(f"  {each}\n")
        sys.stdout.flush()
    return _report(list(_done(args.log).values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument(
        "--dir", type=Path, default=Path("/run/mirage-testbed"), help="the running testbed's directory"
    )
    parser.add_argument("--work", type=Path, default=Path("/run/mirage-chaos"), help="directory of the daemons")
    parser.add_argument("--seeds", default="0-49", help="range such as 0-49, or one (default: %(default)s)")
    parser.add_argument(
        "--log", type=Path, default=Path("chaos.jsonl"), help="one line per round; rounds in it are skipped"
    )
    return parser


def _done(log: Path) -> dict[int, dict[str, Any]]:
    lines = log.read_text().splitlines() if log.exists() else []
    return {played["seed"]: played for played in map(json.loads, lines)}


def _report(rounds: list[dict[str, Any]]) -> int:
    broken = [played["seed"] for played in rounds if played["broken"]]
    links, faults = sum(each["links"] for each in rounds), sum(len(each["story"]) for each in rounds)
    sys.stdout.write(f"{len(rounds)} rounds: {links} links, {faults} failures; violated: {broken or 'none'}\n")
    return int(bool(broken))
