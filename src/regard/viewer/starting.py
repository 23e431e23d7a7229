"""The waiting page, which shows the progress of loading and recording."""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["Starting"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PROGRESS = "/starting"
PAGE = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>regard</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:30em;margin:20vh auto;padding:0 1em;
color:#1d2430;background:#fff}progress{width:100%}
@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181f}}</style>
<h1>regard</h1><p id="doing" role="status">Loading PyTorch</p><progress id="bar"></progress>
<script>
async function look(){
  try{
    const answer=await fetch("/starting",{cache:"no-store"});
    const kind=answer.headers.get("content-type")||"";
    if(!answer.ok||!kind.startsWith("application/json"))return location.reload();
    const {doing,done,total,seconds_left:left}=await answer.json();
    const far=total?` (${done} of ${total}${left===null?"":`, about ${Math.ceil(left)} s left`})`:"";
    document.getElementById("doing").textContent=doing+far;
    const bar=document.getElementById("bar");
    if(total){bar.max=total;bar.value=done}else bar.removeAttribute("value");
  }catch(error){document.getElementById("doing").textContent="The server has stopped."}
  setTimeout(look,200);
}
look();
</script></html>
"""
HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}


class Starting:
    """An ASGI application that answers in place of another one until that one is ready.

    It uses only the standard library, so that it can answer while PyTorch is being imported.
    """

    def __init__(self) -> None:
        self.app: Any = None
        self._running: Any = None
        self.doing, self.done, self.total = "Loading PyTorch", 0, 0
        self._began = time.monotonic()

    def tell(self, doing: str, done: int = 0, total: int = 0) -> None:
        """Report the current step, and how much of it is done."""
        if doing != self.doing:
            self._began = time.monotonic()
        self.doing, self.done, self.total = doing, done, total

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining time; None before anything is done."""
        if self.done == 0:
            return None
        return (time.monotonic() - self._began) * (self.total - self.done) / self.done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self.app is not None:
            await self._begin()
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            raise RuntimeError(f"the server is still starting and takes no {scope['type']}.")
        elif scope["path"] == PROGRESS:
            left = self.seconds_left
            said = {"doing": self.doing, "done": self.done, "total": self.total, "seconds_left": left}
            await _answer(send, 200, "application/json", json.dumps(said))
        elif scope["path"] == "/":
            await _answer(send, 200, "text/html; charset=utf-8", PAGE)
        else:
            said = {"error": "The server is starting; ask again in a moment."}
            await _answer(send, 503, "application/json", json.dumps(said), **{"retry-after": "1"})

    async def _begin(self) -> None:
        """Run the application's startup in this event loop."""
        if self._running is None:
            self._running = self.app.router.lifespan_context(self.app)
            await self._running.__aenter__()

    async def _live(self, receive: Receive, send: Send) -> None:
        """Handle the server's startup and shutdown events; pass shutdown to the application too."""
        while True:
            message = await receive()
            ending = message["type"] == "lifespan.shutdown"
            if ending and self._running is not None:
                await self._running.__aexit__(None, None, None)
            await send({"type": f"{message['type']}.complete"})
            if ending:
                return


async def _answer(send: Send, status: int, kind: str, text: str, **more: str) -> None:
    body = text.encode()
    headers = {"content-type": kind, "content-length": str(len(body)), **HEADERS, **more}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
