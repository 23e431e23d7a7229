"""Every broken attention of the zoo is found and named as itself, and no healthy one is accused."""

from __future__ import annotations

import pytest

from doctor.zoo_of import BROKEN, HEALTHY, load, subject_of
from regard.doctor import examine, mistakes

# Reported by the process around a subject, so no subject of the zoo can show them.
OUTSIDE = {"raises", "hangs"}


@pytest.mark.share(3)
@pytest.mark.parametrize("path", BROKEN, ids=lambda path: path.stem)
def test_a_mistake_is_found_and_named_as_itself(path):
    file = load(path)
    found = examine(subject_of(file), **getattr(file, "OPTIONS", {}))
    assert found.codes == (file.MISTAKE,), str(found)


@pytest.mark.share(3)
@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.stem)
def test_a_healthy_attention_gets_a_clean_bill(path):
    file = load(path)
    found = examine(subject_of(file), **getattr(file, "OPTIONS", {}))
    assert found.healthy, str(found)


def test_the_zoo_is_as_large_as_it_says():
    assert len(BROKEN) >= 55
    assert len(HEALTHY) >= 40


def test_every_mistake_of_the_catalogue_lives_in_the_zoo():
    assert {load(path).MISTAKE for path in BROKEN} == set(mistakes()) - OUTSIDE


@pytest.mark.parametrize("path", [*BROKEN, *HEALTHY], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_an_animal_of_the_zoo_says_what_it_is_in_few_lines(path):
    text = path.read_text()
    assert text.startswith('"""')
    assert len(text.splitlines()) <= 45
