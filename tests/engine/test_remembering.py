"""A call never gives what followed from another mask, option or tensor."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest
import torch

from oracle import dense_attention
from regard import Causal, ColumnMass, Dense, Documents, Padding, Window, attention, observe
from regard.engine.inputs import Options, problem_of
from regard.engine.problem import Problem
from regard.engine.riders import Riders
from regard.engine.scoring import Scoring
from regard.engine.triton.replay.call_key import call_key
from regard.errors import MaskError
from regard.masks import Chunk, Global, Mask, Prefix, RandomBlocks, Strided, Where
from regard.scores import ALiBi, DotProduct, General
from regard.stats import Entropy


class Reach(Mask):
    """Each query sees the first `reach` keys, and `reach` may change; `how` is what saves work."""

    def __init__(self, reach: int, how: str) -> None:
        self.reach, self.how = reach, how

    def allows(self, q, k):
        return k < q - q + self.reach

    def spans(self, q):
        return (torch.zeros_like(q), torch.full_like(q, self.reach)) if self.how == "spans" else None

    def cover(self, q_start, q_stop, k_start, k_stop):
        some, every = k_start < self.reach, k_stop <= self.reach
        shape = torch.broadcast_shapes(q_start.shape, some.shape)
        return (some.to(torch.int8) + every.to(torch.int8)).expand(shape)


@dataclass(frozen=True)
class Listed(Mask):
    """A frozen class around a list is no value."""

    keys: list[int]

    def allows(self, q, k):
        return torch.isin(k, torch.tensor(self.keys)) & (q == q)

    def cover(self, q_start, q_stop, k_start, k_stop):
        inside = [(k_start <= key) & (key < k_stop) for key in self.keys]
        some = torch.stack(inside).any(0)
        return some.to(torch.int8).expand(torch.broadcast_shapes(q_start.shape, some.shape))


class Wider(Causal):
    """A plain subclass of a mask of ours takes new attributes, and its questions have other answers."""

    def __init__(self, more: int) -> None:
        super().__init__()
        self.more = more

    def allows(self, q, k):
        return k <= q + self.more

    def cover(self, q_start, q_stop, k_start, k_stop):
        return Causal(self.more).cover(q_start, q_stop, k_start, k_stop)

    def spans(self, q):
        return Causal(self.more).spans(q)


def changed(mask: Mask) -> None:
    if isinstance(mask, Reach):
        mask.reach = 150
    elif isinstance(mask, Listed):
        mask.keys.append(150)
    elif isinstance(mask, Wider):
        mask.more = 90


CHANGING = {
    "spans": lambda: Reach(33, "spans"),
    "cover": lambda: Reach(33, "cover"),
    "list": lambda: Listed([3, 5]),
    "subclass": lambda: Wider(0),
}
WITHIN = {
    "alone": lambda mask: mask,
    "joined": lambda mask: mask & Window(180),
    "inverted": lambda mask: ~mask | Prefix(1),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("backend", ["torch", "sdpa", "auto"])
@pytest.mark.parametrize("within", WITHIN)
@pytest.mark.parametrize("kind", CHANGING)
def test_a_mask_that_changes_between_two_calls_is_noticed(kind, within, backend):
    q, k, v = torch.randn(3, 1, 2, 193, 8, generator=torch.Generator().manual_seed(1)).unbind()
    own = CHANGING[kind]()
    mask = WITHIN[within](own)
    assert not mask.repeatable
    for _ in range(2):
        wanted = dense_attention(q, k, v, mask.dense(193))
        torch.testing.assert_close(attention(q, k, v, mask, backend=backend), wanted.out)
        seen = observe(q, k, v, mask, stats=[ColumnMass()], backend=backend)
        torch.testing.assert_close(seen.column_mass, wanted.weights.sum(-2))
        changed(own)


@dataclass(frozen=True)
class Every(Mask):
    n: int
    name: str = "x"
    part: Mask | None = None

    def allows(self, q, k):
        return (q - k) % self.n == 0


@dataclass(frozen=True)
class Tensors(Mask):
    flags: torch.Tensor

    def allows(self, q, k):
        return self.flags[k] & (q >= 0)


@dataclass(frozen=True, eq=False)
class Marked(Padding):
    """A padding that holds one more tensor, and no copy of it."""

    more: torch.Tensor = field(default_factory=lambda: torch.ones(2))


@dataclass(frozen=True)
class Clock(Mask):
    """It says itself that it is no value."""

    @property
    def repeatable(self):
        return False

    def allows(self, q, k):
        return q >= k


OURS = [
    Causal(), Causal(2), Window(3), Window(3, 2), Chunk(4), Prefix(2), Global(2), Global((1, 3)), Strided(3),
    RandomBlocks(2, 1, 8), Documents([2, 3]), Padding(torch.tensor([True, False])), Dense(torch.eye(2) > 0),
    Causal() & Window(3), ~Causal() | Padding(torch.tensor([True, False])), Every(3), Every(3, part=Every(2)),
    Every(2) & Causal(),
]  # fmt: skip
NOT_VALUES = [
    Reach(1, "cover"), Listed([1]), Wider(1), Where(lambda b, h, q, k: q >= k), Tensors(torch.tensor([True])),
    Clock(), Every(cast("int", [3])), Every(3, part=Listed([1])), Causal() & Reach(1, "spans"),
    ~Where(lambda b, h, q, k: q >= k), Marked(torch.tensor([True, False])), Clock() | Causal(),
]  # fmt: skip


@pytest.mark.parametrize("mask", OURS, ids=repr)
def test_masks_that_are_values_are_repeatable(mask):
    assert mask.repeatable


@pytest.mark.parametrize("mask", NOT_VALUES, ids=lambda mask: type(mask).__name__)
def test_masks_that_may_change_are_not_repeatable(mask):
    assert not mask.repeatable


HELD = {
    "Padding": lambda: Padding(torch.tensor([True, True, False])),
    "Dense": lambda: Dense(torch.ones(3, 3).bool()),
    "Documents": lambda: Documents(ids=torch.tensor([0, 0, 1])),
}


@pytest.mark.parametrize("how", ["itself", "joined", "deepcopy", "pickle"])
@pytest.mark.parametrize("name", HELD)
def test_a_mask_whose_tensor_was_written_to_is_refused(name, how):
    mask = HELD[name]()
    if how == "deepcopy":
        mask = copy.deepcopy(mask)
    elif how == "pickle":
        mask = pickle.loads(pickle.dumps(mask))
    x = torch.randn(1, 1, 3, 4)
    used = mask & Causal() if how == "joined" else mask
    attention(x, x, x, used)
    mask.content[0] = 0
    said = rf"the tensor of {name}\(.*was changed in place .*Make a new {name} instead"
    with pytest.raises(MaskError, match=said):
        attention(x, x, x, used)


def test_a_mask_made_in_inference_mode_and_written_to_is_refused():
    with torch.inference_mode():
        mask, x = HELD["Padding"](), torch.randn(1, 1, 3, 4)
        attention(x, x, x, mask)
        mask.content[0] = False
        with pytest.raises(MaskError, match="was changed in place"):
            attention(x, x, x, mask)


def test_a_mask_that_was_written_to_is_not_taken_for_a_new_one():
    """Two flags change places: the sum, and so the hash, is that of the new mask."""
    q, k, v = torch.randn(3, 1, 1, 300, 8, generator=torch.Generator().manual_seed(2)).unbind()
    flags = torch.arange(300) < 100
    old = Padding(flags)
    attention(q, k, v, old)
    old.valid[:] = flags.flip(0)
    new = Padding(flags.flip(0))
    for backend in ("torch", "sdpa"):
        got = attention(q, k, v, new, backend=backend)
        torch.testing.assert_close(got, dense_attention(q, k, v, new.dense(300)).out)


def test_masks_that_were_written_to_do_not_disturb_later_calls():
    x = torch.randn(1, 1, 4, 4)
    for _ in range(5):
        mask = Padding(torch.tensor([True, True, False, False]))
        attention(x, x, x, mask)
        mask.valid[:] = torch.tensor([False, True, True, False])
    for shift in range(80):
        attention(x, x, x, Causal(shift=-shift))
        attention(x, x, x, Padding(torch.tensor([True, True, False, False])))


def problem(**options: Any) -> Problem:
    q, k, v = torch.zeros(3, 1, 2, 33, 8).unbind()
    return problem_of(q, k, v, Options(mask=Causal() & Window(5), **options))


def kind(problem: Problem, more=(), asked: Any = "attend"):
    found = call_key(problem, more, asked)
    assert found is not None
    return found[0]


# Another value of each field; a field that is added to these classes must be added here.
OTHER: dict[str, Any] = {
    "q": torch.zeros(1, 2, 31, 8),
    "k": torch.zeros(1, 2, 33, 8, dtype=torch.bfloat16),
    "v": torch.zeros(1, 2, 33, 4),
    "mask": Causal() & Window(6),
    "scoring": Scoring(DotProduct(), 2.0),
    "sink": torch.zeros(2),
    "dropout": 0.5,
    "offset": 3,
    "rank": 3,
    "seed": 7,
}
OTHER_SCORING: dict[str, Any] = {
    "score": General(torch.zeros(8, 8)),
    "scale": 0.25,
    "bias": torch.zeros(1, 1, 33, 33),
    "softcap": 30.0,
}


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Problem)])
def test_every_field_of_a_problem_is_part_of_the_call_key(name):
    plain = problem()
    assert kind(replace(plain, **{name: OTHER[name]})) != kind(plain)


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Scoring)])
def test_every_field_of_the_scoring_is_part_of_the_call_key(name):
    plain = problem()
    if name == "score_mod":
        # What a function does may change: such a call has no kind.
        other = replace(plain, scoring=replace(plain.scoring, score_mod=lambda s, *at: s))
        assert call_key(other, (), "attend") is None
        return
    assert kind(replace(plain, scoring=replace(plain.scoring, **{name: OTHER_SCORING[name]}))) != kind(plain)


def test_calls_that_differ_in_what_is_in_their_tensors_are_of_one_kind():
    plain = problem()
    assert kind(replace(plain, q=torch.ones(1, 2, 33, 8))) == kind(plain)
    assert kind(replace(plain, mask=Causal() & Window(5))) == kind(plain)


def test_a_new_field_of_a_problem_is_part_of_the_call_key():
    @dataclass(frozen=True)
    class Larger(Problem):
        temperature: float = 1.0

    plain = problem()
    own = {f.name: getattr(plain, f.name) for f in dataclasses.fields(plain)}
    kinds = {kind(plain), *(kind(Larger(**own, temperature=t)) for t in (1.0, 2.0, 2.0))}
    assert len(kinds) == 3


# Each changes one thing and leaves the others: a slice has other sizes and the same strides.
LOOKS = {
    "shape": lambda x: x[..., :4],
    "stride": lambda x: torch.zeros(1, 33, 2, 8).transpose(1, 2),
    "dtype": lambda x: x.bfloat16(),
    "device": lambda x: x.to("meta"),
    "alignment": lambda x: torch.zeros(x.numel() + 1)[1:].view(x.shape),
    "requires_grad": lambda x: x.clone().requires_grad_(),
}


@pytest.mark.parametrize("name", ["v", "more"])
@pytest.mark.parametrize("look", LOOKS)
def test_all_tensor_metadata_is_part_of_the_call_key(look, name):
    plain, tensor = problem(), torch.zeros(1, 2, 33, 8)
    other = LOOKS[look](tensor)
    if name == "more":
        assert kind(plain, [other]) != kind(plain, [tensor])
    else:
        assert kind(replace(plain, **{name: other})) != kind(replace(plain, **{name: tensor}))


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Riders)])
def test_riders_are_part_of_the_call_key(name):
    plain = Riders()
    other = replace(plain, **{name: torch.zeros(1, 1, 33, 1) if name == "columns" else 64})
    assert kind(problem(), asked=("attend", plain)) != kind(problem(), asked=("attend", other))


def test_statistics_modes_and_missing_tensors_tell_kinds_of_calls_apart():
    plain = problem()
    statistics = (Entropy(), Entropy().named("x"), ColumnMass(), ColumnMass(True))
    kinds = {kind(plain, asked=("observe", (("x", s),))) for s in statistics}
    kinds |= {kind(plain, [None, plain.q]), kind(plain, [plain.q, None])}
    with torch.no_grad():
        kinds.add(kind(plain))
    with torch.autocast("cpu"):
        kinds.add(kind(plain))
    with torch.inference_mode():
        kinds.add(kind(plain))
    kinds.add(kind(plain))
    assert len(kinds) == 10


@pytest.mark.parametrize(
    "options", [{"mask": Reach(3, "spans")}, {"mask": Wider(1)}, {"bias": ALiBi.for_heads(2)}], ids=str
)
def test_a_call_that_holds_what_may_change_has_no_kind(options):
    q, k, v = torch.zeros(3, 1, 2, 33, 8).unbind()
    found = call_key(problem_of(q, k, v, Options(**options)), (), "attend")
    # The tensors of a bias are known; those of a mask that may change are not.
    assert found is None if "mask" in options else found is not None


@pytest.mark.parametrize("n", [1, 63, 256])
def test_the_whole_mask_of_a_short_text_is_made_once(n, monkeypatch):
    asked, allows = [], Strided.allows

    def counted(self, q, k):
        asked.append(self)
        return allows(self, q, k)

    monkeypatch.setattr(Strided, "allows", counted)
    for step in (7, 7, 5):
        q, k, v = torch.randn(3, 1, 2, n, 16).unbind()
        mask = Causal() & Strided(step)
        out = attention(q, k, v, mask, backend="sdpa")
        wanted = dense_attention(q.double(), k.double(), v.double(), mask.tile((0, n), (0, n))).out
        torch.testing.assert_close(out.double(), wanted, rtol=1e-4, atol=1e-5)
        seen = observe(q, k, v, mask, stats=[Entropy()])
        torch.testing.assert_close(seen.out, out)
        asked_before = len(asked)
        attention(q, k, v, Causal() & Strided(step), backend="sdpa")
        assert len(asked) == asked_before
