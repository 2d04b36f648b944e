"""``slurm-testbed/scenario``: run chains to their ends and report; exit 1: a check failed."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keepalive import report
from keepalive.daemon import Mirage
from keepalive.load import Load
from keepalive.program import find_program
from keepalive.services import SERVICES
from keepalive.surroundings import Surroundings
from onehost.people import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOK_EVERY = 2.0
"""Real seconds."""
_ACCOUNTING_LAG = 10.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the scenario."""
    args = _parser().parse_args(argv)
    around = Surroundings.of(args.dir)
    mirage = Mirage(around, find_program(OPERATOR), args.work, args.predictor)
    load = Load(around, args.seed)
    mirage.start()
    load.start()
    try:
        ids = _submit(mirage, args)
        chains = _watch(mirage, around, ids, args)
    finally:
        load.end()
        mirage.stop()
    return _report(mirage, around, ids, chains, args)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scenario", description=__doc__)
    parser.add_argument(
        "--dir", type=Path, default=Path("/run/mirage-testbed"), help="the running testbed's directory"
    )
    parser.add_argument("--work", type=Path, default=Path("/run/mirage-scenario"), help="directory of the daemon")
    parser.add_argument("--links", type=int, default=10, help="links of each long chain")
    parser.add_argument(
        "--limit", type=int, default=30, metavar="MIN", help="time limit of a link, in Slurm's minutes"
    )
    parser.add_argument("--predictor", default="quantile")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the background load")
    parser.add_argument("--timeout", type=float, default=540, help="timeout of the scenario, in real seconds")
    parser.add_argument("--kill-every", type=float, default=0, metavar="S", help="kill the daemon every S seconds")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the report as JSON")
    return parser


def _submit(mirage: Mirage, args: argparse.Namespace) -> dict[str, str]:
    """Submit every chain; ids by name."""
    ids = {}
    for service in SERVICES:
        script = mirage.folder / f"{service.name}.sh"
        script.write_text(service.text(args.limit))
        script.chmod(0o644)
        links = f"--links={service.links or args.links}"
        options = [*service.options, links, f"--name={service.name}", "--parsable"]
        ids[service.name] = mirage.ask(service.owner, "submit", *options, str(script)).strip()
    return ids


def _watch(mirage: Mirage, around: Surroundings, ids: dict[str, str], args: argparse.Namespace) -> dict[str, Any]:
    """Wait until all chains are over and their links gone; the chains' documents by id."""
    end = time.monotonic() + args.timeout
    kill = time.monotonic() + args.kill_every if args.kill_every else float("inf")
    while True:
        if time.monotonic() > kill:
            mirage.kill_daemon()
            mirage.start_daemon()
            kill = time.monotonic() + args.kill_every
        found = _chains(mirage)
        mirage.measure(around.now())
        if all(_over(found[chain]) for chain in ids.values()) or time.monotonic() > end:
            return found
        time.sleep(LOOK_EVERY)


def _chains(mirage: Mirage) -> dict[str, Any]:
    document = json.loads(mirage.ask("root", "chains", "--all", "--json"))
    return {chain["id"]: chain for chain in document["chains"]}


def _over(chain: dict[str, Any]) -> bool:
    gone = all(link["state"] in ("ended", "lost") for link in chain["links"])
    return chain["status"] in ("done", "stopped") and gone


def _report(
    mirage: Mirage, around: Surroundings, ids: dict[str, str], chains: dict[str, Any], args: argparse.Namespace
) -> int:
    fares = [report.fare(service, chains[ids[service.name]], service.links or args.links) for service in SERVICES]
    time.sleep(_ACCOUNTING_LAG)
    doubles = report.doubles(_accounting(around))
    faults = [f"{each.name} {fault}" for each in fares for fault in each.faults] + doubles
    verdict = "\n".join(faults) or "every chain ran and ended as expected; no link was submitted twice"
    sys.stdout.write(f"{report.table(fares)}\ndaemon: {report.growth(mirage.use)}\n{verdict}\n")
    if args.json:
        more = {"links": args.links, "limit_minutes": args.limit, "rate": around.rate, "seed": args.seed}
        args.json.write_text(json.dumps(report.document(fares, mirage.use, {**more, "faults": faults}), indent=1))
    return 1 if faults else 0


def _accounting(around: Surroundings) -> str:
    argv = ["sacct", "-a", "-X", "-n", "-P", "-S", "2020-01-01", "-o", "JobID,Comment"]
    try:
        return around.run("root", argv, fast=True)
    except subprocess.SubprocessError:
        return ""
