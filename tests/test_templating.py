"""HTML from templates: everything given is escaped, and nothing may be missing."""

from __future__ import annotations

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from regard.templating import render


def caption(text: str) -> Markup:
    return render("regard.report", "figure.html", png="data:,", svg="", caption=text)


def test_text_is_escaped_and_what_was_rendered_before_is_not():
    assert "<figcaption>a &lt;b&gt;</figcaption>" in caption("a <b>")
    assert render("regard.report", "page.html", title="t", sections=[caption("x")]).count("<figure>") == 1


def test_a_name_that_is_not_given_raises():
    with pytest.raises(UndefinedError, match="'caption' is undefined"):
        render("regard.report", "figure.html", png="data:,", svg="")
