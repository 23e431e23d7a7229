"""What type checkers know about regard: results, misspelt names, completion."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]

# Each `reveal_type` is followed by the type it must have, each mistake by the rule it breaks.
SCRIPT = """
import torch
import regard
from regard.stats import HeadDivergence

q, k, v = torch.zeros(3, 1, 2, 5, 8)
mask = regard.Causal() & ~regard.Window(2)
seen = regard.observe(q, k, v, mask=mask, stats=[regard.Entropy(), regard.TopK(2)])
recording = regard.load("x.regard")
reveal_type(mask)  # Mask
reveal_type(regard.attention(q, k, v, mask=mask))  # Tensor
reveal_type(seen)  # Observation
reveal_type(seen[regard.Entropy])  # Tensor
reveal_type(seen[regard.Entropy()])  # Tensor
reveal_type(seen[regard.TopK(2)])  # TopKeys
reveal_type(seen[regard.TopK].key)  # Tensor
reveal_type(seen[regard.Decay])  # DecayCurve
reveal_type(seen[HeadDivergence()])  # Tensor
reveal_type(seen.map)  # AttentionMap
reveal_type(seen.map[0, 1, 2, :3])  # Tensor
reveal_type(seen.map.topk(3))  # TopKeys
reveal_type(recording)  # Recording
reveal_type(recording.atlas())  # Atlas
reveal_type(recording.atlas().of(0, 1))  # HeadCard
reveal_type(recording.alone(0))  # Recording
reveal_type(regard.Recording.open("x.regard"))  # Recording
reveal_type(regard.check("weights: 1").ok)  # bool
reveal_type(regard.masks.Causal())  # Causal
regard.atention  # reportAttributeAccessIssue
regard.attention(q, k, v, scales=0.5)  # reportCallIssue
regard.observe(q, k, v, stats=["entropy"])  # reportArgumentType
"""


@pytest.fixture(scope="module")
def findings(tmp_path_factory) -> dict[int, str]:
    """What pyright says about each line of the script: the type revealed, or the rule broken."""
    folder = tmp_path_factory.mktemp("user")
    (folder / "script.py").write_text(SCRIPT)
    # The package is found as an installed one is, and none of this project's settings apply.
    settings = {"extraPaths": [str(ROOT / "src")], "reportUnusedExpression": False}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    found = {}
    for said in json.loads(done.stdout)["generalDiagnostics"]:
        revealed = re.fullmatch(r'Type of ".*" is "(.+)"', said["message"])
        found[said["range"]["start"]["line"]] = revealed[1] if revealed else said["rule"]
    return found


def test_a_users_script_has_the_types_written_beside_it_and_no_other_findings(findings):
    wanted = {n: line.split("  # ")[1] for n, line in enumerate(SCRIPT.split("\n")) if "  # " in line}
    assert findings == wanted


def test_no_name_at_the_root_may_be_taken_for_a_module_of_its_name():
    # mypy does so where a package imports a function from a module that is called the same.
    source = (ROOT / "src" / "regard" / "__init__.py").read_text()
    imported = re.findall(r"^    from (regard\.[\w.]+) import (.+)$", source, re.MULTILINE)
    pairs = [(package, name) for package, names in imported for name in names.split(", ")]
    assert ("regard.engine.attention", "attention") in pairs
    folder = ROOT / "src"
    assert [pair for pair in pairs if (folder.joinpath(*pair[0].split("."), f"{pair[1]}.py")).is_file()] == []


def test_checkers_see_every_public_name_and_no_catch_all():
    source = (ROOT / "src" / "regard" / "__init__.py").read_text()
    typed = source.split("if TYPE_CHECKING:")[1].split("__all__")[0]
    assert [name for name in regard.__all__ if not re.search(rf"\b{name}\b", typed)] == ["__version__"]
    assert "def __getattr__" not in source


def test_the_lazy_names_are_those_that_checkers_see():
    from regard import _loading

    lazy = {name for names in _loading.EXPORTS.values() for name in names}
    assert lazy == {*regard.__all__} - {"__version__"}
    assert all(getattr(regard, name) is not None for name in lazy)
