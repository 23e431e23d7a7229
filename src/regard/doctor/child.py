"""The subprocess that runs a file's code: `python -m regard.doctor.child ORDER`."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from regard.errors import RegardError, SubjectError

__all__ = ["work"]


def work(order: dict[str, Any]) -> None:
    """Examine the object that the order names, and write the result to a file, because the subject may
    print."""
    path, result = Path(order["path"]), Path(order["result"])
    found: dict[str, Any] = {}
    try:
        found = _load(path, order)
        if "thing" in found:
            found = _examine(found["thing"], order["options"])
    except RegardError as error:
        found = {"refused": str(error)}
    except BaseException as error:
        found = {"raises": _said(error, path)}
    result.write_text(json.dumps(found), encoding="utf-8")


def _said(error: BaseException, path: Path) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    mine = (f", {path.name} line {frame.lineno}" for frame in reversed(frames) if frame.filename == str(path))
    said = f": {error}" if str(error) else ""
    return f"{type(error).__name__}{said}{next(mine, '')}"


def _load(path: Path, order: dict[str, Any]) -> dict[str, Any]:
    """Run the file and find the object by its name, which may be dotted: model.layers.0.attn."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RegardError(f"{path.name} is no Python file. Name one that ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    thing: Any = module
    for place, part in enumerate(order["name"].split(".")):
        if part.isdigit() and hasattr(thing, "__getitem__"):
            thing = thing[int(part)]
        elif hasattr(thing, part):
            thing = getattr(thing, part)
        elif place:
            raise RegardError(f"{'.'.join(order['name'].split('.')[:place])} in {path.name} has no {part!r}.")
        else:
            own = [k for k, value in vars(module).items() if getattr(value, "__module__", None) == path.stem]
            return {"missing": own}
    if inspect.isclass(thing):
        from regard.doctor.construct import construct

        return {"thing": construct(thing, order["given"])}
    return {"thing": thing}


def _examine(thing: Any, options: dict[str, Any]) -> dict[str, Any]:
    from regard.doctor.examination import examine

    try:
        return {"diagnosis": examine(thing, **options).as_dict()}
    except SubjectError as error:
        return {"raises": str(error)}
    except RegardError:
        raise
    except Exception:
        return {"internal": traceback.format_exc()}


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
