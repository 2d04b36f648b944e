"""Fair shares as ``sshare`` prints them, and who has which account by default as ``sacctmgr`` does."""

from __future__ import annotations

from mirage.domain.errors import BadSpelling

SHARE_ARGUMENTS = ("--all", "--parsable2")
"""Arguments of ``sshare`` for all users'."""
USER_ARGUMENTS = ("--parsable2", "show", "user")
"""Arguments of ``sacctmgr`` for all users' default account."""

Owner = tuple[str, str]
"""(account, user)."""


def read_shares(text: str) -> dict[Owner, float]:
    """The fair-share factor of each user in each account, within 0 and 1; accounts themselves have none.

    Raises ``BadSpelling``.
    """
    found: dict[Owner, float] = {}
    for cells in _rows(text, "account", "user", "fairshare"):
        if cells["user"] and cells["fairshare"]:
            found[cells["account"], cells["user"]] = _factor(cells["fairshare"])
    return found


def read_default_accounts(text: str) -> dict[str, str]:
    """The default account of each user. Raises ``BadSpelling``."""
    return {cells["user"]: cells["defacct"] for cells in _rows(text, "user", "defacct")}


def _rows(text: str, *needed: str) -> list[dict[str, str]]:
    """Rows by column name: in lower case, without blanks."""
    lines = text.splitlines()
    names = [name.lower().replace(" ", "") for name in lines[0].split("|")] if lines else []
    if missing := [name for name in needed if name not in names]:
        raise BadSpelling(text[:200], f"expected a heading with a column {missing[0]}")
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[1:]]
    if broken := [row for row in rows if len(row) != len(names)]:
        raise BadSpelling("|".join(broken[0])[:200], f"expected {len(names)} columns")
    return [dict(zip(names, row, strict=True)) for row in rows]


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = -1.0
    if not 0.0 <= factor <= 1.0:
        raise BadSpelling(text, "is not a fair-share factor within 0 and 1")
    return factor
