"""Associations and QOS as ``sacctmgr -P show assoc`` and ``sacctmgr -P show qos`` print them.

They live in slurmdbd, not in slurm.conf. The header line names the columns, so any choice and order of
``format=`` will do; columns that the simulator does not follow are reported where they hold a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from mirage.domain.errors import ConfigError, MirageError
from mirage.simulator.cluster import Association, Qos, TresLimit
from mirage.simulator.configuration import spellings
from mirage.slurm.conf import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_NUMBER = (1 << 32) - 1
ROOT = "root"

_ASSOC_FOLLOWED = frozenset(
    [
        "cluster",
        "account",
        "user",
        "parname",
        "parentname",
        "share",
        "fairshare",
        "priority",
        "grpjobs",
        "grptres",
        "grpsubmit",
        "grpsubmitjobs",
        "maxjobs",
        "maxsubmit",
        "maxsubmitjobs",
        "maxwall",
        "maxwalldurationperjob",
        "lft",
        "rgt",
        "id",
        "qos",
        "defqos",
    ]
)
_QOS_FOLLOWED = frozenset(
    [
        "name",
        "priority",
        "grptres",
        "grpjobs",
        "grpsubmit",
        "grpsubmitjobs",
        "maxtres",
        "maxtresperjob",
        "maxwall",
        "maxwalldurationperjob",
        "maxtrespu",
        "maxtresperuser",
        "maxjobspu",
        "maxjobsperuser",
        "maxsubmitpu",
        "maxsubmitjobspu",
        "maxsubmitjobsperuser",
        "maxtrespa",
        "maxtresperaccount",
        "maxjobspa",
        "maxjobsperaccount",
        "id",
        "description",
    ]
)
_MEANS_NOTHING = frozenset({"", "0", "cluster", "1.000000", "00:00:00"})

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a dump: its place, and its cells by column name (lower case, without blanks)."""

    where: str
    cells: dict[str, str]

    def text(self, *columns: str) -> str:
        """The first of these columns that the dump has, "" where it has none."""
        return next((self.cells[c] for c in columns if c in self.cells), "")

    def count(self, *columns: str, otherwise: int = -1) -> int:
        """A count; ``otherwise`` where the cell is empty."""
        text = self.text(*columns)
        return whole_number(text, f"{self.where}: {columns[0]}", -1, MAX_NUMBER) if text else otherwise

    def read(self, reader: Callable[[str], Value], otherwise: Value, *columns: str) -> Value:
        """``reader`` on the cell; ``otherwise`` where it is empty. Raises ``ConfigError`` with the place."""
        text = self.text(*columns)
        if not text:
            return otherwise
        try:
            return reader(text)
        except MirageError as error:
            raise ConfigError(f"{self.where}: {columns[0]}", str(error)) from error


def parse_associations(text: str, file: str, cluster: str = "") -> tuple[tuple[Association, ...], tuple[str, ...]]:
    """The account tree of one cluster, and what of it is not modelled, in sentences.

    Rows of other clusters are left out where the dump has a Cluster column. Raises ``ConfigError``.
    """
    rows = [row for row in _rows(text, file, "account", "sacctmgr -P show assoc") if _is_of(row, cluster)]
    kept = [row for row in rows if not row.text("partition")]
    notes = list(_not_followed(rows, _ASSOC_FOLLOWED, file))
    by_parent = sum(row.text("share", "fairshare") == "parent" for row in kept)
    if by_parent:
        notes.append(f"{file}: {by_parent} rows have Share=parent: not modelled; each counts as one share.")
    found = tuple(a for a in (_association(row) for row in kept) if a.user or a.account != ROOT)
    notes += _not_counted([a.grp_tres for a in found], file)
    return found, tuple(notes)


def default_accounts_first(associations: tuple[Association, ...], text: str, file: str) -> tuple[Association, ...]:
    """The associations, each user's default one before the others, by ``sacctmgr -P show user``.

    Raises ``ConfigError``.
    """
    rows = _rows(text, file, "user", "sacctmgr -P show user")
    default = {row.text("user"): row.text("defacct", "defaultaccount") for row in rows}

    def is_another(association: Association) -> bool:
        return bool(association.user) and default.get(association.user, "") not in ("", association.account)

    return tuple(sorted(associations, key=is_another))


def parse_qos(text: str, file: str) -> tuple[tuple[Qos, ...], tuple[str, ...]]:
    """The QOS, and what of them is not modelled, in sentences. Raises ``ConfigError``."""
    rows = _rows(text, file, "name", "sacctmgr -P show qos")
    found = tuple(_qos(row) for row in rows)
    ceilings = [
        ceiling
        for q in found
        for ceiling in (q.grp_tres, q.max_tres_per_user, q.max_tres_per_account, q.max_tres_per_job)
    ]
    return found, (*_not_followed(rows, _QOS_FOLLOWED, file), *_not_counted(ceilings, file))


def _rows(text: str, file: str, needed: str, command: str) -> list[Row]:
    lines = [(n, line) for n, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not lines:
        raise ConfigError(file, f"is empty; make it with: {command}")
    header = [column.strip().lower().replace(" ", "") for column in lines[0][1].split("|")]
    if needed not in header:
        raise ConfigError(f"{file}:{lines[0][0]}", f"the header has no column {needed}; make it with: {command}")
    rows = []
    for number, line in lines[1:]:
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) != len(header):
            raise ConfigError(f"{file}:{number}", f"{len(cells)} columns where the header has {len(header)}")
        rows.append(Row(f"{file}:{number}", dict(zip(header, cells, strict=True))))
    return rows


def _is_of(row: Row, cluster: str) -> bool:
    named = row.text("cluster")
    return not named or not cluster or named.lower() == cluster.lower()


def _association(row: Row) -> Association:
    account, user = row.text("account"), row.text("user")
    if not account:
        raise ConfigError(row.where, "this row has no account")
    parent = row.text("parname", "parentname")
    share = row.text("share", "fairshare")
    return Association(
        account=account,
        user=user,
        parent="" if user or parent == ROOT else parent,
        shares=1 if share in ("", "parent") else row.count("share", "fairshare"),
        max_jobs=row.count("maxjobs"),
        max_submit=row.count("maxsubmit", "maxsubmitjobs"),
        grp_jobs=row.count("grpjobs"),
        grp_submit=row.count("grpsubmit", "grpsubmitjobs"),
        grp_tres=row.read(spellings.tres_limit, TresLimit(), "grptres"),
        max_wall=row.read(spellings.slurm_duration, -1, "maxwall", "maxwalldurationperjob"),
        priority=row.count("priority", otherwise=0),
    )


def _qos(row: Row) -> Qos:
    def limit(*columns: str) -> TresLimit:
        return row.read(spellings.tres_limit, TresLimit(), *columns)

    return Qos(
        name=row.text("name"),
        priority=row.count("priority", otherwise=0),
        max_wall=row.read(spellings.slurm_duration, -1, "maxwall", "maxwalldurationperjob"),
        grp_jobs=row.count("grpjobs"),
        grp_submit=row.count("grpsubmit", "grpsubmitjobs"),
        grp_tres=limit("grptres"),
        max_jobs_per_user=row.count("maxjobspu", "maxjobsperuser"),
        max_submit_per_user=row.count("maxsubmitpu", "maxsubmitjobspu", "maxsubmitjobsperuser"),
        max_tres_per_user=limit("maxtrespu", "maxtresperuser"),
        max_jobs_per_account=row.count("maxjobspa", "maxjobsperaccount"),
        max_tres_per_account=limit("maxtrespa", "maxtresperaccount"),
        max_tres_per_job=limit("maxtres", "maxtresperjob"),
    )


def _not_followed(rows: list[Row], followed: frozenset[str], file: str) -> Iterator[str]:
    """A sentence for each column that holds values and that the simulator does not follow."""
    for column in rows[0].cells if rows else ():
        holding = sum(row.cells[column].lower() not in _MEANS_NOTHING for row in rows)
        if column not in followed and holding:
            yield f"{file}: column {column} ({holding} rows): not modelled."


def _not_counted(ceilings: list[TresLimit], file: str) -> Iterator[str]:
    names = {name for ceiling in ceilings for name, _ in ceiling.limits if not spellings.followed(name)}
    for name in sorted(names):
        yield f"{file}: limits on {name}: not modelled; only cpu, mem, node and gres/NAME are counted."
