"""Read a gateway's configuration file and report all errors together, each with its key."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import re
import stat
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from mirage.allocation.inference.serving.plan import (
    GatewayPlan,
    ModelPlan,
    QueuePlan,
    ServingPlan,
    TenantPlan,
    UnitPlan,
    WorkersPlan,
    address_of,
    all_bodies_of,
)
from mirage.atomic_file import read_regular
from mirage.documentreading import Fault, faults_of, parse_toml
from mirage.domain.errors import BadSpelling, ConfigError
from mirage.slurm.duration import parse_fine

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
_SHA256 = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_SHORTEST_KEY = 16
_MIB = 1 << 20


def _seconds(value: object) -> object:
    """Parse ``"15ms"`` and ``"2m"`` to seconds; numbers are seconds already."""
    if not isinstance(value, str):
        return value
    try:
        return parse_fine(value)
    except BadSpelling as error:
        raise ValueError(str(error)) from None


def _digest(value: object) -> object:
    found = _SHA256.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("expected the SHA-256 of a key: 64 digits 0-9 a-f (printf %s KEY | sha256sum)")
    return found[1]


Name = Annotated[str, Field(pattern=_NAME)]
Duration = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]
Digest = Annotated[str, BeforeValidator(_digest)]
Words = Annotated[tuple[str, ...], Field(strict=False)]
Names = Annotated[tuple[Name, ...], Field(strict=False)]
Digests = Annotated[tuple[Digest, ...], Field(strict=False)]
Watts = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _ConfigEntry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class GatewayEntry(_ConfigEntry):
    """The table ``[gateway]``."""

    listen: str = "127.0.0.1:8800"
    policy: str = "edf"
    state: str = ".mirage/serve"
    operators: Digests = ()
    largest_body_mb: Annotated[int, Field(ge=1, le=1024)] = 16
    all_bodies_mb: Annotated[int, Field(ge=2, le=1 << 20)] | None = None
    largest_answer_mb: Annotated[int, Field(ge=1, le=1024)] = 64
    certificate: str = ""
    certificate_key: str = ""
    trusted_network: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> GatewayEntry:
        host, _ = address_of(self.listen)
        if not (self.certificate or self.trusted_network or ipaddress.ip_address(host).is_loopback):
            raise ValueError(
                f"listen: {host} is reachable from other machines, and keys would be sent unencrypted; set"
                " certificate, or trusted_network = true"
            )
        if self.all_bodies_mb is not None and self.all_bodies_mb < 2 * self.largest_body_mb:
            raise ValueError(f"all_bodies_mb: must be at least twice largest_body_mb ({2 * self.largest_body_mb})")
        return self


class QueueEntry(_ConfigEntry):
    """The table ``[queue]``."""

    most: Annotated[int, Field(ge=1, le=100_000)] = 1000
    longest_wait: Duration = 30.0


class WorkersEntry(_ConfigEntry):
    """The table ``[workers]``."""

    ready_within: Duration = 120.0
    answer_within: Duration = 60.0


class CostsEntry(_ConfigEntry):
    """The table ``[costs]``."""

    table: str


class ModelEntry(_ConfigEntry):
    """One ``[[model]]`` table."""

    name: Name
    onnx: str = ""
    warm: dict[str, Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]] = {}
    backend: Words = ()
    served_as: str = ""
    expected: Duration | None = None

    @model_validator(mode="after")
    def _one_way(self) -> ModelEntry:
        if bool(self.onnx) == bool(self.backend):
            raise ValueError("give either onnx = 'FILE' or backend = ['COMMAND', ...]")
        if self.backend and not any("{port}" in word for word in self.backend):
            raise ValueError(
                "backend: no word contains {port}; the server must listen on the port that it is given"
            )
        return self


class UnitEntry(_ConfigEntry):
    """One ``[[unit]]`` table."""

    name: Name
    kind: str = ""
    count: Annotated[int, Field(ge=1, le=1024)] = 1
    models: Names = ()
    device: str = ""
    provider: Literal["cpu", "cuda"] = "cpu"
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    slots: Annotated[int, Field(ge=1, le=256)] = 1
    watts: Watts = 0.0
    idle_watts: Watts = 0.0
    command: Words = ()


class TenantEntry(_ConfigEntry):
    """One ``[[tenant]]`` table."""

    name: Name
    keys: Digests = ()
    key_file: str = ""
    models: Names = ()
    deadline: Duration | None = None
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    concurrent: Annotated[int, Field(ge=1, le=100_000)] = 100_000

    @model_validator(mode="after")
    def _has_a_key(self) -> TenantEntry:
        if not (self.keys or self.key_file):
            raise ValueError("has neither keys nor a key_file; set one of them")
        return self


class ServingDocument(_ConfigEntry):
    """The whole file."""

    gateway: GatewayEntry = GatewayEntry()
    queue: QueueEntry = QueueEntry()
    workers: WorkersEntry = WorkersEntry()
    costs: CostsEntry | None = None
    model: Annotated[tuple[ModelEntry, ...], Field(strict=False)]
    unit: Annotated[tuple[UnitEntry, ...], Field(strict=False)]
    tenant: Annotated[tuple[TenantEntry, ...], Field(strict=False)]


def read_config(path: Path) -> ServingPlan:
    """The plan of a file. Raises ``ConfigError`` with every error in it."""
    document = _document(path)
    folder = path.resolve().parent
    mistakes = [*_between(document), *_missing_files(document, folder)]
    tenants, found = _tenants(document, folder)
    mistakes += found
    if mistakes:
        raise ConfigError(str(path), _summary(mistakes))
    gateway = document.gateway
    host, port = address_of(gateway.listen)
    return ServingPlan(
        source=path,
        gateway=GatewayPlan(
            host=host,
            port=port,
            policy=gateway.policy,
            state=folder / gateway.state,
            operators=gateway.operators,
            largest_body=gateway.largest_body_mb * _MIB,
            all_bodies=(gateway.all_bodies_mb or 0) * _MIB or all_bodies_of(gateway.largest_body_mb * _MIB),
            largest_answer=gateway.largest_answer_mb * _MIB,
            certificate=str(folder / gateway.certificate) if gateway.certificate else "",
            certificate_key=str(folder / gateway.certificate_key) if gateway.certificate_key else "",
        ),
        queue=QueuePlan(document.queue.most, document.queue.longest_wait),
        workers=WorkersPlan(document.workers.ready_within, document.workers.answer_within),
        models=tuple(_model(entry, folder) for entry in document.model),
        units=tuple(_unit(entry, document) for entry in document.unit),
        tenants=tenants,
        costs=_table(document.costs, folder),
    )


def digest_of(key: str) -> str:
    """The digest of a key, as the configuration holds it."""
    return hashlib.sha256(key.encode()).hexdigest()


def _document(path: Path) -> ServingDocument:
    try:
        return ServingDocument.model_validate(parse_toml(read_regular(path).decode("utf-8")))
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), "cannot be read: not UTF-8") from error
    except ValidationError as error:
        raise ConfigError(str(path), _summary([_mistake(fault) for fault in faults_of(error)])) from None
    except ValueError as error:
        raise ConfigError(str(path), f"invalid TOML: {error}") from error


def _mistake(fault: Fault) -> str:
    key = ".".join(f"{part + 1}" if isinstance(part, int) else part for part in fault.path)
    said = "unknown key" if fault.kind == "extra_forbidden" else fault.said
    return f"{key}: {said}" if key else said


def _between(document: ServingDocument) -> list[str]:
    """Errors that only several entries together show."""
    models = {model.name: model for model in document.model}
    mistakes = [
        *(
            f"{name}: no [[{name}]] given; add at least one"
            for name in ("model", "unit", "tenant")
            if not getattr(document, name)
        ),
        *_twice("model", (model.name for model in document.model)),
        *_twice("unit", (name for unit in document.unit for name in _unit(unit, document).names)),
        *_twice("tenant", (tenant.name for tenant in document.tenant)),
    ]
    for where, wanted in [
        *((f"unit {unit.name!r}, models", unit.models) for unit in document.unit),
        *((f"tenant {tenant.name!r}, models", tenant.models) for tenant in document.tenant),
    ]:
        mistakes += [f"{where}: unknown model {name!r}" for name in wanted if name not in models]
    if mistakes:
        return mistakes
    for unit in document.unit:
        mistakes += _runs(unit, [models[name] for name in _unit(unit, document).models])
    served = {name for unit in document.unit for name in _unit(unit, document).models}
    mistakes += [f"model {name!r}: no unit runs it" for name in models if name not in served]
    return mistakes


def _runs(unit: UnitEntry, models: list[ModelEntry]) -> list[str]:
    """A worker runs ONNX networks, one request at a time, or supervises one server."""
    backends = [model.name for model in models if model.backend]
    where = f"unit {unit.name!r}"
    if not models:
        return [f"{where}, models: name one model, because these models have separate servers"]
    if unit.command:
        return []
    if backends and len(models) > 1:
        return [f"{where}, models: {backends[0]!r} has a separate server and must be the only model of the unit"]
    if unit.slots > 1 and not backends:
        return [f"{where}, slots: must be 1, because ONNX networks run one request at a time"]
    return []


def _twice(what: str, names: Iterable[str]) -> list[str]:
    every = list(names)
    return [f"{what} {name!r}: duplicate name" for name in sorted({n for n in every if every.count(n) > 1})]


def _missing_files(document: ServingDocument, folder: Path) -> list[str]:
    wanted = [(f"model {model.name!r}, onnx", model.onnx) for model in document.model]
    wanted += [
        ("gateway.certificate", document.gateway.certificate),
        ("gateway.certificate_key", document.gateway.certificate_key),
    ]
    return [f"{where}: no file {folder / name}" for where, name in wanted if name and not _is_file(folder / name)]


def _is_file(path: Path) -> bool:
    """Paths that cannot be file names count as missing."""
    try:
        return path.is_file()
    except OSError:
        return False


def _tenants(document: ServingDocument, folder: Path) -> tuple[tuple[TenantPlan, ...], list[str]]:
    mistakes, plans, owners = list[str](), list[TenantPlan](), dict[str, str]()
    everything = tuple(model.name for model in document.model)
    for entry in document.tenant:
        try:
            keys = (*entry.keys, *_keys_of(folder / entry.key_file if entry.key_file else None))
        except ValueError as error:
            mistakes.append(f"tenant {entry.name!r}, key_file: {error}")
            continue
        mistakes += [
            f"tenant {entry.name!r}, keys: tenant {owners[key]!r} has the same key"
            for key in keys
            if key in owners
        ]
        owners |= dict.fromkeys(keys, entry.name)
        plans.append(_tenant(entry, keys, everything))
    return tuple(plans), mistakes


def _keys_of(path: Path | None) -> tuple[str, ...]:
    """Digests of the keys in a file, one key per line. Raises ``ValueError``."""
    if path is None:
        return ()
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f"{path} is readable by others; run chmod 600 on it")
        keys = [line.strip() for line in read_regular(path).decode("utf-8").splitlines() if line.strip()]
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    if not keys or any(len(key) < _SHORTEST_KEY for key in keys):
        raise ValueError(f"{path}: expected keys of at least {_SHORTEST_KEY} characters, one per line")
    return tuple(digest_of(key) for key in keys)


def _tenant(entry: TenantEntry, keys: tuple[str, ...], everything: tuple[str, ...]) -> TenantPlan:
    rate = math.inf if entry.rate is None else entry.rate
    return TenantPlan(
        name=entry.name,
        keys=keys,
        models=entry.models or everything,
        deadline=math.inf if entry.deadline is None else entry.deadline,
        weight=entry.weight,
        rate=rate,
        burst=1 if math.isinf(rate) else max(1, math.ceil(rate)),
        concurrent=entry.concurrent,
    )


def _table(entry: CostsEntry | None, folder: Path) -> str:
    """Resolve a path against the configuration's directory; where no such file exists, it is a name."""
    if entry is None:
        return ""
    path = folder / entry.table
    return str(path) if _is_file(path) else entry.table


def _model(entry: ModelEntry, folder: Path) -> ModelPlan:
    return ModelPlan(
        name=entry.name,
        onnx=folder / entry.onnx if entry.onnx else None,
        warm=dict(entry.warm),
        backend=entry.backend,
        folder=folder,
        served_as=entry.served_as or entry.name,
        expected=entry.expected,
    )


def _unit(entry: UnitEntry, document: ServingDocument) -> UnitPlan:
    networks = tuple(model.name for model in document.model if model.onnx)
    return UnitPlan(
        name=entry.name,
        kind=entry.kind or entry.name,
        count=entry.count,
        models=entry.models or networks,
        device=entry.device,
        provider=entry.provider,
        threads=entry.threads,
        slots=entry.slots,
        watts=entry.watts,
        idle_watts=entry.idle_watts,
        command=entry.command,
    )


def _summary(mistakes: list[str]) -> str:
    return mistakes[0] if len(mistakes) == 1 else f"{len(mistakes)} errors\n  " + "\n  ".join(mistakes)
