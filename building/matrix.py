"""Tries the lowest and the newest releases that pyproject.toml allows, each in an environment of its own.

python -m building.matrix                    both, with the tests
python -m building.matrix lowest --smoke     one of them: a recording, its atlas, and a page of the viewer
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

__all__ = ["main"]

ROOT = Path(__file__).parents[1]
HOME = ROOT / ".venv" / "matrix"
RESOLUTIONS = {"lowest": "lowest-direct", "newest": "highest"}
EXTRAS = "gguf,notebook,parquet"
# Tools of the tests: they are the same everywhere, and what is tried is what users have.
TOOLS = ("beartype", "httpx", "hypothesis", "pytest", "pytest-xdist")
TESTS = (
    "tests/masks",
    "tests/stats",
    "tests/scores",
    "tests/engine",
    "tests/maps",
    "tests/models",
    "tests/atlas",
)
# No check of shapes: it takes the place of a private function of one release of jaxtyping.
OPTIONS = "addopts=-q --import-mode=importlib"
TEXT = "The cat sat on the mat. The dog sat on the log. "


def main(arguments: list[str] | None = None) -> int:
    """Try each environment that is named, and say how it went; returns how many failed."""
    parser = argparse.ArgumentParser(prog="python -m building.matrix", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(RESOLUTIONS), help="lowest, newest")
    parser.add_argument(
        "--python", default=sys.executable, help="the interpreter, or a version that uv finds"
    )
    parser.add_argument("--smoke", action="store_true", help="leave the tests out")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.names) - set(RESOLUTIONS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(RESOLUTIONS)}")
    failed = 0
    for name in asked.names:
        program = installed(name, asked.python)
        steps = [record_and_view] if asked.smoke else [record_and_view, run_tests]
        good = all(step(program) for step in steps)
        print(f"{name}: {'works' if good else 'FAILED'} with {releases(program)}", flush=True)
        failed += not good
    return failed


def installed(name: str, python: str) -> Path:
    """The interpreter of a fresh environment with regard in it."""
    home = HOME / name
    uv("venv", "--quiet", "--clear", "--python", python, str(home))
    program = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    where = ("--quiet", "--python", str(program))
    uv("pip", "install", *where, "--resolution", RESOLUTIONS[name], "-e", f"{ROOT}[{EXTRAS}]")
    uv("pip", "install", *where, *TOOLS)
    return program


def uv(*arguments: str) -> None:
    """Run uv, or end with what it says."""
    done = subprocess.run([sys.executable, "-m", "uv", *arguments], check=False)
    if done.returncode:
        raise SystemExit(f"uv {' '.join(arguments[:2])} failed; see above.")


def record_and_view(program: Path) -> bool:
    """Whether a text can be recorded, its atlas made, and the viewer asked for its page."""
    with tempfile.TemporaryDirectory() as folder:
        text, recording = Path(folder, "text.txt"), Path(folder, "text.regard")
        text.write_text(TEXT * 20)
        for command in (("record", "bundled", text, "-o", recording), ("atlas", recording)):
            done = subprocess.run(
                [program, "-m", "regard", *command], capture_output=True, text=True, check=False
            )
            if done.returncode:
                print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
                return False
        return views(program, recording, Path(folder, "cache"))


def views(program: Path, recording: Path, cache: Path) -> bool:
    """Whether `regard view` serves its page."""
    command = [program, "-m", "regard", "view", "--no-open", "--cache", cache, recording]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    said = []
    try:
        for line in server.stdout or ():
            said.append(line)
            if found := re.search(r"regard is at (http://\S+)", line):
                # Answered when the viewer is there; until then the page is one that waits.
                urllib.request.urlopen(f"{found[1]}api/info").close()
                with urllib.request.urlopen(found[1]) as answer:
                    return b'id="app"' in answer.read()
    finally:
        server.terminate()
        server.wait()
    print("".join(said), file=sys.stderr)
    return False


def run_tests(program: Path) -> bool:
    """Whether the tests of what depends on those releases pass."""
    command = [program, "-m", "pytest", "-n", str(os.cpu_count() or 1), "-o", OPTIONS, *TESTS]
    left_out = ("--ignore=tests/engine/triton", "--ignore=tests/models/test_parity.py")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([*command, *left_out], cwd=ROOT, env=environment, check=False).returncode == 0


def releases(program: Path) -> str:
    """Python and the dependencies that matter most."""
    names = ("torch", "transformers", "numpy", "typer")
    code = (
        "import sys; from importlib.metadata import version as v; "
        f"print('Python', sys.version.split()[0], *(f'{{n}} {{v(n)}}' for n in {names}))"
    )
    return subprocess.run([program, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    raise SystemExit(main())
