"""Renders the report's templates: one self-contained page without scripts, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from regard import templating

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["page_of", "render"]


def page_of(title: str, sections: Sequence[Markup]) -> str:
    """A whole HTML document of rendered sections."""
    return str(render("page.html", title=title, sections=sections))


def render(template: str, **given: Any) -> Markup:
    """A template of the report as HTML."""
    return templating.render("regard.report", template, **given)
