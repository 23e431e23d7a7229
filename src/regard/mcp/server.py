"""A Model Context Protocol server with the desk's functions as tools."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from regard._version import __version__
from regard.errors import RegardError
from regard.mcp.desk import Desk

__all__ = ["create_server", "serve"]

INSTRUCTIONS = (
    "Look at what a transformer attends to, exactly. record(text) reads a text with the model and names the "
    "recording; atlas says what each head does, row and cell read weights, knock_out says whether a head "
    "matters. check judges printed numbers of a worked example; cost counts a known model. Heads are named "
    "layer.head, such as 6.3, counted from 0. A weight is a routing coefficient, not an explanation: use "
    "knock_out before you say that a head causes something."
)
TOOLS = ("recordings", "record", "tokens", "atlas", "row", "cell", "knock_out", "check", "cost")


def create_server(desk: Desk) -> Any:
    """An MCPServer with a tool per function; `save` is included only if writing is allowed."""
    try:
        from mcp.server import MCPServer
        from mcp.types import ToolAnnotations
    except ImportError as error:
        raise RegardError(
            f"regard mcp needs mcp, which cannot be imported here ({error}). Install it with: "
            'pip install "regard[mcp]"'
        ) from error
    server = MCPServer("regard", version=__version__, instructions=INSTRUCTIONS)
    for name in TOOLS if desk.write is None else (*TOOLS, "save"):
        hints = ToolAnnotations(read_only_hint=name != "save", destructive_hint=False, open_world_hint=False)
        server.tool(annotations=hints)(_answering(getattr(desk, name)))
    return server


def serve(desk: Desk, port: int | None = None) -> None:
    """Serve on standard input and output; with a port, over HTTP on the loopback interface."""
    server = create_server(desk)
    if port is None:
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=port)


def _answering(question: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Wrap a function so that its errors reach the agent as one sentence."""
    from mcp.server.mcpserver.exceptions import ToolError

    @wraps(question)
    def answer(*args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            return question(*args, **kwargs)
        except (RegardError, IndexError) as error:
            raise ToolError(str(error)) from error

    return answer
