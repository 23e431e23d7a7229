"""The waiting page, which shows the progress of loading and recording."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["MAKING", "Starting"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

PROGRESS = "/starting"
# The name of threads that load a model while the server runs.
MAKING = "regard-making"
# Seconds after which a page that has not asked counts as closed; browsers slow hidden pages to one a second.
LOOKING = 3.0
PAGE = """\
<!doctype html><html lang="en"><meta charset="utf-8"><title>regard</title>
<meta name="viewport" content="width=device-width">
<style>body{font:16px/1.5 system-ui,sans-serif;max-width:34em;margin:20vh auto;padding:0 1em;
color:#1d2430;background:#fff}progress{width:100%}ol{list-style:none;padding:0;min-height:6em}
#error{white-space:pre-wrap;border-left:4px solid #c0392b;padding-left:1em}
@media(prefers-color-scheme:dark){body{color:#e6e9ee;background:#14181f}}</style>
<h1>regard</h1><ol id="steps"></ol>
<p id="doing" role="status">Loading PyTorch</p><progress id="bar"></progress>
<p id="error" role="alert" hidden></p>
<script>
const part=name=>document.getElementById(name);
const seconds=x=>`${x<10?x.toFixed(1):Math.round(x)} s`;
function tell({doing,done,total,seconds:spent,seconds_left:left,ended}){
  const far=total?`${done} of ${total}${left===null?"":`, about ${Math.ceil(left)} s left`}`:seconds(spent);
  part("doing").textContent=`${doing}: ${far}`;
  part("steps").replaceChildren(...ended.map(([name,spent])=>{
    const item=document.createElement("li");
    item.textContent=`\u2713 ${name}: ${seconds(spent)}`;
    return item;
  }));
  if(total){part("bar").max=total;part("bar").value=done}else part("bar").removeAttribute("value");
}
function stop(sentence){
  document.title="regard: stopped";
  part("bar").hidden=true;
  part("error").hidden=false;
  part("error").textContent=sentence;
}
async function look(){
  try{
    const answer=await fetch("/starting",{cache:"no-store"});
    const kind=answer.headers.get("content-type")||"";
    if(!answer.ok||!kind.startsWith("application/json"))return location.reload();
    const told=await answer.json();
    tell(told);
    if(told.error)return stop(`${told.error}\n\nThe server has stopped. Start it again once this is mended.`);
  }catch(error){return stop("The server has stopped; its terminal says why.")}
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

    It uses only the standard library, so that it can answer while PyTorch is being imported. A `patient` one
    keeps requests for data until the other is ready, because that takes a moment only.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self.patient = patient
        self.app: Any = None
        self.error: str | None = None
        self._running: Any = None
        self.doing, self.done, self.total = "Loading PyTorch", 0, 0
        self.ended: list[tuple[str, float]] = []
        """The steps that have ended, and how many seconds each took."""
        self._began = time.monotonic()
        self._looked = -LOOKING
        self._told = threading.Event()

    def tell(self, doing: str, done: int = 0, total: int = 0) -> None:
        """Report the current step, and how much of it is done."""
        if doing != self.doing:
            self.ended.append((self.doing, self.seconds))
            self._began = time.monotonic()
        self.doing, self.done, self.total = doing, done, total

    def fail(self, error: str) -> None:
        """Show an error on the page; returns once a page that is open has received it."""
        self.error = error
        if time.monotonic() - self._looked < LOOKING:
            self._told.wait(LOOKING)

    @property
    def seconds(self) -> float:
        """How long the current step has taken so far."""
        return time.monotonic() - self._began

    @property
    def seconds_left(self) -> float | None:
        """The estimated remaining time; None before anything is done."""
        if self.done == 0:
            return None
        return self.seconds * (self.total - self.done) / self.done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self.app is not None:
            await self._begin()
            await self.app(scope, receive, send)
        elif scope["type"] != "http":
            raise RuntimeError(f"the server is still starting and takes no {scope['type']}.")
        elif scope["path"] == PROGRESS:
            await self._answer_progress(send)
        elif scope["path"] == "/":
            await _answer(send, 200, "text/html; charset=utf-8", PAGE)
        elif self.patient and await self._is_ready():
            await self(scope, receive, send)
        else:
            said = {"error": "The server is starting; ask again in a moment."}
            await _answer(send, 503, "application/json", json.dumps(said), **{"retry-after": "1"})

    async def _is_ready(self) -> bool:
        """Wait until the application is there; False if it will not be."""
        while self.app is None and self.error is None:
            await asyncio.sleep(0.02)
        return self.app is not None

    async def _answer_progress(self, send: Send) -> None:
        self._looked, error = time.monotonic(), self.error
        names = ("doing", "done", "total", "seconds", "seconds_left", "ended")
        said = {**{name: getattr(self, name) for name in names}, "error": error}
        await _answer(send, 200, "application/json", json.dumps(said))
        if error is not None:
            self._told.set()

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
