"""The templates of the report: one page, no scripts, nothing fetched, light or dark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["page_of", "render"]


def page_of(title: str, sections: Sequence[Markup]) -> str:
    """A whole HTML document of rendered sections."""
    return str(render("page.html", title=title, sections=sections))


def render(template: str, **given: Any) -> Markup:
    """A template as HTML. It escapes the text it is given, except `Markup` that was rendered before."""
    from markupsafe import Markup

    return Markup(_templates().get_template(template).render(given))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("regard.report")
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
