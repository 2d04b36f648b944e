"""``slurm-testbed/fidelity``: records workloads on a real Slurm, for ``mirage bench fidelity``."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onehost.errors import TestbedError
from recording.session import record
from workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Record workloads of one cluster; exit 1: the testbed could not start."""
    args = _parser().parse_args(argv)
    try:
        workloads = [each for name in args.workloads for each in WORKLOADS[name](args.seed)]
        for found in record(workloads, args.dir, args.speed, args.base_port, _say):
            write(found, args.output)
    except TestbedError as error:
        _say(f"fidelity: {error}")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="fidelity", description=__doc__)
    about = "workload to run: day, ls6, all scenarios, or names of scenarios"
    parser.add_argument("workloads", nargs="+", choices=sorted(WORKLOADS), metavar="WORKLOAD", help=about)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="directory of the records")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the workload (default: %(default)s)")
    parser.add_argument("--speed", type=int, default=60, help="Slurm's seconds per real second (default 60)")
    parser.add_argument("--dir", type=Path, default=Path("/run/mirage-fidelity"), help="the testbed's directory")
    parser.add_argument("--base-port", type=int, default=29_000, metavar="P", help="the testbed's first port")
    return parser


def write(found: dict[str, Any], folder: Path) -> None:
    """Write it compressed; the same record gives the same bytes."""
    text = json.dumps(found, separators=(",", ":"), sort_keys=True).encode()
    folder.mkdir(parents=True, exist_ok=True)
    name = "-".join(str(part) for part in (found["workload"], found["seed"]) if part)
    path = folder / f"{name}.json.gz"
    path.write_bytes(gzip.compress(text, mtime=0))
    late = found["lag"]["median"]
    _say(f"{path}: {len(found['jobs'])} jobs, steps late by {late:.1f} s of Slurm's (median)")


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
