"""`regard info`: versions, devices, backends."""

from __future__ import annotations

import os
import platform
from typing import Any

from regard._loading import uncollected
from regard._version import __version__
from regard.commands.app import app
from regard.commands.output import print_json, show
from regard.commands.sources import JsonOption

__all__ = ["info"]

PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
    "triton",
    "fastapi",
    "anywidget",
    "matplotlib",
)


@app.command(epilog="Example: regard info")
def info(as_json: JsonOption = False) -> None:
    """Print versions, devices and backends, for a bug report."""
    with uncollected():
        found = facts()
    if as_json:
        print_json(found)
        return
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for part, values in found.items():
        for number, (name, value) in enumerate(values.items()):
            table.add_row("" if number else part, name, str(value))
    show(table)


def facts() -> dict[str, dict[str, Any]]:
    """What a bug report should say, by part."""
    import torch

    devices = {"cpu": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"}
    devices["cpu capability"] = torch.backends.cpu.get_cpu_capability()
    devices["threads"] = str(torch.get_num_threads())
    for index in range(torch.cuda.device_count()):
        devices[f"cuda:{index}"] = torch.cuda.get_device_name(index)
    return {
        "versions": {
            "regard": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
        },
        "devices": devices,
        "backends": _backends(),
    }


def _version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _backends() -> dict[str, str]:
    """What a small call would be given to on each device, and why."""
    import torch

    from regard.engine import explain_dispatch
    from regard.masks import Causal, Window

    found = {}
    for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
        q = torch.zeros(1, 1, 64, 64, device=device)
        for name, mask in (("plain", None), ("window", Causal() & Window(16))):
            found[f"{device}, {name}"] = str(explain_dispatch(q, q, q, mask))
    return found
