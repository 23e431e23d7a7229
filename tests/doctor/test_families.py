"""Families of transformers, built tiny, get a clean bill as whole models."""

from __future__ import annotations

import pytest

from models.families import notes, registered, tiny_model
from regard.doctor import examine

FAMILIES = [name for name in registered() if name not in notes()["left_out"]]
# Two towers that give one vector for a whole text: from outside, no token can be told from another.
WHOLE = {"tipsv2"}
FAMILIES = [name for name in FAMILIES if name not in WHOLE]
# Every 32nd in `make test`, every 8th in `make long`, and the others with -m slow.
FEW, SOME = FAMILIES[::32], FAMILIES[::8]

pytestmark = pytest.mark.filterwarnings("ignore")  # families warn about themselves, each in its own way


@pytest.mark.parametrize(
    "name",
    [
        *FEW,
        *(pytest.param(name, marks=pytest.mark.long) for name in SOME if name not in FEW),
        *(pytest.param(name, marks=pytest.mark.slow) for name in FAMILIES if name not in SOME),
    ],
)
def test_a_family_gets_a_clean_bill(name):
    model = tiny_model(name)
    if model.main_input_name != "input_ids":
        pytest.skip(f"reads {model.main_input_name}")
    found = examine(model)
    assert found.healthy, str(found)
