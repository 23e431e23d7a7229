"""A map is refused as soon as anything it is computed from has changed."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields

import pytest
import torch
from torch import Tensor

from maps.cases import tensors
from regard import AttentionMap, Causal, Entropy, observe
from regard.engine.problem import Problem
from regard.engine.scoring import Scoring
from regard.errors import MapError
from regard.maps.freshness import UNREAD, Watch
from regard.masks import Mask, Where
from regard.scores import Additive, ALiBi, General, RelativeBias, Score
from regard.stats import ValueWeighted

TABLE = torch.zeros(9)


def step(*parameters: Tensor) -> None:
    """What an optimizer does: writes under no_grad."""
    for x in parameters:
        x.grad = torch.ones_like(x)
    torch.optim.Adam(parameters, lr=1.0).step()


class Allowed(Mask):
    """A user's mask that keeps the caller's tensor and no copy."""

    def __init__(self, allowed: Tensor) -> None:
        self.allowed = allowed

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return self.allowed[q, k]


class Shifted(Score):
    """A user's score with a tensor that only `tile` reads."""

    def __init__(self, shift: Tensor) -> None:
        self.shift = shift

    def parameters(self) -> tuple[Tensor, ...]:
        return (self.shift,)

    def tile(self, q: Tensor, k: Tensor, *parameters: Tensor) -> Tensor:
        return q @ k.mT + parameters[0]


def options_of(kind: str, x: Tensor) -> dict:
    """Options of a call with 2 heads, 6 queries and 6 keys that read the tensor x."""

    def mod(s, b, h, i, j):
        return s + x[h, j]

    def with_default(s, b, h, i, j, table=x):
        return s + table[h, j]

    class Mod:
        def __init__(self) -> None:
            self.table = [x]

        def __call__(self, s, b, h, i, j):
            return s + self.table[0][h, j]

        def method(self, s, b, h, i, j):
            return self(s, b, h, i, j)

    made = {
        "bias": lambda: {"bias": x[None, :, None, :6]},
        "alibi": lambda: {"bias": ALiBi(x[:, 0])},
        "relative": lambda: {"bias": RelativeBias(x, bidirectional=False)},
        "sink": lambda: {"sink": x[:, 0]},
        "additive": lambda: {"score": Additive(torch.eye(16), torch.eye(16), x.flatten()[:16])},
        "own score": lambda: {"score": Shifted(x[0, 0])},
        "score_mod": lambda: {"score_mod": mod},
        "score_mod by default argument": lambda: {"score_mod": with_default},
        "score_mod by partial": lambda: {"score_mod": functools.partial(with_default, table=x)},
        "score_mod by object": lambda: {"score_mod": Mod()},
        "score_mod by method": lambda: {"score_mod": Mod().method},
        "joined mask": lambda: {"mask": Causal() & Where(lambda b, h, i, j: x[0, j] >= 0)},
    }
    return made[kind]()


NAMES = {
    "bias": "bias",
    "alibi": "bias.slopes",
    "relative": "bias.table",
    "sink": "sink",
    "additive": "score.v",
    "own score": "score.shift",
    "score_mod": "x, which score_mod reads,",
    "score_mod by default argument": "table, which score_mod reads,",
    "score_mod by partial": "table, which score_mod reads,",
    "score_mod by object": "score_mod.table[0]",
    "score_mod by method": "score_mod.table[0]",
    "joined mask": "x, which mask.parts[1].mask_mod reads,",
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_map_is_stale_after_an_optimizer_step_on_what_it_reads(kind):
    q, k, v = tensors(1, 2, 2, 6, 6)
    x = torch.rand(2, 8)
    seen = observe(q, k, v, **options_of(kind, x), stats=[Entropy()])
    lazy = AttentionMap.of(q, k, **options_of(kind, x))
    assert seen.map.row(0, 0, 5).shape == (6,)
    step(x)
    for stale in (seen.map, lazy):
        for read in (lambda m: m.row(0, 0, 5), lambda m: m.stats(Entropy()), lambda m: m.scores(0)):
            with pytest.raises(MapError) as caught:
                read(stale)
            assert str(caught.value) == (
                f"{NAMES[kind]} was changed in place after this map was made, so its cells would be wrong. "
                "Observe again, or make the map from a copy: pass a .clone() of what you will change."
            )


@pytest.mark.parametrize("name", ["q", "k"])
def test_queries_and_keys_are_watched_too(name):
    q, k, v = tensors(1, 1, 1, 6, 6)
    seen = observe(q, k, v)
    {"q": q, "k": k}[name].mul_(2)
    with pytest.raises(MapError, match=f"^{name} was changed in place after this map was made"):
        seen.map.row(0, 0, 0)


def test_a_write_to_the_tensor_of_a_custom_mask_is_noticed():
    q, k, v = tensors(1, 1, 1, 6, 6)
    mask = Allowed(torch.ones(6, 6, dtype=torch.bool).tril())
    seen = observe(q, k, v, mask)
    mask.allowed[5, 0] = False
    with pytest.raises(MapError, match=r"^mask\.allowed was changed in place"):
        seen.map.row(0, 0, 5)


def test_another_tensor_in_the_same_place_is_noticed():
    q, k, v = tensors(1, 1, 1, 6, 6)
    mask = Allowed(torch.ones(6, 6, dtype=torch.bool).tril())
    seen = observe(q, k, v, mask)
    mask.allowed = torch.ones(6, 6, dtype=torch.bool)
    with pytest.raises(MapError, match=r"^mask\.allowed was replaced by another tensor after this map"):
        seen.map.row(0, 0, 5)


def test_a_global_that_a_function_reads_is_watched(monkeypatch):
    q, k, v = tensors(1, 1, 1, 6, 6)
    seen = observe(q, k, v, score_mod=lambda s, b, h, i, j: s + TABLE[j])
    assert seen.map.row(0, 0, 5).shape == (6,)
    monkeypatch.setitem(globals(), "TABLE", torch.ones(9))
    with pytest.raises(MapError, match=r"^TABLE, which score_mod reads, was replaced by another tensor"):
        seen.map.row(0, 0, 5)


def test_a_global_that_a_function_inside_a_function_reads_is_watched(monkeypatch):
    q, k, v = tensors(1, 1, 1, 6, 6)
    seen = observe(q, k, v, score_mod=lambda s, b, h, i, j: (lambda at: s + TABLE[at])(j))
    monkeypatch.setitem(globals(), "TABLE", torch.ones(9))
    with pytest.raises(MapError, match=r"^TABLE, which score_mod reads, was replaced by another tensor"):
        seen.map.row(0, 0, 5)


def test_a_global_with_the_name_of_an_attribute_is_not_watched(monkeypatch):
    q, k, v = tensors(1, 1, 1, 6, 6)
    monkeypatch.setitem(globals(), "float", torch.zeros(1))
    seen = observe(q, k, v, score_mod=lambda s, b, h, i, j: s + j.float())
    monkeypatch.setitem(globals(), "float", torch.ones(1))
    assert seen.map.row(0, 0, 5).shape == (6,)


def test_a_function_may_name_what_has_no_value_yet():
    q, k, v = tensors(1, 1, 1, 6, 6)

    def mod(s, b, h, i, j):
        return s * (later if callable(s) else 2.0)

    row = observe(q, k, v, score_mod=mod).map.row(0, 0, 5)
    torch.testing.assert_close(row, observe(q, k, v, scale=2 / q.shape[-1] ** 0.5).map.row(0, 0, 5))
    later = 3.0


def test_weights_that_only_prepare_reads_may_change():
    """The map keeps the projected q and k: what projected them has done its work."""
    q, k, v = tensors(1, 1, 1, 6, 6)
    weight = torch.randn(16, 16)
    seen = observe(q, k, v, score=General(weight))
    before = seen.map.row(0, 0, 5)
    step(weight)
    assert torch.equal(seen.map.row(0, 0, 5), before)


def test_values_matter_to_statistics_and_not_to_cells():
    q, k, v = tensors(1, 1, 1, 6, 6)
    seen = observe(q, k, v)
    before = seen.map.row(0, 0, 5)
    v.zero_()
    assert torch.equal(seen.map.row(0, 0, 5), before)
    with pytest.raises(MapError, match=r"^v was changed in place"):
        seen.map.stats(ValueWeighted())


def test_tensors_made_in_inference_mode_can_be_read():
    with torch.inference_mode():
        q, k, v = tensors(1, 1, 1, 6, 6)
        seen = observe(q, k, v, sink=torch.zeros(1))
    torch.testing.assert_close(seen.map.row(0, 0, 5).sum() < 1, torch.tensor(True))


@pytest.mark.parametrize("kind", [Problem, Scoring], ids=["problem", "scoring"])
def test_every_field_of_a_problem_that_may_hold_a_tensor_is_watched(kind):
    """A field added to the problem is watched by itself; what is left out is listed."""
    watched = {"q", "k", "v", "mask", "sink", "score", "bias", "score_mod", "scoring"}
    numbers = {"scale", "softcap", "dropout", "offset", "rank", "seed"}
    assert {field.name for field in fields(kind)} <= watched | numbers
    assert set(UNREAD) == {"v"}


@dataclass(frozen=True)
class Larger(Problem):
    extra: Tensor | None = None


def test_a_new_field_of_the_problem_is_watched_by_itself():
    q, k, v = tensors(1, 1, 1, 3, 3)
    problem = observe(q, k, v).map.problem
    extra = torch.zeros(3)
    given = {field.name: getattr(problem, field.name) for field in fields(problem)}
    watch = Watch(Larger(**given, extra=extra))
    watch.check()
    extra += 1
    with pytest.raises(MapError, match=r"^extra was changed in place"):
        watch.check()


def test_counting_calls_in_a_function_of_ones_own_is_no_change():
    q, k, v = tensors(1, 1, 1, 6, 6)
    calls = []

    def mod(s, b, h, i, j):
        calls.append(len(calls))
        return s

    seen = observe(q, k, v, score_mod=mod)
    assert seen.map.row(0, 0, 5).shape == seen.map.row(0, 0, 5).shape
    assert calls
