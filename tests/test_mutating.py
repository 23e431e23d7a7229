"""The mutation check makes the mistakes it says, in the code that runs."""

from __future__ import annotations

import gc
from types import FunctionType

import pytest
import torch

from mutating import ROOT
from mutating.mutants import mutants_of
from mutating.suites import PACKAGES, files_of, suite_of
from mutating.trial import _put_in
from regard.masks import causal

PATH = "src/regard/masks/causal.py"


@pytest.fixture
def _mended():
    """Gives every function of the file its own code back."""
    # The tests hide from the collector what they have imported.
    gc.unfreeze()
    found = [x for x in gc.get_objects() if type(x) is FunctionType]
    gc.freeze()
    kept = [(x, x.__code__) for x in found if x.__code__.co_filename == causal.__file__]
    assert kept
    yield
    for function, code in kept:
        function.__code__ = code


def mutants(path: str):
    return mutants_of(path, (ROOT / path).read_text(encoding="utf-8"))


def test_every_mutant_differs_from_its_file_in_one_place():
    for mutant in mutants(PATH):
        assert mutant.source != mutant.original
        assert mutant.name.startswith(f"{PATH}:{mutant.line}:")


def test_docstrings_annotations_and_decorators_are_left_alone():
    source = '@cache(1)\ndef f(a: Literal[1] = 2) -> Literal[3]:\n    "4"\n    return a < 5\n'
    assert [mutant.after for mutant in mutants_of("x.py", source)] == ["3", "None", "a <= 5", "6"]


@pytest.mark.usefixtures("_mended")
def test_a_mistake_is_in_the_function_that_runs():
    position = torch.arange(3)
    assert bool(causal.Causal().allows(position, position).all())
    wrong = next(mutant for mutant in mutants(PATH) if mutant.after == "k < q + self.shift")
    assert _put_in(wrong)
    assert not bool(causal.Causal().allows(position, position).any())


def test_a_mistake_is_gone_after_the_test_that_made_it():
    position = torch.arange(3)
    assert bool(causal.Causal().allows(position, position).all())


def test_a_mistake_outside_functions_is_not_put_in():
    source = "LIMIT = 3\n\n\ndef f():\n    return LIMIT\n"
    outside = next(m for m in mutants_of(PATH, source) if m.after == "4")
    assert not _put_in(outside)


def test_every_file_has_tests_that_exist():
    for package in PACKAGES:
        for path in files_of(package):
            assert suite_of(path)
            assert all((ROOT / test).exists() for test in suite_of(path)), path
