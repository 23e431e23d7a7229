"""The zoo: files with one attention each, read as the command line reads them."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

ZOO = Path(__file__).parent / "zoo"
BROKEN = sorted((ZOO / "broken").glob("*.py"))
HEALTHY = sorted((ZOO / "healthy").glob("*.py"))


def load(path: Path) -> ModuleType:
    """The file as a module of its own."""
    spec = importlib.util.spec_from_file_location(f"zoo_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def subject_of(file: ModuleType) -> Any:
    """The attention in a file: its last class of modules, made with its defaults, or its last function."""
    if hasattr(file, "make"):
        return file.make()
    own = [x for x in vars(file).values() if getattr(x, "__module__", None) == file.__name__]
    modules = [x for x in own if inspect.isclass(x) and issubclass(x, torch.nn.Module)]
    return modules[-1]() if modules else [x for x in own if inspect.isfunction(x)][-1]
