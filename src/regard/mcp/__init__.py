"""A server for language-model agents, by the Model Context Protocol."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.mcp.server import create_server, serve

__all__ = ["create_server", "serve"]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    # Import the protocol's library only when a server is used.
    if name not in __all__:
        raise AttributeError(f"regard.mcp has no {name!r}.")
    return getattr(import_module("regard.mcp.server"), name)
