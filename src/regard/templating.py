"""Renders HTML from Jinja2 templates in the folder `templates` of a package."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

__all__ = ["render"]


def render(package: str, template: str, **given: Any) -> Markup:
    """Render a template of a package. Text is escaped, except `Markup` that was rendered before.

    A name that the template uses and that is not given raises an error.
    """
    from markupsafe import Markup

    return Markup(_environment(package).get_template(template).render(given))


@cache
def _environment(package: str) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader(package)
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
