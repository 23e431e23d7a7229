"""Hypothesis state machines as targets: each seed is a few runs of random steps."""

from __future__ import annotations

import warnings
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

__all__ = ["run_machine"]


def run_machine(machine: type[RuleBasedStateMachine], seed: int, examples: int, steps: int = 30) -> int:
    """Run a state machine so many times from a seed; returns how many steps were taken."""
    taken = 0

    class Counted(machine):  # type: ignore[misc, valid-type]
        def check_invariants(self, *arguments: Any, **options: Any) -> None:
            nonlocal taken
            taken += 1
            super().check_invariants(*arguments, **options)

    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        # A seed makes the same steps again; looking for fewer of them may take minutes.
        phases=[Phase.generate],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_state_machine_as_test(hypothesis.seed(seed)(Counted), settings=chosen)
    return taken
