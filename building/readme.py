"""Runs every block and every command of README and docs against an installed wheel, as a new user would.

python -m building.readme                    in a fresh environment, with the releases of constraints.txt
python -m building.readme --borrow           with the dependencies that are installed here: faster
python -m building.readme README.md          only pages with such names
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from building.matrix import uv, views

__all__ = ["commands", "main", "pages", "program"]

ROOT = Path(__file__).parents[1]
EXTRAS = "gguf,mcp,notebook,pandas,parquet,tensorboard,zarr"
STORY = "The badger lit the lamp on the hill. The heron saw the lamp, and the badger saw the heron. " * 3
ATTENTION = """
from torch.nn import functional as F

def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
"""
# A small T5 of random weights, for pages about models that read one text and write another.
TRANSLATOR = """
import sys
import transformers

reader = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
config = transformers.T5Config(vocab_size=len(reader), decoder_start_token_id=0, **sizes)
transformers.T5ForConditionalGeneration(config).save_pretrained(sys.argv[2])
reader.save_pretrained(sys.argv[2])
"""


def main(arguments: list[str] | None = None) -> int:
    """Build, install, run everything, and say how it went; returns how many failed."""
    parser = argparse.ArgumentParser(prog="python -m building.readme", description=__doc__)
    parser.add_argument("names", nargs="*", help="parts of the names of pages; all if none")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environment")
    parser.add_argument("--borrow", action="store_true", help="use the dependencies installed here")
    asked = parser.parse_args(arguments)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        interpreter = installed(Path(folder), asked.python, asked.borrow)
        for page in pages(asked.names):
            failed += tried(page, interpreter, Path(folder))
        if not asked.names:
            failed += not told("regard view", lambda: viewed(interpreter, Path(folder)))
    print(f"{failed or 'nothing'} failed")
    return failed


def pages(names: list[str]) -> list[Path]:
    """README and the pages of docs/, or those whose names have one of these parts."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in every if not names or any(name in str(page.relative_to(ROOT)) for name in names)]


def program(markdown: str) -> str:
    """The ```python blocks of a page as one program, every line where the page has it.

    From a block with prompts it takes the code; tests/docs compares what such a block prints.
    """
    lines, inside, opened, session = [], False, False, False
    for line in markdown.splitlines():
        fence = line.startswith("```")
        if inside and not fence:
            # A block is a session if its first line has a prompt.
            session = line.startswith(">>>") if opened else session
            lines.append(line if not session else line[4:] if line.startswith((">>>", "...")) else "")
        else:
            lines.append("")
        opened = fence and line == "```python"
        inside = opened if fence else inside
    return "\n".join(lines) + "\n"


def commands(markdown: str) -> list[str]:
    """The commands of regard in the ```bash and ```sh blocks of a page; not those that serve until stopped.

    Tests run ```bash alone, on a text of 80 letters: ```sh is for what needs a longer text or more files.

    >>> commands("```bash\\nregard info   # versions\\nregard view\\npip install regard\\n```")
    ['regard info']
    """
    blocks = re.findall(r"^```(?:bash|sh)\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    ends = re.compile(r"(regard (?!view|mcp|corpus open).+?)(?: +#.*)?$")
    return [found[1] for line in lines if (found := ends.match(line))]


def installed(folder: Path, python: str, borrow: bool) -> Path:
    """The interpreter of a new environment with the wheel in it, and nothing of this checkout."""
    uv("build", "--quiet", "--wheel", "--out-dir", str(folder / "dist"), str(ROOT))
    wheel = next((folder / "dist").glob("*.whl"))
    home = folder / "environment"
    uv("venv", "--quiet", "--python", python, str(home))
    interpreter = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = ("--quiet", "--python", str(interpreter))
    if borrow:
        uv("pip", "install", *where, "--no-deps", str(wheel))
        library = next(home.glob("**/site-packages"))
        paths = [path for path in sys.path if path.endswith("site-packages")]
        (library / "borrowed.pth").write_text("\n".join(paths), encoding="utf-8")
    else:
        constraints = str(ROOT / "constraints.txt")
        uv("pip", "install", *where, "--constraint", constraints, f"{wheel}[{EXTRAS}]")
    return interpreter


def tried(page: Path, interpreter: Path, folder: Path) -> int:
    """Run what a page says in a folder of its own; returns how many of its parts failed."""
    text, name = page.read_text(encoding="utf-8"), str(page.relative_to(ROOT))
    code, said = program(text), commands(text)
    if not code.strip() and not said:
        return 0
    work = Path(tempfile.mkdtemp(dir=folder))
    furnish(work, interpreter, text)
    script = work / "page.py"
    script.write_text(code, encoding="utf-8")
    failed = 0
    if code.strip():
        failed += not told(f"{name}: code", lambda: ran([interpreter, script], work))
    for line in said:
        arguments = [interpreter, "-m", *shlex.split(line)]
        failed += not told(f"{name}: {line}", lambda given=arguments: ran(given, work))
    return failed


def furnish(work: Path, interpreter: Path, page: str) -> None:
    """The files that a page takes for granted: texts, a function, and folders of models."""
    (work / "story.txt").write_text(STORY, encoding="utf-8")
    (work / "book.txt").write_text(STORY, encoding="utf-8")
    stories = [json.dumps({"text": STORY[start:]}) for start in (0, 4, 11)]
    (work / "stories.jsonl").write_text("\n".join(stories), encoding="utf-8")
    (work / "my_attention.py").write_text(ATTENTION, encoding="utf-8")
    (work / "a").mkdir()
    where = "import regard.models, pathlib; print(pathlib.Path(regard.models.__file__).parent / 'data')"
    data = subprocess.run([interpreter, "-c", where], capture_output=True, text=True, check=True, cwd=work)
    (work / "a" / "folder").symlink_to(data.stdout.strip())
    if "a/t5/folder" in page:
        (work / "question.txt").write_text("Where was it found?", encoding="utf-8")
        made = [interpreter, "-c", TRANSLATOR, "a/folder", "a/t5/folder"]
        subprocess.run(made, check=True, cwd=work, capture_output=True)


def ran(command: Sequence[object], work: Path) -> str:
    """What a command said if it failed, or nothing."""
    given = [str(part) for part in command]
    done = subprocess.run(given, cwd=work, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else (done.stderr or done.stdout)[-2000:] or f"status {done.returncode}"


def viewed(interpreter: Path, folder: Path) -> str:
    """Whether the viewer serves a recording made with the wheel."""
    recording = folder / "viewed.regard"
    said = ran([interpreter, "-m", "regard", "record", "bundled", STORY, "-o", recording], folder)
    return said or ("" if views(interpreter, recording, folder / "cache") else "the viewer served no page")


def told(what: str, run: Callable[[], str]) -> bool:
    """Run something, say how it went and how long it took; returns whether it went well."""
    start = time.perf_counter()
    said = run()
    print(f"{'FAILED' if said else 'ok':6} {time.perf_counter() - start:6.1f} s  {what}", flush=True)
    if said:
        print(said, file=sys.stderr)
    return not said


if __name__ == "__main__":
    raise SystemExit(bool(main()))
