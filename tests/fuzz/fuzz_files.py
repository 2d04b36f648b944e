"""Files that people write: traces, clusters, the configuration, and what stands next to them."""

from __future__ import annotations

import gzip
import io
from importlib.resources import files

import pyarrow
from fuzz_slurm import SLURM_CONF
from fuzzing import Beside, Target
from pyarrow import parquet
from recorded import printed

from mirage.config.loading import load_config
from mirage.control.clocks import read_clock
from mirage.provisioner.objectives import parse_objective
from mirage.simulator.configuration.clusterfile import load_cluster, parse_cluster
from mirage.simulator.configuration.slurmconf import read_slurm_conf
from mirage.trace.generator.model import load_model
from mirage.trace.readers import import_bytes
from mirage.trace.result import Strictness

PRESETS = files("mirage.simulator.configuration") / "presets"
MODELS = files("mirage.trace") / "presets"
SWF = b"; MaxProcs: 64\n; MaxNodes: 8\n; UnixStartTime: 1675245600\n" + b"".join(
    b"%d %d 5 100 8 -1 -1 8 200 -1 1 3 1 -1 1 -1 -1 -1\n" % (k, 10 * k) for k in range(1, 6)
)
LOG = b"""2
JobID JobName UID Start Submit End Priority TimelimitR ExitCode NNodes
---
1\ttrain\t7\t2023-02-01T10:00:00\t2023-02-01T09:00:00\t2023-02-01T11:00:00\t10\t2-00:00:00\t0:0\t2
2\ttrain\t7\t2023-02-01T12:00:00\t2023-02-01T09:30:00\t2023-02-01T13:00:00\t10\t2-00:00:00\t0:15\t1
"""
CONFIG = """[service]
state = "/var/lib/mirage"
[cluster]
backend = "cli"
[loop]
interval = "1m"
[limits]
live_links = 10
[notifications.webhook]
url_file = "/etc/mirage/webhook"
"""


def imported(content: bytes) -> None:
    for strictness in Strictness:
        import_bytes(content, "trace.txt", None, strictness, "America/New_York")


def columns() -> bytes:
    table = pyarrow.table(
        {"submit": [1, 5], "start": [2, None], "end": [9, None], "nodes": [1, 2], "user": ["a", None]}
    )
    into = io.BytesIO()
    parquet.write_table(table.replace_schema_metadata({"mirage": '{"origin": 0}'}), into)
    return into.getvalue()


def slurm_conf(text: str) -> None:
    beside = {
        "gres.conf": "Name=gpu Type=a100 File=/dev/nvidia[0-1]\n",
        "assoc.txt": "Cluster|Account|User|ParentName|Share|GrpJobs\nmini|root|||1|\nmini|p||root|10|5\n",
        "qos.txt": "Name|Priority|GrpJobs\nnormal|0|\n",
    }
    read_slurm_conf(text, "slurm.conf", beside)


def gres_conf(text: str) -> None:
    read_slurm_conf(f"GresTypes=gpu\n{SLURM_CONF}", "slurm.conf", {"gres.conf": text})


STAMPS = b"""JobID|JobName|User|State|Submit|Start|End|NNodes|Timelimit|ExitCode
1|a|u|COMPLETED|2023-02-01T09:00:00+01:00|2023-02-01T10:00:00+01:00|1675249200|2|1:00:00|0:0
"""
EVENTS = """
[[reservations]]
name = "r"
start = "2023-02-01T12:00:00Z"
end = 2023-02-02T12:00:00Z
nodes = "gpu01"
users = ["root"]
"""
DUMPS = [text.encode("utf-8", "surrogateescape") for text in printed("sacct.trace")]
CLUSTERS = [(PRESETS / name).read_text() for name in ("demo.toml", "ls6.toml")]
CLUSTERS.append(CLUSTERS[0] + EVENTS)

TARGETS = (
    Target("trace, sacct", imported, [*DUMPS, STAMPS], names="trace.txt"),
    Target("trace, SWF", imported, (SWF,), names="trace.txt"),
    Target("trace, the authors' log", imported, (LOG,), names="trace.txt"),
    Target("trace, parquet", imported, (columns(),), names="trace.txt"),
    Target("trace, packed", imported, (gzip.compress(SWF), gzip.compress(LOG)), names="trace.txt"),
    Target(
        "model of a workload",
        Beside(load_model, "model.json"),
        [(MODELS / "demo.json").read_bytes()],
        names="model.json",
    ),
    Target("cluster file", lambda text: parse_cluster(text, "a.toml"), CLUSTERS, names="a.toml"),
    Target(
        "cluster file, bytes",
        Beside(lambda path: load_cluster(str(path)), "a.toml"),
        [text.encode() for text in CLUSTERS],
        names="a.toml",
    ),
    Target("slurm.conf", slurm_conf, (SLURM_CONF,), names="slurm.conf"),
    Target(
        "gres.conf",
        gres_conf,
        ("Name=gpu Type=a100 File=/dev/nvidia[0-1] Count=2\nNodeName=n[1-4] Name=gpu Count=2\n",),
    ),
    Target(
        "slurm.conf, bytes",
        Beside(lambda path: load_cluster(str(path)), "slurm.conf"),
        (SLURM_CONF.encode(),),
        names="slurm.conf",
    ),
    Target("configuration", Beside(load_config, "mirage.toml"), (CONFIG.encode(),), names="mirage.toml"),
    Target(
        "clock",
        Beside(lambda path: read_clock(path).now(), "clock.json"),
        (b'{"t0": 1700000000.5, "rate": 60}',),
        names="clock.json",
    ),
    Target("aim", parse_objective, ("cheapest", "no-interruption=90%", "overlap=30m")),
)
