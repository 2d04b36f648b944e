"""MariaDB and Slurm's accounts: users, shares and limits."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from onehost.daemons import environment
from onehost.errors import TestbedError
from onehost.people import OPERATOR, USERS, person
from onehost.programs import need

if TYPE_CHECKING:
    from onehost.layout import Layout

DATABASE = """
create database if not exists slurm_acct_db;
create user if not exists 'slurm'@'127.0.0.1' identified by 'slurm';
grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1';
"""
# The first account of a user becomes the default one; `limited` has low limits, for tests that exceed them.
ACCOUNTS = f"""
add cluster testbed
add account research Fairshare=100 Description=research Organization=testbed
add account teaching Fairshare=50 Description=teaching Organization=testbed
add account operations Fairshare=1 Description=operations Organization=testbed
add account limited Fairshare=1 GrpTRES=node=2 Description=limited Organization=testbed
add user alice,bob account=research Fairshare=10
add user carol account=teaching Fairshare=10
add user {OPERATOR} account=operations AdminLevel=Operator
add user {",".join(USERS)} account=limited MaxJobs=1 MaxSubmitJobs=3
"""


def install_database(layout: Layout) -> None:
    """Create MariaDB's system tables, once."""
    if (layout.mysql / "mysql").is_dir():
        return
    argv = [
        need("mariadb-install-db"),
        "--no-defaults",
        f"--datadir={layout.mysql}",
        f"--tmpdir={layout.run}",  # a starting server removes the files of others in a shared one
        "--skip-test-db",
        "--auth-root-authentication-method=socket",
    ]
    with (layout.log / "mariadb-install-db.out").open("wb") as output:
        installed = subprocess.run(argv, stdout=output, stderr=output, check=False, **person("mysql").identity())
    if installed.returncode:
        raise TestbedError(f"mariadb-install-db failed; see {output.name}")


def database_answers(layout: Layout, statements: str = "select 1") -> bool:
    """Whether MariaDB runs ``statements`` for root."""
    argv = [need("mariadb"), "--no-defaults", "-S", str(layout.mysql_socket)]
    return subprocess.run(argv, input=statements.encode(), capture_output=True, check=False).returncode == 0


def make_database(layout: Layout) -> None:
    """Create the database and the user of slurmdbd."""
    if not database_answers(layout, DATABASE):
        raise TestbedError(f"MariaDB could not create slurm_acct_db; see {layout.log}/mariadbd.out")


def ask(layout: Layout, *arguments: str, commands: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run sacctmgr; ``commands`` go to its standard input, because each start of it costs a connection."""
    argv = [need("sacctmgr"), *arguments]
    return subprocess.run(
        argv, input=commands, capture_output=True, text=True, check=False, env=environment(layout)
    )


def accounting_answers(layout: Layout) -> bool:
    """Whether slurmdbd answers."""
    return ask(layout, "-n", "list", "cluster").returncode == 0


def make_accounts(layout: Layout) -> None:
    """Create the users' accounts, once."""
    if has_accounts(layout):
        return
    done = ask(layout, "-iQ", commands=ACCOUNTS)
    if not has_accounts(layout):
        raise TestbedError(f"sacctmgr did not create the accounts: {done.stdout}{done.stderr}")


def has_accounts(layout: Layout) -> bool:
    """Whether the last line of ``ACCOUNTS`` was applied."""
    return "limited" in ask(layout, "-nP", "list", "assoc", f"users={USERS[-1]}", "format=account").stdout
