"""The native kernels: C in src/regard/engine/native, compiled beside their source.

python -m building.native builds them in place, as an editable install does.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["build", "requirements", "wheel_tag"]

ROOT = Path(__file__).parents[1]
FOLDER = Path("src/regard/engine/native")
# Fused multiplication where the machine has it; nothing that makes -inf or the order of a sum negotiable.
FLAGS = ("-std=c11", "-O3", "-ffp-contract=fast", "-fPIC", "-shared", "-Wall")
# One library for each step of x86-64; engine/library.py picks by what the processor can do.
STEPS = {
    "x86-64-v2": ("-march=x86-64-v2",),
    "x86-64-v3": ("-march=x86-64-v3",),
    "x86-64-v4": ("-march=x86-64-v4", "-mprefer-vector-width=512"),
}
# A wheel for every Linux since 2014 may ask for nothing newer than this.
OLDEST_GLIBC = (2, 17)


def requirements() -> list[str]:
    """Packages the build needs from PyPI on this machine: a C compiler, where there is none."""
    return [] if _system_compiler() else ["ziglang>=0.13"]


def build(root: Path) -> list[Path]:
    """Compile the kernels; returns the files that belong into the wheel.

    Where there is no compiler a warning says so, and regard does the same more slowly. With
    REGARD_BUILD_NATIVE=0 none are built: that makes the wheel for all other platforms.
    """
    folder = root / FOLDER
    wanted = os.environ.get("REGARD_BUILD_NATIVE", "1") != "0"
    compiler = (_system_compiler() or _zig()) if wanted else None
    built: list[Path] = []
    if compiler is None and wanted:
        _complain("there is no C compiler")
    for name, flags in _builds().items() if compiler else ():
        if compiler == _zig():
            # Zig spells processors its own way.
            flags = [flag.replace("x86-64-v", "x86_64_v") for flag in flags]
        target = folder / f"fold-{name}{_suffix()}"
        # Whole or not at all: a process that loads it meanwhile must not find half a library.
        draft = folder / f"draft-{os.getpid()}-{name}"
        command = [*compiler, *FLAGS, *flags, str(folder / "fold.c"), "-o", str(draft)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            _complain(f"{shlex.join(command)} failed:\n{done.stderr}")
            draft.unlink(missing_ok=True)
        else:
            draft.replace(target)
            built.append(target)
    for old in set(folder.glob("fold-*")) - set(built):
        old.unlink()
    return built


def wheel_tag() -> str | None:
    """The platform the wheel is for; None where it holds Python only."""
    built = sorted((ROOT / FOLDER).glob("fold-*"))
    if not built:
        return None
    from packaging.tags import platform_tags

    machine = next(iter(platform_tags()))
    if sys.platform == "linux" and "musl" not in machine:
        asked = max(_glibc(path) for path in built)
        system = "manylinux_2_17" if asked <= OLDEST_GLIBC else "linux"
        machine = f"{system}_{platform.machine()}"
    return f"py3-none-{machine}"


def _builds() -> dict[str, tuple[str, ...]]:
    return STEPS if platform.machine().lower() in ("x86_64", "amd64") else {"generic": ()}


def _suffix() -> str:
    return {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def _system_compiler() -> list[str] | None:
    """GCC or Clang, by $CC or by name. Microsoft's compiler does not know vectors as types.

    On Windows GCC keeps 32-byte vectors on a stack that is aligned to 16 bytes, and crashes (GCC bug 54412).
    """
    usual = ["clang"] if sys.platform == "win32" else ["cc", "gcc", "clang"]
    names = [os.environ.get("CC", ""), *usual]
    for words in (shlex.split(name) for name in names):
        if words and shutil.which(words[0]):
            return words
    return None


def _zig() -> list[str] | None:
    return [sys.executable, "-m", "ziglang", "cc"] if importlib.util.find_spec("ziglang") else None


def _glibc(library: Path) -> tuple[int, int]:
    """The newest version of the C library that a shared object asks for."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    return max(((int(major), int(minor)) for major, minor in versions), default=(0, 0))


def _complain(why: str) -> None:
    text = f"regard's native kernels were not built: {why}\nregard works without them; observing is slower."
    print(f"{'!' * 79}\n{text}\n{'!' * 79}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    for path in build(ROOT):
        print(path.relative_to(ROOT))
    print(wheel_tag())
