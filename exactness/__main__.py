"""`python -m exactness`: measure, keep the numbers in exactness/results.json, write docs/exactness.md."""

from __future__ import annotations

import argparse
import platform
import sys
import warnings
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import torch

from exactness.measure import measure
from exactness.page import PAGE, RESULTS, page, read, write
from soak.results import commit


def main(arguments: list[str]) -> None:
    """Measure one device and write the page of all that were."""
    parser = argparse.ArgumentParser("python -m exactness", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the numbers are kept")
    parser.add_argument("--only-page", action="store_true", help="measure nothing, write the page again")
    given = parser.parse_args(arguments)
    results = read(given.results)
    if not given.only_page:
        # PyTorch says once that an ARM processor without bfloat16 multiplies another way.
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        torch.set_num_threads(1)
        results[given.device] = {
            "machine": torch.cuda.get_device_name()
            if given.device == "cuda"
            else f"CPU, {platform.machine()}",
            "date": f"{datetime.now(UTC):%Y-%m-%d}",
            "commit": commit(),
            "command": " ".join(["python -m exactness", *arguments]),
            "cells": [asdict(cell) for cell in measure(given.device)],
        }
        write(given.results, results)
    PAGE.write_text(page(results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
