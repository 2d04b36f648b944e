"""Users' text never reverses the direction of a page's text, wherever it is shown."""

from __future__ import annotations

import pytest
from markupsafe import Markup

from mirage.api.web.rendering import _environment, spoken, told


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\x1b", "\x9b", "\u200f", "\x00"], ids=ascii)
def test_marks_of_direction_and_controls_are_shown_as_question_marks(mark: str) -> None:
    template = _environment().from_string("{{ name }}|{{ told(name) }}|{{ spoken(name) }}|<b title='{{ name }}'>")
    found = template.render(name=f"a{mark}b<i>")
    assert found == "a?b&lt;i&gt;|a?b&lt;i&gt;|a?b&lt;i&gt;|<b title='a?b&lt;i&gt;'>"


def test_lines_and_markup_of_ours_stay() -> None:
    template = _environment().from_string("{{ name }}{{ told(at) }}{{ spoken(code) }}{{ count }}")
    found = template.render(name="a\tb\nc", at="2026-01-01T00:00:00Z", code="`x`", count=3)
    assert found.startswith("a\tb\nc<time")
    assert found.endswith("<code>x</code>3")
    assert isinstance(told("x"), Markup)
    assert isinstance(spoken("x"), Markup)
