"""The viewer on a long text: first overview, any tile, memory, frames. One layer of random queries and keys.

python benchmarks/viewer.py [--tokens 131072] [--tiles 2000] [--dpr 1 2] [--folder DIR]

The recording and its overviews are made once in the folder and used again by later runs. Frames are counted
in the Chromium that is on the PATH, or in playwright's own; without playwright they are left out. Beside the
time of the clock stands the CPU time: of the server for each tile, and of Chromium for each frame.
"""

from __future__ import annotations

import argparse
import gzip
import http.client
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
from side_by_side import header

import regard
from regard import Causal
from regard.maps import observe
from regard.models import Layer, Recording
from regard.models.call import AttentionCall
from regard.models.identity import ModelIdentity
from regard.models.sites import Site
from regard.viewer.library import Entry
from regard.viewer.pooling import levels_of
from regard.viewer.pyramid import BAND

# The screen of a laptop, and how long each gesture lasts.
SCREEN = {"width": 1280, "height": 800}
GESTURE_SECONDS = 5.0
# The shape of the bundled model.
HEADS, KV_HEADS, DIM = 8, 4, 32


def make(path: Path, tokens: int) -> None:
    """A recording of one causal layer."""
    torch.manual_seed(0)
    q = torch.randn(1, HEADS, tokens, DIM)
    k, v = torch.randn(2, 1, KV_HEADS, tokens, DIM)
    call = AttentionCall(q, k, v, Causal())
    layer = Layer(Site("model.layers.0.self_attn", "decoder", 0))
    layer.begin(call, observe(q, k, v, stats=[], **call.options), keep=True)
    recording = Recording(ModelIdentity("random", "Random", "0" * 64))
    recording.put(layer)
    recording.token_ids["decoder"] = torch.randint(50_000, (1, tokens))
    recording.save(path)


def prepare(path: Path, cache: Path) -> None:
    """The overviews of every head; those that are there are left as they are."""
    entry = Entry(path.name, path)
    shape = entry.shapes["decoder"]
    for number in range(shape.heads):
        pyramid = entry.stored("decoder", 0, cache).head(number, shape.queries, shape.keys)
        if not pyramid.ready:
            started = time.perf_counter()
            pyramid.make(entry.head("decoder", 0, number), _tell)
            print(f"  head {number}: {time.perf_counter() - started:.1f} s", file=sys.stderr)


def _tell(done: int, total: int) -> None:
    print(f"  band {done} of {total}", end="\r", file=sys.stderr)


def server_cpu(pid: int) -> float:
    """Seconds that the threads of a process have computed, to the nanosecond."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def browser_cpu() -> float:
    """Seconds that the processes of this one's Chromium have computed."""
    parents: dict[int, int] = {}
    spent: dict[int, float] = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = file.read_text().rpartition(") ")
        except OSError:
            continue  # it has ended meanwhile
        pid, fields = int(file.parent.name), rest.split()
        parents[pid] = int(fields[1])
        if "chrom" in name:
            spent[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return sum(seconds for pid, seconds in spent.items() if _comes_from(pid, os.getpid(), parents))


def _comes_from(pid: int, first: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != first:
        pid = parents[pid]
    return pid == first


class Spent(NamedTuple):
    """Seconds of the clock, and of computing."""

    clock: float
    cpu: float


class Server:
    """`regard view` in a process of its own."""

    def __init__(self, path: Path, cache: Path) -> None:
        source = str(Path(regard.__file__).parents[1])
        environment = {**os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, "-m", "regard", "view", str(path), "--no-open", "--cache", str(cache)]
        started = time.perf_counter()
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline() if self.process.stdout else ""
        found = re.search(r"http://\S+", said)
        if found is None:
            raise SystemExit(f"the server did not start: {said}")
        self.address = found[0]
        self.connection = http.client.HTTPConnection(urlsplit(found[0]).netloc, timeout=60)
        self.get("/api/info")  # is answered when PyTorch is imported; the page is there before
        self.start_seconds = time.perf_counter() - started

    def get(self, path: str) -> bytes:
        self.connection.request("GET", path)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"{path} answered {answer.status}: {body[:300]!r}")
        return body

    def memory(self, field: str) -> int:
        """A line of the process's status in bytes: VmRSS is memory in use, RssAnon that of no file."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise SystemExit("this benchmark reads /proc and needs Linux")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=20)


def walk(server: Server, base: str, tokens: int, tiles: int) -> dict[int, list[Spent]]:
    """What each tile of a random walk costs, by level: pan, zoom in, zoom out, another head."""
    random.seed(0)
    levels = levels_of(tokens, tokens)
    times: dict[int, list[Spent]] = {level: [] for level in range(levels)}
    level, row, col, head = levels - 1, 0, 0, 0
    for _ in range(tiles):
        step = random.random()
        if step < 0.3 and level:
            level, row, col = level - 1, 2 * row + random.randrange(2), 2 * col + random.randrange(2)
        elif step < 0.5 and level < levels - 1:
            level, row, col = level + 1, row // 2, col // 2
        elif step < 0.9:
            row, col = row + random.randint(-2, 2), col + random.randint(-2, 2)
        elif step < 0.95:
            head = random.randrange(HEADS)
        else:
            level, row = random.randrange(levels), random.randrange(1 << levels)
            col = random.randrange(row + 1)
        most = -(-tokens // (256 << level)) - 1
        row, col = min(max(row, 0), most), min(max(col, 0), most)
        how = random.choice(["mean", "max"])
        started, before = time.perf_counter(), server_cpu(server.process.pid)
        server.get(f"{base}/heads/{head}/tile?level={level}&row={row}&col={col}&how={how}")
        clock = time.perf_counter() - started
        times[level].append(Spent(clock, server_cpu(server.process.pid) - before))
    return times


def quantile(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class Page:
    """The map in Chromium, at one place, with a count of its frames."""

    START = """() => {
      const at = (window.frames_at = []);
      const tick = (now) => { at.push(now); window.frame = requestAnimationFrame(tick); };
      window.frame = requestAnimationFrame(tick);
    }"""
    STOP = "() => { cancelAnimationFrame(window.frame); return window.frames_at; }"
    DRAWN = "() => Boolean(window.regard?.map?.settled() && window.regard.map.camera())"

    def __init__(self, browser: Any, address: str, dpr: int) -> None:
        self.page = browser.new_page(viewport=SCREEN, device_scale_factor=dpr)
        self.page.goto(address)
        while not self.page.evaluate(self.DRAWN):
            self.page.wait_for_timeout(50)
        box = self.page.locator(".stage").bounding_box()
        self.middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def drag(self) -> None:
        """Strokes as a hand makes them, on and on into places not seen before."""
        x, y = self.middle
        self.page.mouse.move(x + 250, y + 180)
        self.page.mouse.down()
        for step in range(1, 26):
            self.page.mouse.move(x + 250 - 20 * step, y + 180 - 15 * step)
            self.page.wait_for_timeout(8)
        self.page.mouse.up()

    def wheel(self) -> None:
        """In and out again around the middle."""
        self.page.mouse.move(*self.middle)
        for step in range(24):
            self.page.mouse.wheel(0, -120 if step < 12 else 120)
            self.page.wait_for_timeout(60)

    def frames(self, gesture: Any) -> list[float]:
        """Milliseconds between the frames while a gesture is made again and again."""
        self.page.evaluate(self.START)
        end = time.perf_counter() + GESTURE_SECONDS
        while time.perf_counter() < end:
            gesture()
        at = self.page.evaluate(self.STOP)
        return [after - before for before, after in pairwise(at)]


def watch_frames(server: Server, tokens: int, ratios: list[int]) -> None:
    """Frames per second while the map is dragged and zoomed: all of it, a stretch, single tokens.

    `ratios`: pixels of the screen to one of the page; a laptop of today has 2.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("\n- no playwright, so no frames were counted")
        return
    chromium = os.environ.get("REGARD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    x, y = tokens // 4, tokens // 2
    places = {"the whole map": "", "1 pixel a cell": f"&x={x}&y={y}&z=0", "20 pixels": f"&x={x}&y={y}&z=4.32"}
    columns = "shown | gesture | frames a second | median ms | p95 ms | longest ms | CPU ms a frame"
    print(f"\n| pixel ratio | {columns} |")
    print("| ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for dpr, (name, place) in product(ratios, places.items()):
            page = Page(browser, f"{server.address}#/map?layer=0&head=0{place}", dpr)
            for gesture in (page.drag, page.wheel):
                before = browser_cpu()
                spent = page.frames(gesture)
                computed = 1000 * (browser_cpu() - before) / len(spent)
                rate = 1000 * len(spent) / sum(spent)
                columns = quantile(spent, 0.5), quantile(spent, 0.95), max(spent), computed
                numbers = " | ".join(f"{x:.1f}" for x in (rate, *columns))
                print(f"| {dpr} | {name} | {gesture.__name__} | {numbers} |", flush=True)
            page.page.close()
        browser.close()


def bundle_bytes() -> int:
    """What the page's scripts weigh on their way to a browser."""
    scripts = (Path(regard.__file__).parent / "viewer" / "static" / "assets").glob("*.js")
    return sum(len(gzip.compress(script.read_bytes())) for script in scripts)


def report(path: Path, cache: Path, tokens: int, tiles: int, ratios: list[int]) -> None:
    """Start a server on the prepared recording and print what it does."""
    server = Server(path, cache)
    try:
        before = server.memory("VmRSS")
        started = time.perf_counter()
        name = json.loads(server.get("/api/recordings"))["default"]
        described = json.loads(server.get(f"/api/recordings/{name}"))
        base = f"/api/recordings/{name}/stacks/decoder/layers/0"
        top = described["levels"] - 1
        server.get(f"{base}/heads/0/tile?level={top}&row=0&col=0")
        first = time.perf_counter() - started
        started = time.perf_counter()
        server.get(f"{base}/heads/0/tile?level=0&row=9&col=9")
        opening = time.perf_counter() - started
        times = walk(server, base, tokens, tiles)
        memory = {field: server.memory(field) / 2**20 for field in ("VmHWM", "VmRSS", "RssAnon", "RssFile")}
        _print_server(server, before, first, opening, times, memory)
        watch_frames(server, tokens, ratios)
    finally:
        server.stop()


def _print_server(
    server: Server,
    before: int,
    first: float,
    opening: float,
    times: dict[int, list[Spent]],
    memory: dict[str, float],
) -> None:
    print(f"- server starts (Python and torch imported): {server.start_seconds:.2f} s, {before >> 20} MiB")
    print(f"- first overview, from an idle server: {first * 1000:.0f} ms (target 1000)")
    print(f"- first exact tile, the layer's checksum included: {opening * 1000:.0f} ms")
    every = [spent for part in times.values() for spent in part]
    clock, cpu = (1000 * quantile([one[i] for one in every], 0.95) for i in (0, 1))
    print(f"- {len(every)} tiles: p95 {clock:.0f} ms (target 50); p95 of CPU time {cpu:.0f} ms")
    print(f"- memory: {memory['VmHWM']:.0f} MiB at the peak (target 1024), of it {memory['RssAnon']:.0f} MiB")
    print(f"  the server's own and {memory['RssFile']:.0f} MiB pages of files at the end")
    print(f"- the page's scripts: {bundle_bytes() / 1000:.0f} kB gzipped (target 500)\n")
    print("| level | tiles | median ms | p95 ms | max ms | median CPU ms | p95 CPU ms |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for level, spent in times.items():
        if spent:
            clock, cpu = [one.clock for one in spent], [one.cpu for one in spent]
            found = quantile(clock, 0.5), quantile(clock, 0.95), max(clock), quantile(cpu, 0.5)
            columns = [1000 * x for x in (*found, quantile(cpu, 0.95))]
            print(f"| {level} | {len(spent)} | " + " | ".join(f"{x:.1f}" for x in columns) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=131_072)
    parser.add_argument("--tiles", type=int, default=2000)
    parser.add_argument("--dpr", type=int, nargs="+", default=[1, 2], help="device pixel ratios of the page")
    parser.add_argument(
        "--folder", type=Path, default=Path(tempfile.gettempdir()) / "regard-viewer-benchmark"
    )
    asked = parser.parse_args()
    heads = f"{HEADS} heads of {DIM} ({KV_HEADS} key heads)"
    how = "one server process, one walk; then one page, one gesture after another"
    header(f"The viewer, {asked.tokens:,} tokens, {heads}", how)
    path = asked.folder / f"random-{asked.tokens}.regard"
    if not (path / "manifest.json").exists():
        asked.folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        make(path, asked.tokens)
        print(f"- made the recording in {time.perf_counter() - started:.0f} s")
    started = time.perf_counter()
    prepare(path, asked.folder)
    spent = time.perf_counter() - started
    if spent > 1:
        bands = -(-asked.tokens // BAND)
        print(f"- made overviews in {spent:.0f} s ({HEADS} heads of {bands} bands)")
    report(path, asked.folder, asked.tokens, asked.tiles, asked.dpr)


if __name__ == "__main__":
    main()
