"""Compares the output with the formula and its known mistakes: scale, softmax, mask, heads, rotary."""

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch

from regard.doctor.adapter import FunctionSubject
from regard.doctor.case import Case
from regard.doctor.fit import Fit, Fitting
from regard.doctor.influence import difference
from regard.doctor.masks import holed
from regard.doctor.modules import ModuleSubject
from regard.doctor.probes.longer import longer
from regard.doctor.probes.projections import projections
from regard.doctor.probes.readout import readout
from regard.doctor.probes.sequences import sequences
from regard.doctor.subject import BATCH, Scenario, Subject
from regard.doctor.tables import neutral, restore, silence

__all__ = ["formula"]

SCALES = {"missing-scale", "scale-twice", "scale-d-model", "wrong-scale"}


def formula(case: Case) -> None:
    """Compare each scenario with the healthy recipe and those of mistakes, up to the first mistake."""
    subject = case.subject
    if subject.kind == "model":
        return
    if not subject.conventions() and not _apart(case, subject.scenarios()[0]):
        projections(case, None)
        if case.findings:
            return None
        case.leave(
            "no products of the input with weights could be told to be its q, k and v. "
            "Examine its inner function of q, k and v, or wrap it in a module with W_q, W_k, W_v and W_o"
        )
        return None
    if isinstance(subject, ModuleSubject) and subject.levelled:
        case.note(f"examined with {', '.join(subject.levelled)} as the identity: it mixes heads")
    plain, *others = subject.scenarios()
    if _apart(case, plain):
        return case.find("scores-unused", "no token's output depends on any other token", plain)
    found, fitting = _silently(case, plain) or _plain(case, plain)
    case.fits[plain.label] = found
    if found is None:
        sequences(case)
        if not case.findings:
            readout(case, plain, fitting)
    elif found.codes:
        return _report(case, plain, found)
    projections(case, found)
    if found is not None and not case.findings:
        longer(case, plain, found)
        if _uncertain(case, found):
            return None
        if not case.findings and not _with_flag_and_mask(case, others, found):
            return None
    return None if found is None or case.findings else _grouped(case)


def _with_flag_and_mask(case: Case, scenarios: Sequence[Scenario], plain: Fit) -> bool:
    """Compare the calls with the causal flag and the mask; returns whether none of them has a mistake."""
    for scenario in scenarios:
        fitting = _fitting(case, scenario, plain)
        case.fits[scenario.label] = found = fitting.fit()
        if found is not None and found.codes:
            _report(case, scenario, found)
            return False
        if found is None and isinstance(case.subject, FunctionSubject) and not case.subject.own:
            error, words = fitting.nearest
            case.leave(
                f"called {scenario.label}, it computes no known form of softmax(q·k)·v: the nearest, "
                f"{words}, is {error:.0%} away. Say what its mask means (mask=…), or compare it with a "
                "reference of your own"
            )
    return True


def _apart(case: Case, plain: Scenario) -> bool:
    """Whether no token affects another."""
    seen = case.seen(plain) | case.seen(plain, "k")
    return not bool((seen & ~torch.eye(len(seen), dtype=torch.bool)).any())


def _uncertain(case: Case, plain: Fit) -> bool:
    """For a mask that has no effect as intended in any form: whether a mistake explains it in some form."""
    subject = case.subject
    n, batch = subject.length, getattr(subject, "batch", BATCH)
    for form in subject.uncertain:
        allowed = holed(form, batch, n, n)
        given = allowed & (plain.allowed if plain.allowed is not None else allowed)
        scenario = Scenario(f"{form.name}=…", {"allowed": allowed, "form": form}, given)
        found = Fitting(subject, scenario, subject.sample()).like(plain).fit(pairs=False)
        if found is not None and set(found.codes) & {"mask-after-softmax", "mask-weak", "softmax-axis"}:
            _report(case, scenario, found)
            return True
    return False


def _silently(case: Case, plain: Scenario) -> tuple[Fit, Fitting] | None:
    """The fit with position tables and learnt biases set to zero, if there are any and it helps."""
    subject = case.subject
    if not isinstance(subject, ModuleSubject) or subject.own:
        return None
    for words, held in (("zero", silence(subject)), ("one", {})):
        held = held or (neutral(subject) if words == "one" else {})
        found, fitting = _plain(case, plain, pairs=False) if held else (None, None)
        # If a table is a factor, zero would remove everything; also, a factor may be the scale.
        spoilt = {"scores-unused"} | (SCALES if words == "one" else set())
        if found is not None and fitting is not None and not spoilt & set(found.codes):
            case.note(f"examined with {', '.join(held)} at {words}")
            return found, fitting
        restore(subject, held)
    return None


def _plain(case: Case, plain: Scenario, pairs: bool = True) -> tuple[Fit | None, Fitting]:
    """The fit of the plain call, with the best way to fill in arguments."""
    tried: list[tuple[int, Fit | None, Fitting]] = []
    for index in range(case.subject.plans()):
        case.subject.use_plan(index)
        fitting = _fitting(case, plain)
        found = fitting.fit(pairs=pairs and index == 0)
        tried.append((index, found, fitting))
        if found is not None and not found.codes:
            break
    best = next((one for one in tried if one[1] is not None and not one[1].codes), None)
    best = best or next((one for one in tried if one[1] is not None), tried[0])
    case.subject.use_plan(best[0])
    return best[1], best[2]


def _fitting(case: Case, scenario: Scenario, like: Fit | None = None) -> Fitting:
    subject = case.subject
    fitting = Fitting(
        subject, scenario, subject.sample(), case.seen(scenario),
        positional=like is None and _positional(subject, scenario),
        normed=like is None and isinstance(subject, ModuleSubject) and _has_norms(subject),
        named=_named(subject), caps=() if like is not None else _caps(subject),
    )  # fmt: skip
    return fitting if like is None else fitting.like(like)


def _caps(subject: Subject) -> tuple[float, ...]:
    """Candidates for a soft cap: numbers that it, or its configuration, has under such a name."""
    if isinstance(subject, FunctionSubject):
        try:
            given = inspect.signature(subject.fn).parameters
        except ValueError:  # built-in functions have no signature
            return ()
        held = [{name: parameter.default for name, parameter in given.items()}]
    elif isinstance(subject, ModuleSubject):
        held = [vars(part) for part in subject.module.modules()]
        held += [vars(own["config"]) for own in held if hasattr(own.get("config"), "__dict__")]
    else:
        return ()
    named = {
        x for own in held for name, x in own.items() if "cap" in name.lower() and type(x) in (int, float)
    }
    return tuple(sorted(float(x) for x in named if x > 0))


def _named(subject: Subject) -> bool:
    if isinstance(subject, FunctionSubject):
        return True
    return isinstance(subject, ModuleSubject) and subject.named()


def _has_norms(subject: ModuleSubject) -> bool:
    return any(
        "norm" in f"{name} {type(part).__name__}".lower() for name, part in subject.module.named_modules()
    )


def _positional(subject: Subject, scenario: Scenario) -> bool:
    """Whether the last query's result depends on the order of the first two keys."""
    state = subject.sample()
    if isinstance(state, tuple):
        turned = (state[0], *(_exchange(x, 2) for x in state[1:]))
    else:
        turned = _exchange(state, 1)
    before, after = (subject.core(x, scenario)[0] for x in (state, turned))
    return difference(before[:, -1:], after[:, -1:]) > 1e-5


def _exchange(x, axis):  # type: ignore[no-untyped-def]
    order = [1, 0, *range(2, x.shape[axis])]
    return x.index_select(axis, x.new_tensor(order).long())


def _grouped(case: Case) -> None:
    """Probe with fewer key heads than query heads, if a function accepts that."""
    subject = case.subject
    if not isinstance(subject, FunctionSubject) or not subject.grouped():
        return
    scenario = subject.scenarios()[0]
    found = Fitting(subject, scenario, subject.sample(), case.seen(scenario)).fit()
    label = f"{subject.heads} query heads, {subject.key_heads} key heads"
    subject.key_heads = subject.heads
    if found is not None and found.codes:
        _report(case, scenario, found, label)


def _report(case: Case, scenario: Scenario, found: Fit, label: str = "") -> None:
    for code in found.codes:
        case.find(
            code,
            f"called {label or scenario.label}, the output equals the formula with {found.words} "
            f"to {found.error:.0e} and misses the healthy one by {found.healthy_error:.1%}",
            scenario,
            found,
        )
