"""The list of families in the how-to is what the data file and the tests say.

To write it anew after a change: PYTHONPATH=src:tests python -m models.test_families_page
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES, model_type_to_module_name

from models import beyond
from models.families import inputs_of, notes, tiny_model
from models.test_banded import BANDED
from models.test_blocked import OWN_BLOCKS
from models.test_outside import MADE, TINY
from regard.errors import ModelError
from regard.models import watch

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "watch.md"
BEGIN, END = "<!-- families: from tests/models/families.toml -->\n", "<!-- end of families -->\n"


def own_code() -> set[str]:
    """Families whose own code is observed."""
    compared = {name.split()[0] for name in (*MADE, *TINY, *beyond.MADE, *beyond.TINY)}
    own = {name for name in compared if attends_by_itself(name)}
    return {*own, *BANDED, *OWN_BLOCKS, *notes()["own_code"], *notes()["alike"], "git", "lilt", "wavlm"}


def listed() -> str:
    """What the page says about families."""
    own = sorted(own_code())
    lines = ["| families, by `model_type` | `watch` |", "| --- | --- |"]
    rest = "runs regard's attention, compared with eager where a small model can be built"
    lines += [f"| every other family that uses the registry | {rest} |"]
    lines += [f"| {', '.join(f'`{name}`' for name in own)} | observes the model's own code |"]
    none = sorted(notes()["without_map"].items())
    lines += [f"| `{name}` | no map: it {reason} |" for name, reason in none]
    return "\n" + "\n".join(lines) + "\n\n"


def test_the_page_lists_the_families_that_are_tested():
    page = PAGE.read_text(encoding="utf-8")
    assert page.partition(BEGIN)[2].partition(END)[0] == listed()


def attends_by_itself(family: str) -> bool:
    """Whether a family's file has a class named after attention, and asks no registry."""
    folder = Path(transformers.__file__).parent / "models" / model_type_to_module_name(family)
    code = "".join(file.read_text(encoding="utf-8") for file in sorted(folder.glob("modeling_*.py")))
    named = re.search(r"^class \w*(Atten(?!tionMask)|Attn)\w*\(", code, re.MULTILINE)
    return named is not None and "ALL_ATTENTION_FUNCTIONS.get_interface(" not in code


def test_every_family_of_transformers_is_reached_or_named_with_a_reason():
    known = own_code() | {*notes()["without_map"]}
    # Parts of a family are other types in the same file.
    files = {model_type_to_module_name(name) for name in known}
    alone = [name for name in CONFIG_MAPPING_NAMES if attends_by_itself(name)]
    assert len(alone) > 90
    assert [name for name in alone if model_type_to_module_name(name) not in files] == []
    for section in ("without_map", "alike"):
        for name, reason in notes()[section].items():
            assert name in alone or section == "alike", name
            assert len(reason) > 10


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["mra", "rwkv", "swiftformer", "yoso"])
def test_a_family_without_maps_is_refused(name):
    model = tiny_model(name)
    with pytest.raises(ModelError, match=r"no attention was seen|cannot be watched"), watch(model):
        model(**inputs_of(model))


if __name__ == "__main__":
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    PAGE.write_text(before + BEGIN + listed() + END + after, encoding="utf-8")
