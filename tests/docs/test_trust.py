"""docs/trust.md is made of the files that runs have written."""

from __future__ import annotations

import json
import sys

import pytest

from docs.pages import ROOT

sys.path.insert(0, str(ROOT))
from building import trust


def test_the_page_is_made_of_what_was_run():
    pytest.importorskip("onnx")
    assert trust.PAGE.read_text(encoding="utf-8") == trust.page(), "run: python -m building.trust"


def test_every_program_that_was_run_is_described_and_lost_nothing():
    found = json.loads((ROOT / "soak" / "results.json").read_text(encoding="utf-8"))
    assert set(found) <= set(trust.SOAK)
    bad = ("lost", "wrong", "wrong or failed", "other bits", "files left open")
    assert {run["counts"].get(name, 0) for run in found.values() for name in bad} == {0}


def test_runs_of_the_fuzzer_are_counted(tmp_path):
    (tmp_path / "fuzzing").mkdir()
    run = {"command": "python -m fuzzing", "date": "2026-01-02", "commit": "abc", "failures": {"masks": 1}}
    table = {"all_cases": 1234, "cases": {"masks": 1234}, "mended": ["a mask"], "runs": [run]}
    (tmp_path / "fuzzing" / "results.json").write_text(json.dumps(table))
    said = trust.page(tmp_path)
    assert "1,234 cases in 1 runs" in said
    assert "| masks | 1,234 |" in said
    assert "- a mask" in said


def test_cases_of_onnx_are_counted_from_the_tests():
    pytest.importorskip("onnx")
    from peers.onnx_cases import CASES
    from peers.test_onnx import NOT_RUN

    left_out = len(NOT_RUN["sdpa"])
    assert f"| `sdpa` | {len(CASES) - left_out} | {left_out} |" in trust.page()
