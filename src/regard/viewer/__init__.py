"""The viewer: fly over a whole document's attention, down to one weight."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.viewer.app import create_app
    from regard.viewer.serving import serve
    from regard.viewer.settings import Settings
    from regard.viewer.widget import show

__all__ = ["Settings", "create_app", "serve", "show"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    # Import the server's libraries only when a server or a widget is used.
    homes = {"Settings": "settings", "create_app": "app", "serve": "serving", "show": "widget"}
    if name not in homes:
        raise AttributeError(f"regard.viewer has no {name!r}.")
    return getattr(import_module(f"regard.viewer.{homes[name]}"), name)
