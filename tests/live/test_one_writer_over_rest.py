"""`--handover none` over slurmrestd: links of whole nodes are pinned there, too, and never run together."""

from __future__ import annotations

import getpass
from dataclasses import replace
from typing import TYPE_CHECKING

from test_one_writer_on_slurm import check_apart, kept, writer

from mirage.domain.chain import ChainId

if TYPE_CHECKING:
    from pathlib import Path

    from slurm_testbed import Testbed


def test_links_of_whole_nodes_are_pinned_over_rest(testbed: Testbed, tmp_path: Path) -> None:
    """The limit itself ends them: not each version of slurmrestd takes ``--signal``.

    Each chain has a new ID: by an ID a daemon finds the links that an earlier test's chain had on this Slurm.
    """
    token = tmp_path / "token"
    token.write_text(testbed.token(getpass.getuser()))
    token.chmod(0o600)
    section = f'[cluster.rest]\nurl = "{testbed.rest}"\ntoken_file = "{token}"\n[cluster]\nbackend = "rest"\n'

    def by_rest(config: Path) -> None:
        config.write_text(config.read_text().replace("[cluster]\n", section))

    chains = []
    for name in ("pin", "auto", "part"):
        chain = writer(name, tmp_path)
        batch = chain.request.batch
        assert batch is not None
        text = batch.text.replace("USR1", "TERM").replace("wait $!", "while :; do wait $!; done")
        request = replace(chain.request, warn=None, batch=replace(batch, text=text))
        chains.append(replace(chain, chain_id=ChainId(f"rest-{name}"), request=request))
    found = kept(testbed, chains, tmp_path, configure=by_rest)
    check_apart(found, tmp_path)
    for name in ("pin", "auto"):
        assert not any(link.unpinned for link in found[name].links[1:]), name
    assert all(link.unpinned for link in found["part"].links[1:]), "two of them fit on a node"
