"""The how-to pages show the files of ``docs/examples``, and options that exist."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from mirage.cli.chain_request import SUBMIT
from mirage.domain.errors import BadSpelling
from mirage.slurm.sbatchoptions import Word

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
_BLOCK = re.compile(r"^ *```\w*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SUBMIT = re.compile(r"^\s*mirage (?:submit|adopt) (.+)$|^#MIRAGE (.+)$", re.MULTILINE)
_INLINE = re.compile(r"`(--[a-z][^`]*)`")
OF_OTHERS = (
    "--container-image",
    "--signals-to-handle",
    "--shutdown-timeout",
    "--cleanenv",
    "--containall",
    "--env",
)
OF_OTHERS += ("--bind", "--sig-proxy", "--pid", "--requeue")
"""Options of other programs, which pages name in their sentences."""


def shown_blocks(text: str) -> list[tuple[str, str]]:
    """Each block of a page with the example that is linked last before it, if one is within its paragraph."""
    found = []
    parts = re.split(r"^```\w*\n", text, flags=re.MULTILINE)
    for before, block in pairwise(parts):
        names = re.findall(r"\[([\w.-]+)\]\(\.\./examples/\1\)[^\n]*\n(?:[^\n#]+\n)*\n?$", before)
        if names:
            found.append((names[-1], block.partition("```")[0]))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_shows_text_of_the_example(page: Path) -> None:
    for name, block in shown_blocks(page.read_text()):
        example = (DOCS / "examples" / name).read_text()
        assert block in example, f"{page.name} shows another {name}"
        assert block == example or not name.endswith(".sh")


def test_pages_show_their_scripts() -> None:
    shown = {name for page in PAGES for name, _ in shown_blocks(page.read_text())}
    assert {"ddp.sh", "ddp-nodes.sh", "torchrun.sh", "ddp.py", "server.sh", "server.py", "ask.py"} <= shown
    assert {"vllm.sh", "llm-ready.sh", "lightning_train.py", "hf_train.py"} <= shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_submit_options_exist(page: Path) -> None:
    text = page.read_text()
    lines = [one for block in _BLOCK.findall(text) for found in _SUBMIT.findall(block) for one in found if one]
    lines += [one for one in _INLINE.findall(_BLOCK.sub("", text)) if not one.startswith(OF_OTHERS)]
    for line in lines:
        words = [Word(word, page.name) for word in shlex.split(line, comments=True)]
        assert "there is no option" not in complaint(words), f"{page.name}: {line}"


def complaint(words: list[Word]) -> str:
    """`mirage submit`'s error for these options; the job that `mirage adopt` names before them is left out."""
    try:
        SUBMIT.read(words[1:] if words[0].text.isdigit() else words)
    except BadSpelling as error:
        return str(error)
    return ""
