"""A gateway's configuration: all errors in one report, with their keys; the gateway serves what it configures."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from mirage.allocation.engine.discovery import Device, NodeFound
from mirage.allocation.inference.serving.admission import RequestRefused
from mirage.allocation.inference.serving.configfile import digest_of, read_config
from mirage.allocation.inference.serving.seating import estimates_of, seats_of, system_of
from mirage.allocation.inference.serving.service import Tenants
from mirage.domain.errors import ConfigError

KEY = "a-key-of-sixteen-characters"
MODEL = '[[model]]\nname = "m"\nonnx = "m.onnx"\n'
SERVER = '[[model]]\nname = "llm"\nbackend = ["serve", "--port", "{port}"]\nexpected = "2s"\n'
UNIT = '[[unit]]\nname = "u"\n'
TENANT = f'[[tenant]]\nname = "t"\nkeys = ["{digest_of(KEY)}"]\n'
WHOLE = MODEL + UNIT + TENANT


def read(folder: Path, text: str):
    (folder / "m.onnx").touch()
    path = folder / "serve.toml"
    path.write_text(text)
    return read_config(path)


def mistakes(folder: Path, text: str) -> str:
    with pytest.raises(ConfigError) as error:
        read(folder, text)
    return str(error.value)


def test_the_least_that_serves(tmp_path: Path) -> None:
    plan = read(tmp_path, WHOLE)
    assert (plan.gateway.host, plan.gateway.port, plan.gateway.policy) == ("127.0.0.1", 8800, "edf")
    assert plan.gateway.state == tmp_path / ".mirage/serve"
    (tenant,) = plan.tenants
    assert (tenant.models, tenant.deadline, tenant.rate) == (("m",), math.inf, math.inf)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[gateway", "invalid TOML"),
        (UNIT + TENANT, "model: Field required"),
        (WHOLE + "[gatway]\n", "gatway: unknown key"),
        (WHOLE.replace("m.onnx", "n.onnx"), "model 'm', onnx: no file"),
        (MODEL + WHOLE, "model 'm': duplicate name"),
        (WHOLE + UNIT, "unit 'u': duplicate name"),
        (WHOLE + '[[unit]]\nname = "v"\nmodels = ["x"]\n', "unit 'v', models: unknown model 'x'"),
        (WHOLE + 'models = ["x"]\n', "tenant 't', models: unknown model 'x'"),
        (WHOLE + SERVER, "model 'llm': no unit runs it"),
        (WHOLE + SERVER + '[[unit]]\nname = "v"\nmodels = ["m", "llm"]\n', "'llm' has a separate server"),
        (WHOLE.replace('"u"\n', '"u"\nslots = 2\n'), "ONNX networks run one request at a time"),
        (WHOLE + TENANT.replace('"t"', '"s"'), "tenant 's', keys: tenant 't' has the same key"),
        (MODEL + UNIT + '[[tenant]]\nname = "t"\n', "tenant.1: has neither keys nor a key_file"),
        (MODEL + UNIT + '[[tenant]]\nname = "t"\nkeys = ["plain"]\n', "tenant.1.keys.1: expected the SHA-256"),
        (WHOLE + 'deadline = "-5ms"\n', "tenant.1.deadline"),
        (WHOLE + "rate = 0.0\n", "tenant.1.rate"),
        (WHOLE + '[gateway]\nlisten = "0.0.0.0:80"\n', "keys would be sent unencrypted"),
        (WHOLE + '[gateway]\nlisten = "127.0.0.1"\n', "invalid address"),
        (WHOLE + '[gateway]\nlisten = "127.0.0.1:99999"\n', "invalid address"),
        (WHOLE.replace('onnx = "m.onnx"', 'backend = ["serve"]'), "no word contains {port}"),
        (WHOLE + "[gateway]\nall_bodies_mb = 31\n", "all_bodies_mb: must be at least twice largest_body_mb (32)"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    assert said in mistakes(tmp_path, text)


def test_files_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a regular file"):
        read_config(Path("/dev/zero"))
    text = MODEL + UNIT + '[[tenant]]\nname = "t"\nkey_file = "keys"\n'
    os.mkfifo(tmp_path / "keys", 0o600)
    assert "not a regular file" in mistakes(tmp_path, text)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    said = mistakes(tmp_path, WHOLE.replace('name = "m"', 'name = "/"') + "rate = -1.0\n[queue]\nmost = 0\n")
    assert "3 errors" in said
    for key in ("queue.most", "model.1.name", "tenant.1.rate"):
        assert key in said


def test_a_key_file_holds_keys_that_nobody_else_may_read(tmp_path: Path) -> None:
    text = MODEL + UNIT + '[[tenant]]\nname = "t"\nkey_file = "keys"\n'
    assert "cannot be read" in mistakes(tmp_path, text)
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY}\n\nanother-key-of-some-length\n")
    keys.chmod(0o644)
    assert "is readable by others" in mistakes(tmp_path, text)
    keys.chmod(0o600)
    tenants = Tenants(read(tmp_path, text).tenants, (), 0.0)
    assert tenants.find(KEY) == tenants.find("another-key-of-some-length") == 0
    keys.write_text("short\n")
    assert "at least 16 characters" in mistakes(tmp_path, text)


def test_bytes_of_all_requests_grow_with_the_largest(tmp_path: Path) -> None:
    found = [
        read(tmp_path, f"{WHOLE}[gateway]\n{text}").gateway.all_bodies >> 20
        for text in ("", "largest_body_mb = 1024", "all_bodies_mb = 32")
    ]
    assert found == [512, 4096, 32]


def test_units_stand_on_devices_of_their_kind_each_on_its_own(tmp_path: Path) -> None:
    units = '[[unit]]\nname = "big"\ndevice = "gpu:a100"\ncount = 2\n[[unit]]\nname = "any"\ndevice = "gpu"\n'
    plan = read(tmp_path, MODEL + units + '[[unit]]\nname = "host"\n' + TENANT)
    devices = [Device(0, "gpu:a100"), Device(1, "gpu:a100"), Device(0, "npu")]
    nodes = [NodeFound("n1", 8, 100, tuple(devices)), NodeFound("n2", 8, 100, (Device(0, "gpu:k80"),))]
    seats = seats_of(plan, nodes, "n1")
    assert [(seat.name, seat.node, seat.device) for seat in seats] == [
        ("big0", "n1", ("gpu:a100", 0)),
        ("big1", "n1", ("gpu:a100", 1)),
        ("any", "n2", ("gpu:k80", 0)),
        ("host", "n1", None),
    ]
    with pytest.raises(ConfigError, match=re.escape("unit 'any'") + ".*0 are left"):
        seats_of(plan, nodes[:1], "n1")


def test_each_slot_is_a_unit_to_the_policy(tmp_path: Path) -> None:
    units = UNIT + '[[unit]]\nname = "v"\nmodels = ["llm"]\nslots = 3\n'
    plan = read(tmp_path, MODEL + SERVER + units + TENANT)
    system = system_of(plan)
    assert system.names == ("u", "v/0", "v/1", "v/2")
    seats = seats_of(plan, [], "here")
    assert [seat.units for seat in seats] == [(0,), (1, 2, 3)]


def test_what_is_believed_first_is_what_was_measured_before_then_what_is_expected(tmp_path: Path) -> None:
    units = UNIT + '[[unit]]\nname = "v"\nmodels = ["llm"]\nslots = 3\nwatts = 300.0\n'
    plan = read(tmp_path, MODEL + SERVER + units + TENANT)
    table = estimates_of(plan, {"m": {"u": 0.25, "v": 1.0}, "gone": {"u": 1.0}}).table
    assert table.seconds[0].tolist()[0] == 0.25
    assert math.isnan(table.seconds[0, 1])
    assert (table.seconds[1, 1], table.joules[1, 1]) == (2.0, 600.0)


def test_a_table_of_costs_is_believed_before_what_the_file_expects(tmp_path: Path) -> None:
    """The sum over the segments of a model; of another model nothing."""
    text = MODEL + 'expected = "3s"\n' + UNIT + TENANT
    assert estimates_of(read(tmp_path, text), {}).table.seconds.tolist() == [[3.0]]
    rows = ["m,first,u,,,0.5,0.5,1,0", "m,second,u,,,0.25,0.25,1,0", "n,first,u,,,9,9,1,0"]
    head = "model,piece,kind,cycles,clock_hz,seconds,compute_seconds,joules,dram_bytes"
    (tmp_path / "costs.csv").write_text("\n".join([head, *rows, ""]))
    plan = read(tmp_path, text + '[costs]\ntable = "costs.csv"\n')
    assert estimates_of(plan, {}).table.seconds.tolist() == [[0.75]]
    assert estimates_of(plan, {"m": {"u": 0.7}}).table.seconds.tolist() == [[0.7]]


def test_a_quota_fills_again_at_its_rate(tmp_path: Path) -> None:
    plan = read(tmp_path, WHOLE + "rate = 2.0\nconcurrent = 3\n")
    quota = Tenants(plan.tenants, (), 0.0).quotas[0]
    results: list[bool | str] = []
    for now in (0.0, 0.0, 0.5, 0.9, 1.0):
        try:
            quota.enter(now)
        except RequestRefused as refusal:
            results.append(refusal.headers["Retry-After"])
        else:
            quota.leave()
            results.append(True)
    assert results == [True, True, True, "1", True]
    quota.enter(10.0)
    quota.enter(10.0)
    with pytest.raises(RequestRefused, match="exceeds 2"):
        quota.enter(10.0)
    quota.enter(20.0)
    with pytest.raises(RequestRefused, match="its maximum"):
        quota.enter(30.0)
    assert quota.here == 3
