"""The plain language of CONTRIBUTING, counted: a text that a change adds may not make the rates worse."""

from __future__ import annotations

from statistics import mean
from typing import TYPE_CHECKING

import pytest
from house.plainwords import count
from house.sources import ROOT

if TYPE_CHECKING:
    from pathlib import Path

DOCUMENTS = ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs")
SEEN_BY_USERS = (*DOCUMENTS, "deploy", "mirage/api/web", "mirage/cli", "mirage/client", "mirage/config")
PARTS = ("mirage", "plugins", "slurm-testbed", "tests")
MOST_PER_THOUSAND = {"users": 1.0, "all": 3.0}
LONGEST_MEAN = 16


def test_texts_for_users_use_plain_words() -> None:
    found = count([ROOT / each for each in SEEN_BY_USERS])
    assert found.words > 50_000
    assert found.rate <= MOST_PER_THOUSAND["users"], found.hits


@pytest.mark.parametrize("part", PARTS)
def test_docstrings_comments_and_messages_use_plain_words(part: str) -> None:
    found = count([ROOT / part])
    assert found.rate <= MOST_PER_THOUSAND["all"], f"python tests/house/plainwords.py {part} lists them"


def test_sentences_of_documents_are_short() -> None:
    found = count([ROOT / each for each in DOCUMENTS])
    assert len(found.sentences) > 1_000
    assert mean(found.sentences) <= LONGEST_MEAN
    assert not found.long


@pytest.mark.parametrize(
    ("name", "text", "hits"),
    [
        ("a.py", '"""Nobody waits here."""\nx = "nobody"\n# at once\n', [(1, "Nobody"), (3, "at once")]),
        ("a.md", "Whoever asks\n```\nnobody\n```\n`folder` folder\n", [(1, "Whoever"), (5, "folder")]),
        ("a.md", "<!-- plain-words: off -->\nnobody\n<!-- plain-words: on -->\nplease\n", [(4, "please")]),
        ("a.toml", 'x = "nobody at all"\n# In vain.\n', [(2, "In vain")]),
        ("a.j2", '<p title="nobody here">Somebody</p>', [(1, "Somebody")]),
    ],
)
def test_hits_are_found_in_prose_alone(tmp_path: Path, name: str, text: str, hits: list[tuple[int, str]]) -> None:
    (tmp_path / name).write_text(text)
    found = count([tmp_path / name])
    assert sorted((hit.line, hit.text) for _, hit in found.hits) == hits
