"""The fresh set: `python tests/doctor/public_set.py` prints what did not come out right, and counts."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch  # noqa: E402

FILES = ("vision", "language", "teaching", "research")
# Parts of a module that are no attention by themselves.
PARTS = {"Inner", "Head", "PrepareHeads"}


def file_of(name: str) -> ModuleType:
    """One file of the set."""
    return importlib.import_module(f"doctor.public.{name}")


def mutated(file: ModuleType, name: str, old: str, new: str) -> Any:
    """What a file defines under a name, once `old` in its source is `new`."""
    text = Path(inspect.getfile(file)).read_text(encoding="utf-8")
    thing = getattr(file, name)
    own = inspect.getsource(thing)
    where = own if old in own else text.split("\nOTHER = ")[0]
    if where.count(old) != 1 and where is not own:
        raise AssertionError(f"{old!r} is {where.count(old)} times in the source of {name}")
    source = text.replace(own, own.replace(old, new)) if where is own else text.replace(old, new, 1)
    module = ModuleType(f"{file.__name__}_{name}")
    exec(compile(source, f"{name}.py", "exec"), vars(module))
    return getattr(module, name)


def made(thing: Any) -> Any:
    """The module of a class, or the function."""
    torch.manual_seed(0)
    return thing() if inspect.isclass(thing) else thing


def cases() -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    """Label, the verdict or code that is right, what to examine and the options."""
    for name in FILES:
        file = file_of(name)
        options = getattr(file, "OPTIONS", {})
        own = [x for x in vars(file).values() if getattr(x, "__module__", None) == file.__name__]
        broken = {entry[0] for entry in file.BROKEN} | set(file.OTHER)
        for thing in own:
            known = inspect.isclass(thing) or thing.__name__ in broken
            if not known or thing.__name__ in PARTS:
                continue
            right = "not examined" if thing.__name__ in file.OTHER else "healthy"
            yield f"{name} {thing.__name__}", right, thing, options.get(thing.__name__, {})
        for of, code, old, new, *more in file.BROKEN:
            said = {**options.get(of, {}), **(more[0] if more else {})}
            yield f"{name} {of} {code}", code, (file, of, old, new), said


def judged(right: str, thing: Any, options: dict[str, Any]) -> tuple[str, Any]:
    """Whether the examination came to what is right, and the diagnosis."""
    from regard.doctor.examination import examine

    found = examine(made(mutated(*thing) if isinstance(thing, tuple) else thing), **options)
    said = found.codes if found.findings else (found.verdict,)
    wanted = (right,) if right == "not examined" else right.split()
    return ("right" if len(said) == 1 and said[0] in wanted else "wrong"), found


def main(only: str = "") -> None:
    """Print what is wrong, and how many are right of each kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for label, right, thing, options in cases():
        if only and not any(part in label for part in only.split(",")):
            continue
        verdict, found = judged(right, thing, options)
        kind = right if right in ("healthy", "not examined") else "broken"
        counts[kind, verdict] += 1
        if verdict == "wrong" or (only and "," not in only):
            said = ", ".join(found.codes) or found.verdict
            why = "; ".join(found.unexamined) or "; ".join(one.evidence for one in found.findings)
            print(f"{label}: wanted {right}, said {said}: {why}"[:400], flush=True)
            if only and "," not in only:
                print(found)
    for kind in ("healthy", "not examined", "broken"):
        print(f"{kind:>14}  right {counts[kind, 'right']:>3}  wrong {counts[kind, 'wrong']:>3}")


if __name__ == "__main__":
    main(*sys.argv[1:])
