"""Short problems about attention with new numbers for every seed, and graded answers."""

from regard.exercises.catalogue import EXERCISES, exercise
from regard.exercises.problem import Choice, Exercise, Graded, Sheet

__all__ = ["EXERCISES", "Choice", "Exercise", "Graded", "Sheet", "exercise"]
