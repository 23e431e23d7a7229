"""Run every example and write the gallery: docs/gallery.md and the figures beside it.

    python examples/gallery.py [NAME ...]

Each entry is an example's own docstring, its figures and what it printed, so nothing on the page is written
by hand. With names, only those are run again and the rest of the page stays as it is.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "gallery.md"
IMAGES = PAGE.parent / "images" / "gallery"
NAMES = [
    "by_hand",
    "scale",
    "saturation",
    "softmax_budget",
    "not_an_explanation",
    "sinks",
    "induction",
    "grammar",
]
NAMES += ["decay", "needle", "positions", "windows", "tiles", "block", "cost", "before_attention"]
NAMES += ["bahdanau_alignment", "luong_alignment", "decomposable_inference"]
NAMES += ["phone_number", "coloured_shapes"]
# These draw one figure and take its name; the others take a folder.
ONE_FIGURE = {"bahdanau_alignment", "luong_alignment", "decomposable_inference"}
INTRODUCTION = """\
# Gallery

Short programs, each of which shows one thing, prints its numbers and draws what it found. All of them run
offline on one core, most within ten seconds, and the five that train a model within about two minutes. This
page is made by `python examples/gallery.py`: figures and numbers are what the programs gave.
"""


def words_of(name: str) -> tuple[str, str]:
    """The first sentence of an example's docstring, and the rest without the line that says how to run it."""
    text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or ""
    first, _, rest = text.partition("\n\n")
    return first.rstrip("."), rest.partition("\n\n")[2]


def figures_of(name: str) -> list[Path]:
    """The figures an example wrote, the one with its own name first."""
    return sorted(path for path in IMAGES.glob("*.png") if re.fullmatch(rf"{name}(_[a-z]+)?", path.stem))


def run(name: str) -> str:
    """Run an example, let it draw into the docs, and return what it printed."""
    out = IMAGES / f"{name}.png" if name in ONE_FIGURE else IMAGES
    command = [sys.executable, str(HERE / f"{name}.py"), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    return "\n".join(line for line in done.stdout.rstrip().splitlines() if not line.startswith("figure"))


def entry(name: str, printed: str) -> str:
    """One example as a section of the page."""
    title, words = words_of(name)
    heading = title.partition(": ")[0].replace("`", "")
    drawn, width = figures_of(name), 48 if len(figures_of(name)) > 1 else 64
    pictures = "\n".join(
        f'<img src="images/gallery/{path.name}" alt="{heading}" width="{width}%">' for path in drawn
    )
    sentence = title if title.endswith("?") else f"{title}."
    lead = f"[`examples/{name}.py`](../examples/{name}.py)" + (f": {sentence}" if ": " in title else "")
    parts = [f"<!-- {name} -->\n## {heading}", lead, words, pictures]
    return "\n\n".join([*parts, f"```text\n{printed}\n```\n"])


def printed_on(page: str) -> dict[str, str]:
    """What each example printed, as the page has it."""
    found = re.findall(r"^<!-- (\w+) -->.*?^```text\n(.*?)\n```$", page, re.MULTILINE | re.DOTALL)
    return dict(found)


def main(names: list[str]) -> None:
    """Run the examples named, or all, and write the page."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    printed = printed_on(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else {}
    for name in names or NAMES:
        print(name, flush=True)
        printed[name] = run(name)
    sections = [entry(name, printed[name]) for name in NAMES if name in printed]
    PAGE.write_text("\n".join([INTRODUCTION, *sections]), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    chosen = parser.parse_args().names
    if unknown := set(chosen) - set(NAMES):
        parser.error(f"no example is called {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}.")
    main(chosen)
