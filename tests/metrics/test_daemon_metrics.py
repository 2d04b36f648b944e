"""Metrics of a whole service over a scripted cluster, read back by Prometheus's own parsers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from fakes import HOUR, MIN, FakeCluster, Fate, chain
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from mirage.bootstrap.assembly import assemble
from mirage.bootstrap.cluster import ClusterConnection
from mirage.config.loading import load_config
from mirage.daemon.supervision import Supervisor
from mirage.domain.chain import ChainRecord, DoneCondition
from mirage.domain.errors import StoreUnavailable
from mirage.provisioner.rejections import Protection

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mirage.bootstrap.service import DaemonService
    from mirage.domain.chain import Chain

Samples = dict[tuple[str, ...], float]


class Site:
    """A daemon's service whose time a test moves."""

    def __init__(self, folder: Path, fate: Fate, text: str = "", **cluster) -> None:
        file = folder / "mirage.toml"
        file.write_text(f'[service]\nstate = "{folder}/state"\n[api]\nenabled = false\n{text}')
        (folder / "state").mkdir(mode=0o700)
        self.cluster = FakeCluster(lambda request: fate, **cluster)
        self.cluster.rate = 1.0
        c = self.cluster
        self.service: DaemonService = assemble(
            load_config(file).config, ClusterConnection(c, c, c, c), lambda: None
        )
        self.supervisor = Supervisor(self.service)

    def keep(self, *chains: Chain) -> None:
        for each in chains:
            self.service.store.chains.save(ChainRecord(each))

    def run(self, seconds: int) -> None:
        until = self.cluster.time + seconds
        while self.cluster.time < until:
            self.cluster.advance(self.cluster.time + 10 * MIN)
            self.supervisor.cycle()

    def scraped(self) -> Samples:
        """By name and label values."""
        body, _ = self.service.watching.telemetry("nobody").expose("")
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in read_text(body.decode())
            for sample in family.samples
        }


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Waits of three hours where two were seen; ``average`` active, a shadow that would ask for five."""
    text = '[loop]\npredictor = "average"\nshadows = ["fixed:5h", "quantile"]\n'
    found = Site(tmp_path, Fate(wait=3 * HOUR), text)
    found.service.store.waits.recent_waits = FakeCluster(waits=[2 * HOUR] * 5).recent_waits  # type: ignore[method-assign]
    yield found
    found.service.close()


def test_first_message_lost_and_first_fallback_are_increases(tmp_path: Path) -> None:
    """A series that begins at 1 has not increased, by the rules of those who alert."""
    address = tmp_path / "hook"
    address.write_text("http://127.0.0.1:9/hook")
    address.chmod(0o600)
    text = f'[notifications.webhook]\nurl_file = "{address}"\n[loop]\npredictor = "average"\n'
    found = Site(tmp_path, Fate(), text)
    seen = found.scraped()
    found.service.close()
    assert {name[1:] for name in seen if name[0] == "mirage_notifications_total"} == {
        ("webhook", result) for result in ("sent", "failed", "dropped")
    }
    assert seen["mirage_fallbacks_total", "average"] == 0


def test_a_hand_over_is_counted_as_it_went(site: Site) -> None:
    site.keep(chain(24 * HOUR, done=DoneCondition(links=2)))
    site.run(60 * HOUR)
    seen = site.scraped()
    (handover,) = site.service.store.outcomes.read()
    assert handover.outcome.interruption > 0
    assert seen["mirage_interruption_seconds_sum",] == handover.outcome.interruption
    assert seen["mirage_interruption_seconds_count",] == seen["mirage_overlap_seconds_count",] == 1
    assert seen["mirage_submissions_total", "accepted"] == 2
    assert seen["mirage_submissions_total", "rejected"] == 0
    assert seen["mirage_decisions_total", "submit", "none"] == 1, "the first link has no forecast"
    assert seen["mirage_decisions_total", "submit", "average"] == 1
    assert seen["mirage_decisions_total", "hold", "average"] > 50
    assert seen["mirage_prediction_error_seconds_sum", "average"] == pytest.approx(HOUR, abs=1)
    assert seen["mirage_prediction_error_seconds_sum", "fixed:5h"] == pytest.approx(2 * HOUR, abs=1)
    assert seen["mirage_forecasts_total", "quantile", "late"] == 1
    assert not [labels for labels in seen if labels[0] == "mirage_forecasts_total" and labels[1] != "quantile"]
    assert 15 <= seen["mirage_shadow_disagreement_total", "fixed:5h"] <= 20, "three hours of cycles"
    assert seen["mirage_cycles_total", "ok"] == seen["mirage_poll_duration_seconds_count",] == 360
    assert seen["mirage_chains", "done"] == 1


def test_how_things_stand_is_read_from_the_last_cycle(site: Site) -> None:
    site.keep(chain(8 * HOUR), chain(8 * HOUR, name="other"))
    site.run(4 * HOUR)
    seen = site.scraped()
    assert (seen["mirage_chains", "active"], seen["mirage_links", "running"]) == (2, 2)
    assert (seen["mirage_stale",], seen["mirage_snapshot_age_seconds",], seen["mirage_protected_mode",]) == (
        0,
        0,
        0,
    )
    site.cluster.down = True
    site.run(HOUR)
    site.cluster.advance(site.cluster.time + MIN)
    seen = site.scraped()
    assert (seen["mirage_stale",], seen["mirage_snapshot_age_seconds",]) == (1, HOUR + MIN)
    site.cluster.down = False
    site.run(7 * HOUR)
    assert site.scraped()["mirage_chains_interrupted",] == 2
    loop = site.service.loop
    loop.status = replace(loop.status, protection=Protection(0, 5, 0))
    assert site.scraped()["mirage_protected_mode",] == 1


def test_no_series_names_a_user_a_chain_or_a_job_however_many_there_are(site: Site) -> None:
    one = replace(chain(6 * HOUR, name="secret0", predictor="fixed:1h"), owner="mallory")
    site.keep(one)
    site.run(40 * HOUR)
    few = site.scraped()
    chains = [
        replace(chain(6 * HOUR, name=f"secret{n}", predictor=f"fixed:{n}m"), owner="mallory") for n in range(1, 31)
    ]
    site.keep(*chains)
    site.run(8 * HOUR)
    many = site.scraped()
    assert many.keys() == few.keys(), "one chain or thirty: the same series"
    assert many["mirage_decisions_total", "hold", "fixed"] > few["mirage_decisions_total", "hold", "fixed"] > 0
    text = site.service.watching.telemetry("nobody").expose("")[0].decode()
    assert "secret" not in text
    assert "mallory" not in text
    assert all(name.startswith("mirage_") for name, *_ in many)


def test_cycles_that_fail_are_counted(site: Site) -> None:
    def away(*_) -> None:
        raise StoreUnavailable("the disk is full")

    site.service.store.chains.save = away  # type: ignore[method-assign]
    site.service.loop.cycle = away  # type: ignore[method-assign]
    site.run(30 * MIN)
    assert site.scraped()["mirage_cycles_total", "failed"] == 3


def test_a_predictor_that_had_no_answer_is_counted(tmp_path: Path) -> None:
    site = Site(
        tmp_path,
        Fate(),
        '[loop]\npredictor = "lookahead"\nfallback = "average"\n[predictors.lookahead]\ncluster = "demo"\n',
    )
    site.keep(chain(8 * HOUR))
    site.run(HOUR)
    seen = site.scraped()
    assert seen["mirage_fallbacks_total", "lookahead"] >= 4
    assert (
        seen["mirage_prediction_duration_seconds_count", "lookahead"]
        == seen["mirage_fallbacks_total", "lookahead"]
    )
    site.service.close()


def test_refused_submissions_are_told_from_those_that_may_have_got_lost(site: Site) -> None:
    site.keep(chain(8 * HOUR))
    site.cluster.refuse = "no"
    site.run(10 * MIN)
    site.cluster.refuse = ""
    site.cluster.lose_question = True
    site.run(HOUR)
    seen = site.scraped()
    assert [seen["mirage_submissions_total", result] for result in ("rejected", "unavailable", "accepted")] == [
        1
    ] * 3


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", "application/openmetrics-text"),
    ],
)
def test_both_formats_are_whole(site: Site, accept: str, kind: str) -> None:
    site.keep(chain(24 * HOUR))
    site.run(4 * HOUR)
    body, content_type = site.service.watching.telemetry("nobody").expose(accept)
    assert content_type.startswith(kind)
    read = read_openmetrics if "openmetrics" in kind else read_text
    names = {family.name for family in read(body.decode())}
    assert {"mirage_build", "mirage_build_info"} & names
    assert "mirage_process_resident_memory_bytes" in names
