"""Alert rules and dashboard: Prometheus accepts them, and the daemon has every metric that they name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mirage.control.forecasts import OpenForecast
from mirage.control.status import Status
from mirage.domain.chain import ChainId
from mirage.domain.decision import WaitForecast
from mirage.domain.journal import Entry, EntryKind
from mirage.domain.link import Link
from mirage.domain.objective import Outcome
from mirage.domain.snapshot import Snapshot
from mirage.metrics.gauges import GaugeSources, StateCollector
from mirage.metrics.meters import Meters, expose

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/alerts.yml"
SCRAPE = ROOT / "deploy/prometheus/scrape.yml"
DASHBOARD = ROOT / "deploy/grafana/mirage.json"
MANUAL = ROOT / "docs/observability.md"
NAME = re.compile(r"mirage_[a-z_]+(?![a-z_]*\.)")


def exposed() -> str:
    """The text of a daemon to which everything has happened once."""
    meters, chain = Meters(), ChainId("c")
    meters.cycled(1, failed=False)
    meters.polled(1)
    meters.predicted("average", 1)
    meters.submitted("accepted")
    meters.notified("mail", "sent")
    meters.came_true(OpenForecast("average", WaitForecast((0.1, 0.9), (5, 6)), Link(1, "t", 0, start=5)))
    meters.hear(Entry(1, chain, EntryKind.DECISION, "submit: now", 1, "average", asked="lookahead"))
    meters.hear(Entry(1, chain, EntryKind.SHADOW, "hold: early", 1, "fixed"))
    meters.hear(Entry(1, chain, EntryKind.OUTCOME, "", 1, outcome=Outcome(1, 2)))
    status = Status(0, "", Snapshot.unseen(0))
    meters.registry.register(StateCollector(GaugeSources(lambda: status, lambda: 0, lambda: 0, str)))
    return expose(meters.registry, "")[0].decode()


def series() -> set[str]:
    """Names as queries use them."""
    return {re.split(r"[{ ]", line)[0] for line in exposed().splitlines() if not line.startswith("#")}


def label_values(name: str) -> set[str]:
    return set(re.findall(rf'{name}="([^"]*)"', exposed()))


def expressions() -> Iterator[str]:
    """The expressions of alerts and dashboard."""
    yield from re.findall(r"expr: (?:>-\n)?((?:.|\n)*?)\n +(?:for|labels):", RULES.read_text())
    for panel in _panels():
        yield from (target["expr"] for target in panel["targets"])


def _panels() -> list[dict[str, Any]]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [panel for panel in panels if panel["type"] != "row"]


def test_whatever_is_asked_for_is_told() -> None:
    asked = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(asked) > 20
    assert asked <= series()


def test_labels_that_are_asked_for_exist() -> None:
    labels = {"result", "predictor", "action", "start", "channel", "state", "status", "le", "instance", "job"}
    for expression in expressions():
        for group in re.findall(r"by \(([^)]*)\)", expression):
            assert set(re.split(r", ?", group)) <= labels, expression
        for name in re.findall(r'[{,] ?(\w+)[=!]~?"', expression):
            assert name in labels, expression
    assert {"early", "within", "late"} >= label_values("start")
    assert "0.0" in label_values("le"), "handovers without interruption are those of the first bucket"
    assert {"ok", "failed"} <= label_values("result")


def test_every_series_and_every_alert_is_explained() -> None:
    manual = MANUAL.read_text()
    families = set(re.findall(r"# TYPE (\S+)", exposed()))
    told = {name for name in families if name not in manual and not name.startswith("mirage_process_")}
    assert not told, "docs/observability.md lists every metric"
    alerts = re.findall(r"- alert: (\w+)", RULES.read_text())
    assert len(alerts) > 10
    assert [name for name in alerts if name not in manual] == []


def test_the_dashboard_is_one_that_grafana_can_read() -> None:
    document = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in document["panels"]]
    assert len(ids) == len(set(ids))
    taken = set()
    for panel in document["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, f"{panel['title']} covers another"
        taken |= cells
    for panel in _panels():
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert all('job="$job"' in target["expr"] for target in panel["targets"])


def promtool(*argv: str, text: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (package prometheus)")
    return subprocess.run([program, *argv], input=text, capture_output=True, text=True, check=False)


def test_prometheus_accepts_the_rules_and_the_scrape_configuration(tmp_path: Path) -> None:
    checked = promtool("check", "rules", str(RULES))
    assert checked.returncode == 0, checked.stderr + checked.stdout
    for file in (RULES, SCRAPE):
        shutil.copy(file, tmp_path)
    checked = promtool("check", "config", "--syntax-only", str(tmp_path / SCRAPE.name))
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_prometheus_understands_what_the_dashboard_asks(tmp_path: Path) -> None:
    asked = [target["expr"] for panel in _panels() for target in panel["targets"]]
    rules = [{"record": f"panel:{n}", "expr": expression} for n, expression in enumerate(asked)]
    file = tmp_path / "dashboard.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))  # JSON is YAML
    checked = promtool("check", "rules", str(file))
    assert checked.returncode == 0, checked.stderr + checked.stdout


def test_prometheus_finds_no_fault_with_names_and_types() -> None:
    checked = promtool("check", "metrics", text=exposed())
    assert checked.returncode == 0, checked.stderr + checked.stdout


ALERTS = """
rule_files: [alerts.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - series: 'mirage_protected_mode{instance="a"}'
        values: '0x9 1x20'
      - series: 'mirage_cycles_total{instance="a",result="ok"}'
        values: '0+1x10 10x30'
      - series: 'mirage_cycles_total{instance="a",result="failed"}'
        values: '0x40'
      # One that stands by, beside: it says what its leader says. In the end neither leads.
      - series: 'mirage_protected_mode{instance="b"}'
        values: '0x9 1x20'
      - series: 'mirage_cycles_total{instance="b",result="ok"}'
        values: '0x40'
      - series: 'mirage_leader{instance="a",job="mirage"}'
        values: '1x37 0x30'
      - series: 'mirage_leader{instance="b",job="mirage"}'
        values: '0x60'
    alert_rule_test:
      - {eval_time: 37m, alertname: MirageNobodyLeads, exp_alerts: []}
      - eval_time: 50m
        alertname: MirageNobodyLeads
        exp_alerts:
          - exp_labels: {severity: critical, job: mirage}
      - {eval_time: 9m, alertname: MirageProtectedMode, exp_alerts: []}
      - eval_time: 12m
        alertname: MirageProtectedMode
        exp_alerts:
          - exp_labels: {severity: critical, instance: a}
      - {eval_time: 20m, alertname: MirageLoopStuck, exp_alerts: []}
      - eval_time: 35m
        alertname: MirageLoopStuck
        exp_alerts:
          - exp_labels: {severity: critical, instance: a}
"""


def test_alerts_go_off_when_they_should(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path)
    rules = re.sub(r" +annotations:\n(?: {10,}.*\n)+", "", RULES.read_text())
    (tmp_path / RULES.name).write_text(rules)
    (tmp_path / "test.yml").write_text(ALERTS)
    checked = promtool("test", "rules", str(tmp_path / "test.yml"))
    assert checked.returncode == 0, checked.stderr + checked.stdout
