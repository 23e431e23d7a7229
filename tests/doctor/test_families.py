"""Families of transformers, built tiny, get a clean bill as whole models."""

from __future__ import annotations

import pytest

from models.families import notes, registered, tiny_model
from regard.doctor import examine

FAMILIES = [name for name in registered() if name not in notes()["left_out"]]
# Two towers that give one vector for a whole text: from outside, no token can be told from another.
WHOLE = {"tipsv2"}
FAMILIES = [name for name in FAMILIES if name not in WHOLE]
# One in every eight in each run; the others with -m slow.
EACH = 8

pytestmark = pytest.mark.filterwarnings("ignore")  # families warn about themselves, each in its own way


def check(name: str) -> None:
    model = tiny_model(name)
    if model.main_input_name != "input_ids":
        pytest.skip(f"reads {model.main_input_name}")
    found = examine(model)
    assert found.healthy, str(found)


@pytest.mark.parametrize("name", FAMILIES[::EACH])
def test_a_family_gets_a_clean_bill(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for i, name in enumerate(FAMILIES) if i % EACH])
def test_every_other_family_gets_a_clean_bill(name):
    check(name)
