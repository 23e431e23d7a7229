"""How the doctor does on the zoo and on every style with every mistake: `python tests/doctor/table.py`."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch  # noqa: E402

from doctor.styles import variants  # noqa: E402
from doctor.zoo_of import BROKEN, HEALTHY, load, subject_of  # noqa: E402
from regard.doctor.examination import examine  # noqa: E402

KINDS = ("passed", "accused", "named", "misnamed", "missed", "not examined", "refused")


def made(text: str) -> Any:
    """The module that a text defines, with a configuration of its own file."""
    module = ModuleType("style")
    exec(compile(text, "style.py", "exec"), vars(module))
    torch.manual_seed(0)
    return module.CausalAttention()


def judged(thing: Any, codes: tuple[str, ...], options: dict[str, Any]) -> tuple[str, str]:
    """What the examination came to, and the words for it."""
    try:
        found = examine(thing, **options)
    except Exception as error:
        return "refused", f"{type(error).__name__}: {error}"
    said = ", ".join(found.codes) or "; ".join(found.unexamined)
    if found.findings:
        right = set(found.codes) & set(codes)
        return ("named" if right else "misnamed") if codes else "accused", said
    if found.unexamined:
        return "not examined", said
    return ("missed" if codes else "passed"), said


def cases(which: str) -> Any:
    """Names, codes and things to examine; `held` is the third of the styles held out, `seen` the rest."""
    if which in ("all", "zoo"):
        for path in [*HEALTHY, *BROKEN]:
            file = load(path)
            codes = (file.MISTAKE,) if hasattr(file, "MISTAKE") else ()
            yield f"zoo {path.stem}", codes, subject_of(file), getattr(file, "OPTIONS", {})
    styles: dict[str, int] = {}
    for name, codes, text in variants() if which != "zoo" else ():
        place = styles.setdefault(name.split()[0], len(styles))
        if which in ("all", "styles") or (place % 3 == 2) == (which == "held"):
            yield name, codes, made(text), {}


def main(which: str = "all") -> None:
    """Print what did not come out right, and the table."""
    counts: Counter[tuple[bool, str]] = Counter()
    for name, codes, thing, options in cases(which):
        kind, said = judged(thing, codes, options)
        counts[bool(codes), kind] += 1
        if kind not in ("passed", "named"):
            print(f"{kind:>12}  {name}: {said[:150]}", flush=True)
    print(f"\n{'':>10}" + "".join(f"{kind:>14}" for kind in KINDS))
    for broken, word in ((False, "healthy"), (True, "broken")):
        print(f"{word:>10}" + "".join(f"{counts[broken, kind]:>14}" for kind in KINDS))


if __name__ == "__main__":
    main(*sys.argv[1:])
