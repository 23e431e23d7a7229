"""What a first use waits for: the bundled model, `regard info`, and the first picture of `regard view`.

python benchmarks/first_use.py [--repeats 5] [--sections python view]

Each figure is of a fresh process. `regard view` starts with an empty cache and then with what that left; the
clock runs from the start of its process until Chromium, which is open already, has drawn the map. Beside the
time of the clock stands the CPU time of Python, and its ratio to that of `import torch`, which depend less on
what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from side_by_side import header

import regard

SOURCE = str(Path(regard.__file__).parents[1])
TORCH = "import torch"
BUNDLED = "from regard.models import bundled; bundled()"
# Then bundled() alone, in a process that has PyTorch.
CALLS = {
    "python -c pass": ["-c", "pass"],
    "import torch": ["-c", TORCH],
    "import torch, transformers.SmolLM3ForCausalLM": [
        "-c",
        f"{TORCH}; from transformers import SmolLM3ForCausalLM, PreTrainedTokenizerFast",
    ],
    "regard.models.bundled()": ["-c", BUNDLED],
    "regard info": ["-m", "regard", "info"],
}
DRAWN = "() => Boolean(window.regard?.map?.settled() && window.regard.map.camera())"


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": SOURCE, "PYTHONUNBUFFERED": "1"}


def python_section(repeats: int) -> None:
    """Whole processes: seconds of the clock and of computing."""
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in CALLS}
    for _ in range(repeats):
        for name, arguments in CALLS.items():
            runs[name].append(_process([sys.executable, *arguments]))
    print("## A fresh process\n")
    print("| process | s | CPU s | to `import torch` |")
    print("| --- | ---: | ---: | ---: |")
    medians = {
        name: [statistics.median(one[i] for one in spent) for i in (0, 1)] for name, spent in runs.items()
    }
    for name, (clock, cpu) in medians.items():
        print(f"| `{name}` | {clock:.2f} | {cpu:.2f} | {cpu / medians['import torch'][1]:.2f} |", flush=True)
    print()


def _process(command: list[str]) -> tuple[float, float]:
    before, began = _children(), time.perf_counter()
    subprocess.run(command, env=environment(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, _children() - before


def _children() -> float:
    """The CPU seconds of processes that have ended."""
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def view_section(repeats: int) -> None:
    """`regard view` until the map is drawn, with an empty cache and again."""
    from playwright.sync_api import sync_playwright

    chromium = os.environ.get("REGARD_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    runs: dict[str, list[dict[str, float]]] = {"empty": [], "filled": []}
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                for kind in runs:
                    runs[kind].append(_view(browser, cache))
        browser.close()
    print("## `regard view --no-open`, seconds since its process began\n")
    events = list(runs["empty"][0])
    print(f"| cache | {' | '.join(events)} |")
    print(f"| --- | {' | '.join('---:' for _ in events)} |")
    for kind, spent in runs.items():
        medians = (statistics.median(one[event] for one in spent) for event in events)
        print(f"| {kind} | {' | '.join(f'{seconds:.2f}' for seconds in medians)} |", flush=True)


def _view(browser: Any, cache: str) -> dict[str, float]:
    command = [sys.executable, "-m", "regard", "view", "--no-open", "--cache", cache]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)

    def since() -> float:
        return time.perf_counter() - began

    try:
        found = re.search(r"http://\S+", process.stdout.readline() if process.stdout else "")
        if found is None:
            raise SystemExit("the server did not start")
        spent = {"address printed": since()}
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(found[0])
        spent["page shown"] = since()
        _until(page, lambda: page.evaluate(DRAWN))
        spent["map drawn"] = since()
        spent["CPU s of the server"] = _cpu(process.pid)
        page.close()
    finally:
        process.terminate()
        process.wait(timeout=30)
    return spent


def _until(page: Any, true: Callable[[], bool]) -> None:
    from playwright.sync_api import Error

    while True:
        try:
            if true():
                return
        except Error:
            pass  # the page was being loaded again
        page.wait_for_timeout(20)


def _cpu(process: int) -> float:
    """Seconds that the threads of a process have computed."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


SECTIONS = {"python": python_section, "view": view_section}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    asked = parser.parse_args()
    how = f"medians of {asked.repeats} fresh processes; transformers {version('transformers')}; "
    how += f"load average {os.getloadavg()[0]:.1f}"
    header("First use", how)
    for name in asked.sections:
        SECTIONS[name](asked.repeats)


if __name__ == "__main__":
    main()
