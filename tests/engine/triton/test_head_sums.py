"""Shared keys and KL by the kernels over the sum of all heads, against torch in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

import regard
from engine.harness import MASKS, every_mask, qkv
from engine.triton.test_forward import OPTIONS
from regard import Causal, Documents, Window, observe
from regard.engine import second_pass
from regard.engine.dispatch import Choice
from regard.engine.inputs import Options, problem_of
from regard.engine.triton.backend import TritonBackend
from regard.engine.triton.head_sums import launch
from regard.engine.triton.replay import calls
from regard.stats import KL, HeadSum, Indexer, Scores, Student

pytestmark = pytest.mark.usefixtures("_dirty_sums")


def leaves(device: str, *sizes, **options):
    return {name: x.to(device) for name, x in qkv(*sizes, **options).items()}


def normal(device: str, *shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(device)


def indexer(device: str, batch: int, q: int, k: int, heads: int = 3, dim: int = 5) -> Indexer:
    return Indexer(
        normal(device, batch, heads, q, dim, seed=1),
        normal(device, batch, k, dim, seed=2),
        normal(device, batch, heads, q, seed=3),
    )


class Twice(Student):
    """A student of a user's: twice the product of two tensors."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor) -> None:
        self.a, self.b = a, b

    def tile(self, batch: range, rows: range, cols: range) -> torch.Tensor:
        return 2 * self.a[:, rows.start : rows.stop] @ self.b[:, cols.start : cols.stop].mT

    def parameters(self) -> tuple[torch.Tensor, ...]:
        return self.a, self.b

    def on(self, tensors: tuple[torch.Tensor, ...]) -> Twice:
        return Twice(*tensors)

    def check(self, batch: int, q: int, k: int) -> None:
        pass


def students(device: str, batch: int, q: int, k: int) -> dict[str, Student]:
    return {
        "scores": Scores(3 * normal(device, batch, q, k)),
        "shared scores": Scores(3 * normal(device, 1, q, k)),
        "scores in another layout": Scores(normal(device, batch, k, q).mT),
        "half scores": Scores(normal(device, batch, q, k).half()),
        "indexer": indexer(device, batch, q, k),
        "wide indexer": indexer(device, batch, q, k, 1, 300),
        "a user's": Twice(normal(device, batch, q, 2), normal(device, batch, k, 2, seed=1)),
    }


STUDENTS = [*students("cpu", 1, 1, 1)]


def precise(x):
    """Tensors, or a student's, in float64."""
    if isinstance(x, Student):
        return x.on(tuple(precise(each) for each in x.parameters()))
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def truth_of(given: dict, mask, statistic, **options):
    """A statistic in float64 torch operations."""
    if isinstance(statistic, KL):
        statistic = KL(precise(statistic.taught))
    given = {name: precise(x) for name, x in given.items()}
    options = {name: precise(x) for name, x in options.items()}
    return observe(**given, mask=mask, stats=[statistic], backend="torch", **options).stats[statistic.name]


def agree(given: dict, mask, statistics, atol: float = 1e-5, **options) -> None:
    seen = observe(**given, mask=mask, stats=statistics, backend="triton", **options)
    for statistic in statistics:
        got, wanted = seen.stats[statistic.name], truth_of(given, mask, statistic, **options)
        if isinstance(statistic, HeadSum):
            torch.testing.assert_close(got.weight.double(), wanted.weight, atol=atol, rtol=1e-4)
            assert torch.equal(got.key, wanted.key)
        else:
            torch.testing.assert_close(got.double(), wanted, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_gives_what_torch_gives(name, device):
    mask = every_mask(33, 65, 2, 2)[name]
    scores = 2 * normal(device, 2, 33, 65)
    agree(leaves(device, 33, 65, heads=2, kv_heads=1), mask, [HeadSum(3), KL(scores)])


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_gives_what_torch_gives(name, device):
    moved = {key: x.to(device) if isinstance(x, torch.Tensor) else x for key, x in OPTIONS[name].items()}
    given = leaves(device, 40, 37, heads=2, batch=1)
    agree(given, Causal(), [HeadSum(2), KL(normal(device, 1, 40, 37))], **moved)


@pytest.mark.parametrize(("q", "k", "dim"), [(1, 1, 16), (63, 3, 8), (3, 65, 80)])
def test_odd_shapes_give_what_torch_gives(q, k, dim, device):
    given = leaves(device, q, k, batch=1, heads=6, kv_heads=2, dim=dim)
    agree(given, Causal(), [HeadSum(1), KL(normal(device, 1, q, k))])


def test_documents_padding_and_dead_rows_give_what_torch_gives(device):
    ids = torch.tensor([[0] * 20 + [1] * 25, [0] * 30 + [-1] * 15])
    valid = torch.arange(45) < torch.tensor([[45], [31]])
    given = leaves(device, 45, 45, batch=2, heads=2)
    asked = [HeadSum(4), KL(indexer(device, 2, 45, 45))]
    for mask in (Documents(ids=ids), Causal() & regard.Padding(valid), regard.Dense(torch.zeros(45, 45) > 0)):
        agree(given, mask, asked)


def test_half_precision_is_summed_in_float32(device):
    given = leaves(device, 33, 70, batch=1, heads=4, kv_heads=2, dtype=torch.float16)
    student = Indexer(*(x.half() for x in indexer(device, 1, 33, 70).parameters()))
    seen = observe(**given, mask=Causal(), stats=[KL(student), HeadSum(3)], backend="triton")
    assert seen.kl.dtype == seen.head_sum.weight.dtype == torch.float32
    agree(given, Causal(), [KL(student), HeadSum(3)], 1e-3 if device == "cuda" else 1e-4)


@pytest.mark.parametrize("name", STUDENTS)
def test_every_student_gives_the_kl_that_torch_gives(name, device, monkeypatch):
    monkeypatch.setattr(launch, "SCORE_CELLS", 1)
    student = students(device, 2, 40, 45)[name]
    given = leaves(device, 40, 45, batch=2, heads=2, kv_heads=1)
    for mask in (None, Causal() & Window(9)):
        agree(given, mask, [KL(student)])


def test_parts_of_rows_add_up(device, monkeypatch):
    """Rows cut at other places give the same: KL's sums and lists of keys merge."""
    given = leaves(device, 40, 200, batch=1, heads=2)
    asked = [HeadSum(5), HeadSum(40).named("many"), KL(5 * normal(device, 1, 40, 200))]
    for parts in (1, 3):
        monkeypatch.setattr(launch, "MOST_PARTS", parts)
        agree(given, Window(150, 10), asked)


@pytest.mark.parametrize("k", [64, 65, 90])
def test_many_keys_are_selected_from_bands_of_the_summed_map(k, device, monkeypatch):
    monkeypatch.setattr(launch, "BAND_CELLS", 1)
    given = leaves(device, 40, 90, batch=2, heads=2, kv_heads=1)
    for mask in (None, Causal() & Window(33)):
        agree(given, mask, [HeadSum(k)])


@pytest.mark.parametrize("k", [3, 70])
def test_of_equal_sums_the_earlier_keys_are_listed(k, device):
    x = torch.zeros(1, 2, 100, 16, device=device)
    seen = observe(x, x, x, mask=Window(90, 1), stats=[HeadSum(k)], backend="triton")
    wanted = [[*range(max(0, i - 89), min(i + 1, max(0, i - 89) + k))] for i in range(100)]
    assert [[key for key in row if key >= 0] for row in seen.head_sum.key[0].tolist()] == wanted


def test_garbage_behind_the_mask_stays_there(device):
    given = leaves(device, 40, 70, batch=1, heads=2)
    scores = normal(device, 1, 40, 70)
    mask = regard.Padding((torch.arange(70) < 50)[None])
    clean = observe(**given, mask=mask, stats=[KL(scores), HeadSum(60)], backend="triton")
    given["k"][:, :, 50:] = torch.nan
    scores[:, :, 50:] = torch.inf
    dirty = observe(**given, mask=mask, stats=[KL(scores), HeadSum(60)], backend="triton")
    assert torch.equal(clean.kl, dirty.kl)
    assert torch.equal(clean.head_sum.weight, dirty.head_sum.weight)


def test_a_student_may_give_minus_infinity_to_keys_without_weight(device):
    given = leaves(device, 10, 40, batch=1, heads=2)
    bias = torch.zeros(40, device=device).masked_fill(torch.arange(40, device=device) % 3 == 0, -torch.inf)
    scores = normal(device, 1, 10, 40) + bias
    agree(given, None, [KL(scores)], bias=bias)
    assert observe(**given, stats=[KL(scores)], backend="triton").kl.isposinf().all()


@pytest.fixture
def _kernels_read_maps(monkeypatch):
    """Maps are read by the kernels on the CPU too."""
    monkeypatch.setattr(second_pass, "reader_of", lambda problem, name: Choice(TritonBackend(), ""))


@pytest.mark.usefixtures("_kernels_read_maps")
@pytest.mark.parametrize("name", STUDENTS)
def test_gradients_of_every_student_are_those_that_torch_gives(name, device, monkeypatch):
    for cells in ("SCORE_CELLS", "INDEX_CELLS"):
        monkeypatch.setattr(launch, cells, 1)
    student, given = students(device, 2, 40, 45)[name], leaves(device, 40, 45, batch=2, heads=4, kv_heads=2)
    upstream = torch.linspace(-1, 2, 80, device=device).view(2, 40)
    for mask in (None, Causal() & Window(9), regard.Dense(torch.rand(40, 45) < 0.05)):
        tensors = [x.detach().clone().requires_grad_() for x in student.parameters()]
        found = regard.AttentionMap.of(given["q"], given["k"], mask).kl(student.on(tuple(tensors)))
        grads = torch.autograd.grad((found * upstream).sum(), tensors)
        exact = [precise(x).requires_grad_() for x in student.parameters()]
        weights = regard.AttentionMap.of(given["q"].double(), given["k"].double(), mask).dense()
        scores = student.on(tuple(exact)).tile(range(2), range(40), range(45)).expand(2, -1, -1)
        wanted = dense_kl(weights, scores, mask)
        torch.testing.assert_close(found.double(), wanted, atol=1e-5, rtol=1e-4)
        truth = torch.autograd.grad((wanted * upstream).sum(), exact)
        for own, other in zip(grads, truth, strict=True):
            assert own.dtype == (torch.float16 if name == "half scores" else torch.float32)
            tolerance = 1e-3 if name == "half scores" else 2e-5
            torch.testing.assert_close(own.double(), other.nan_to_num(), atol=tolerance, rtol=1e-3)


@pytest.mark.usefixtures("_kernels_read_maps")
def test_gradients_of_an_indexer_in_half_precision_fit_the_scores_of_the_forward(device):
    """The kernel computes the scores in float32; half precision rounds scores of 60 by up to 0.03."""
    given, student = leaves(device, 40, 45, batch=1, heads=2), indexer(device, 1, 40, 45)
    student = Indexer(student.q.half(), student.k.half(), (8 * student.weights).half())
    tensors = [x.detach().clone().requires_grad_() for x in student.parameters()]
    kl = regard.AttentionMap.of(given["q"], given["k"]).kl(Indexer(*tensors))
    grads = torch.autograd.grad(kl.sum(), tensors)
    exact = [precise(x).requires_grad_() for x in student.parameters()]
    weights = regard.AttentionMap.of(given["q"].double(), given["k"].double()).dense()
    scores = Indexer(*exact).tile(range(1), range(40), range(45))
    assert scores.abs().max() > 60
    for own, wanted in zip(
        grads, torch.autograd.grad(dense_kl(weights, scores, None).sum(), exact), strict=True
    ):
        assert (own.double() - wanted).abs().max() < 2e-3 * wanted.abs().max()


def dense_kl(weights: torch.Tensor, scores: torch.Tensor, mask) -> torch.Tensor:
    """KL of each row from the whole map."""
    mass = weights.sum(1)
    p = mass / mass.sum(-1, keepdim=True)
    allowed = torch.ones(40, 45, dtype=torch.bool) if mask is None else mask.dense(40, 45)
    student = scores.masked_fill(~allowed.to(scores.device), -torch.inf).log_softmax(-1)
    kl = torch.special.xlogy(p, p).sum(-1) - (p * student).masked_fill(p == 0, 0).sum(-1)
    return torch.where(mass.sum(-1) > 0, kl, 0.0)


@pytest.mark.usefixtures("_kernels_read_maps")
def test_gradients_are_those_of_finite_differences(device):
    given = leaves(device, 6, 9, batch=1, heads=2)
    seen, scores = regard.AttentionMap.of(given["q"], given["k"], Causal()), normal(device, 1, 6, 9)
    leaf = scores.clone().requires_grad_()
    (grad,) = torch.autograd.grad(seen.kl(leaf).sum(), leaf)
    step, moved = 0.05, scores.clone()
    for row, key in ((0, 0), (2, 5), (5, 8), (0, 8)):
        at = (0, row, key)
        moved[at] += step
        up = seen.kl(moved).sum()
        moved[at] -= 2 * step
        slope = (up - seen.kl(moved).sum()) / (2 * step)
        moved[at] = scores[at]
        torch.testing.assert_close(grad[at], slope, atol=1e-3, rtol=1e-2)


@pytest.mark.usefixtures("_kernels_read_maps")
def test_only_the_wanted_gradients_are_computed(device):
    given, student = leaves(device, 20, 30, batch=1, heads=2), indexer(device, 1, 20, 30)
    student.weights.requires_grad_()
    kl = regard.AttentionMap.of(given["q"], given["k"]).kl(student)
    kl.sum().backward()
    assert student.weights.grad is not None
    assert student.q.grad is None


def test_states_of_the_kernels_merge(device):
    """The states of two halves of the keys' map, read by the kernels, join as those of tiles do."""
    given = leaves(device, 20, 64, batch=1, heads=2)
    student, statistic = Scores(normal(device, 1, 20, 64)), HeadSum(6)
    problem = problem_of(**given, options=Options())
    lse = observe(**given, backend="torch").lse
    halves = []
    for keys in (slice(0, 32), slice(32, 64)):
        part = problem_of(given["q"], given["k"][:, :, keys], given["v"][:, :, keys], options=Options())
        taught, frame = KL(Scores(student.scores[:, :, keys])), second_pass.frame_of(part)
        asked = {"kl": taught, "top": statistic}
        states, folded = TritonBackend().fold(part, lse, frame, asked, None, True)
        assert folded == {"kl", "top"}
        states["top"]["key"] += keys.start * (states["top"]["weight"] > 0)
        halves.append(states)
    joined = {name: asked[name].merge(halves[0][name], halves[1][name]) for name in asked}
    frame = second_pass.frame_of(problem)
    torch.testing.assert_close(
        KL(student).finish(joined["kl"], frame).double(),
        truth_of(given, None, KL(student)),
        atol=1e-5,
        rtol=1e-4,
    )
    found, wanted = statistic.finish(joined["top"], frame), truth_of(given, None, statistic)
    assert torch.equal(found.key, wanted.key)


def test_repeated_calls_are_replayed(device):
    given = leaves(device, 20, 40, batch=1, heads=2)
    for statistic in (HeadSum(3), KL(normal(device, 1, 20, 40)), KL(indexer(device, 1, 20, 40))):
        calls.forget()
        found = [
            observe(**given, stats=[statistic], backend="triton").stats[statistic.name] for _ in range(4)
        ]
        assert [history.tape is not None for history in calls._histories.values()] == [True]
        first, *_, last = (x if isinstance(x, tuple) else (x,) for x in found)
        assert all(torch.equal(a, b) for a, b in zip(first, last, strict=True))


def test_a_students_own_code_is_called_every_time(device):
    """Even if the student is a value, whose calls have a key."""
    seen = []

    @dataclass(frozen=True, eq=False)
    class Counting(Twice):
        a: torch.Tensor
        b: torch.Tensor

        def tile(self, *ranges):
            seen.append(ranges)
            _, rows, cols = ranges
            # A replay could run these functions.
            return self.a[:, rows.start : rows.stop, :1] + self.b[:, None, cols.start : cols.stop, 0]

    given = leaves(device, 20, 40, batch=1, heads=2)
    student = Counting(normal(device, 1, 20, 2), normal(device, 1, 40, 2))
    for _ in range(5):
        observe(**given, stats=[KL(student)], backend="triton")
    assert len(seen) == 5
