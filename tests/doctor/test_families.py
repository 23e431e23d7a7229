"""Families of transformers, built tiny, get a clean bill as whole models."""

from __future__ import annotations

import pytest

from models.families import notes, registered, tiny_model
from regard.doctor import examine

FAMILIES = [name for name in registered() if name not in notes()["left_out"]]
# Two towers that give one vector for a whole text: from outside, no token can be told from another.
WHOLE = {"tipsv2"}
FAMILIES = [name for name in FAMILIES if name not in WHOLE]
# Every 8th runs in `make test`, those of them that take seconds in `make long`, and all others with -m slow.
SOME = FAMILIES[::8]
SECONDS = {"afmoe", "gemma3_text", "granite_swa", "inkling2_text", "longt5"}


def chosen(name: str) -> object:
    if name not in SOME:
        return pytest.param(name, marks=pytest.mark.slow)
    return pytest.param(name, marks=pytest.mark.long) if name in SECONDS else name


pytestmark = pytest.mark.filterwarnings("ignore")  # families warn about themselves, each in its own way


@pytest.mark.share(3)
@pytest.mark.parametrize("name", [chosen(name) for name in FAMILIES])
def test_a_family_gets_a_clean_bill(name):
    model = tiny_model(name)
    if model.main_input_name != "input_ids":
        pytest.skip(f"reads {model.main_input_name}")
    found = examine(model)
    assert found.healthy, str(found)
