"""Exercises: every seed poses a problem whose own solution is right, and mistakes are named."""

from __future__ import annotations

import json
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from docs.pages import DOCS
from effort import examples
from regard.errors import RegardError
from regard.exercises import EXERCISES, Choice, Sheet, exercise


@examples(60)
@given(st.sampled_from(EXERCISES), st.integers(0, 10**6))
def test_the_solution_of_every_seed_is_graded_right(one, seed):
    posed = one.posed(seed)
    assert posed.grade(posed.solution).right
    assert posed.question == one.posed(seed).question


@examples(40)
@given(st.sampled_from([one for one in EXERCISES if isinstance(one.posed(0), Sheet)]), st.integers(0, 10**6))
def test_a_changed_number_is_graded_wrong(one, seed):
    posed = one.posed(seed)
    numbers = posed.solution.split()
    step = 10.0**-posed.decimals
    numbers[-1] = f"{float(numbers[-1]) + 7 * step:.{posed.decimals}f}"
    assert not posed.grade(" ".join(numbers)).right


def test_softmax_by_hand_is_pytorchs():
    posed = exercise(4).posed(3)
    scores = torch.tensor([float(x) for x in posed.given["scores"].split()])
    assert posed.solution == " ".join(f"{x:.2f}" for x in scores.softmax(-1).tolist())


def test_a_mistake_in_an_answer_is_named():
    posed = Sheet("?", {"scores": "1 2 3"}, "weights", 2)
    assert posed.grade("0.14 0.29 0.57").text == "Not yet: base 2 in place of e: 2 was raised to the scores."
    assert posed.grade("0.09 0.24 0.70").text == "Not yet: a row that does not sum to 1: it adds up to 1.03."
    assert posed.grade("[0.09, 0.24, 0.67]").right


def test_zeros_at_the_end_may_be_left_off_and_digits_may_not():
    posed = Sheet("?", {"scores": "0 0"}, "weights", 2)
    assert posed.grade("0.5 0.5").right
    posed = Sheet("?", {"scores": "1 2"}, "weights", 2)
    assert not posed.grade("0.3 0.7").right


def test_every_mask_is_asked_for_by_some_seed():
    found = {exercise(11).posed(seed).solution for seed in range(60)}
    assert found == set(exercise(11).posed(0).options)


def test_a_choice_is_one_of_its_words():
    posed = Choice("?", ("causal", "window"), "causal", "Look.")
    assert posed.grade(" Causal ").text == "Right. Look."
    assert posed.grade("window").text == "Not yet: it is not window."
    with pytest.raises(RegardError, match=re.escape("the answer 'chunk' is none of causal, window.")):
        posed.grade("chunk")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["show", "99"], "there is no exercise 99; they are numbered 1 to 18."),
        (["show"], "show which exercise? Give its number: regard exercise show 4."),
        (["answer", "4"], "the answer is missing: regard exercise answer 4 NUMBERS."),
        (["answer", "4", "cat"], "the answer 'cat' holds no number; write numbers, such as 0.24 0.76."),
        (["answer", "4", "0.5", "0.5"], "the answer has 2 numbers; wanted are 3."),
        (["solve", "4"], "there is no action 'solve'; wanted list, show, hint, answer or solution."),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(run, arguments, said):
    assert run("exercise", *arguments) == (2, "", f"regard: {said}\n")


def test_the_command_lists_shows_hints_and_grades(run):
    assert "softmax by hand" in run("exercise")[1]
    posed = exercise(4).posed(7)
    status, out, _ = run("exercise", "show", "4", "--seed", "7")
    assert status == 0
    assert posed.question in out
    assert "Answer with: regard exercise answer 4 --seed 7 …" in out
    assert run("exercise", "hint", "4")[1] == f"{exercise(4).hint}\n"
    assert run("exercise", "solution", "4", "--seed", "7")[1] == f"{posed.solution}\n"
    assert run("exercise", "answer", "4", "--seed", "7", *posed.solution.split()) == (0, "Right.\n", "")
    status, out, _ = run("exercise", "answer", "4", "--seed", "7", "0.1", "0.2", "0.7", "--json")
    assert status == 1
    assert json.loads(out)["right"] is False
    assert len(json.loads(run("exercise", "--json")[1])) == len(EXERCISES)


def test_a_negative_number_is_an_answer_and_no_option(run):
    posed = exercise(1).posed(0)
    assert "-" in posed.solution
    assert run("exercise", "answer", "1", "--", *posed.solution.split())[0] == 0
    assert run("exercise", "answer", "1", posed.solution.replace("-", "−"))[0] == 0


def test_the_page_poses_every_exercise_with_its_answer():
    page = (DOCS / "exercises.md").read_text(encoding="utf-8")
    for one in EXERCISES:
        posed = one.posed()
        assert f"## {one.number}. {one.title}" in page
        assert posed.question in page, one.number
        assert posed.solution in page, one.number


def test_every_lesson_of_the_tutorial_has_an_exercise(run):
    lessons = re.findall(r"(?m)^## (\d)\. ", (DOCS / "tutorial.md").read_text(encoding="utf-8"))
    assert {one.lesson for one in EXERCISES} == set(lessons)
    assert f"lesson {EXERCISES[0].lesson}" in run("exercise")[1].splitlines()[0]


def test_a_number_alone_shows_the_exercise(run):
    assert run("exercise", "4", "--seed", "7") == run("exercise", "show", "4", "--seed", "7")


@pytest.mark.parametrize("one", [one for one in EXERCISES if isinstance(one.posed(), Choice)])
def test_no_seed_offers_one_answer_twice(one):
    for seed in range(60):
        options = [option.casefold() for option in one.posed(seed).options]
        assert len(set(options)) == len(options) > 1
