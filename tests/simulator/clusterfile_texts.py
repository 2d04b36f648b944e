"""A cluster file that says as little as it may, and one that says all."""

SMALL = """\
[cluster]
name = "small"

[[nodes]]
names = "c[01-04]"
cpus = 8

[[partitions]]
name = "batch"
nodes = "ALL"
"""

FULL = """\
[cluster]
name = "full"
scheduling = "slurm"
over_time_limit = "10m"
enforce_associations = true
slurm = "24.11.5"

[[nodes]]
names = ["a[001-003]", "b7"]
cpus = 64
memory = "256G"
gres = "gpu:a100:4,npu:2"
features = ["ib", "a100"]
weight = 5

[[nodes]]
names = "d1"
down = true

[[partitions]]
name = "gpu"
nodes = "a[001-003],b7"
max_time = "2-00:00:00"
default_time = 3600
exclusive = true
priority_tier = 3
qos = "long"
default = true
billing_weights = "CPU=1.0,Mem=0.25G,GRES/gpu=2"

[[partitions]]
name = "rest"
nodes = ["d1", "b7"]
max_time = "UNLIMITED"

[[qos]]
name = "long"
grp_tres = "node=3,gres/gpu:a100=8,mem=1T"
max_jobs_per_user = 2

[[associations]]
account = "physics"
shares = 10

[[associations]]
account = "plasma"
parent = "physics"

[[associations]]
account = "plasma"
user = "alice"
max_jobs = 4

[default_association]
max_jobs = 8

[scheduler]
bf_window = "2d"
bf_interval = 60
bf_continue = true

[priority]
age = 1000
fair_share_algorithm = "classic"
max_age = "1-0"

[[reservations]]
name = "maintenance"
start = 2023-02-01T06:00:00Z
end = "2023-02-01T12:00:00+00:00"
nodes = "ALL_OF_NONE"
users = ["root"]

[[node_events]]
time = 1675231200
nodes = "a001"
state = "drain"
""".replace('"ALL_OF_NONE"', '"a[001-002]"')
