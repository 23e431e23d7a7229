"""The fused forward against the backend that defines truth: every mask, option and odd shape."""

from __future__ import annotations

import pytest
import torch

from engine.harness import MASKS, every_mask, qkv
from regard import attention, observe
from regard.engine.inputs import Options, problem_of
from regard.engine.riders import Riders
from regard.engine.triton.forward import launch as forward
from regard.engine.triton.forward.tile_maxima import TileMaxima
from regard.engine.triton.operands import Operands
from regard.masks import Causal, Window
from regard.scores import ALiBi
from regard.stats import Entropy, MaxScore, MeanDistance, SinkMass

ROWS = [Entropy(), MaxScore(), MeanDistance(), SinkMass(3)]
OPTIONS = {
    "soft cap": {"softcap": 3.0},
    "alibi": {"bias": ALiBi.for_heads(2)},
    "dense bias": {"bias": torch.linspace(-2, 2, 40 * 37).view(1, 1, 40, 37)},
    "a bias of -inf": {"bias": torch.zeros(37).masked_fill(torch.arange(37) < 5, -torch.inf)},
    "sink": {"sink": torch.tensor([1.5, -0.5])},
    "negative scale": {"scale": -0.3},
    "no scale": {"scale": 0.0},
}


def leaves(device: str, *sizes, **options):
    return {name: x.to(device) for name, x in qkv(*sizes, **options).items()}


def close(got, wanted, atol: float = 3e-5) -> None:
    torch.testing.assert_close(got, wanted, atol=atol, rtol=1e-4, equal_nan=True)


def agree(given: dict, mask=None, **options) -> None:
    """Output, lse and every row statistic of both backends."""
    ours = observe(**given, mask=mask, stats=ROWS, backend="triton", **options)
    truth = observe(**given, mask=mask, stats=ROWS, backend="torch", **options)
    close(ours.out, truth.out)
    close(ours.lse, truth.lse)
    close(ours.entropy, truth.entropy)
    close(ours.max_score.value, truth.max_score.value)
    assert torch.equal(ours.max_score.key, truth.max_score.key)
    close(ours.mean_distance, truth.mean_distance, 1e-3)
    close(ours.sink_mass, truth.sink_mass)


@pytest.mark.parametrize("name", MASKS)
def test_every_mask_gives_what_the_torch_backend_gives(name, device):
    mask = every_mask(33, 65, 2, 2)[name]
    agree(leaves(device, 33, 65, heads=2, kv_heads=1), mask)


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_gives_what_the_torch_backend_gives(name, device):
    moved = {key: x.to(device) if isinstance(x, torch.Tensor) else x for key, x in OPTIONS[name].items()}
    agree(leaves(device, 40, 37, heads=2, batch=1), Causal(), **moved)


@pytest.mark.parametrize(
    ("q", "k", "dim", "v_dim"), [(1, 1, 16, 16), (1, 65, 20, 7), (63, 3, 8, 40), (3, 64, 80, 80)]
)
def test_odd_shapes_give_what_the_torch_backend_gives(q, k, dim, v_dim, device):
    agree(leaves(device, q, k, batch=1, heads=2, dim=dim, v_dim=v_dim), Causal())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype, device):
    if device == "cpu" and dtype == torch.bfloat16:
        pytest.skip("Triton's interpreter multiplies the bits of bfloat16 as if they were whole numbers")
    given = leaves(device, 33, 40, batch=1, heads=2, dtype=dtype)
    ours, truth = (attention(**given, mask=Causal(), backend=b) for b in ("triton", "torch"))
    assert ours.dtype == dtype
    torch.testing.assert_close(ours, truth, atol=1e-2, rtol=1e-2)


def test_garbage_behind_the_mask_does_not_leak(device):
    given = leaves(device, 40, 40, batch=1, heads=1)
    mask = Causal() & Window(8)
    clean = attention(**given, mask=mask, backend="triton")
    for name in ("k", "v"):
        dirty = {**given, name: given[name].clone()}
        dirty[name][:, :, 5] = torch.nan
        got = attention(**dirty, mask=mask, backend="triton")
        sees = torch.zeros(40, dtype=torch.bool)
        sees[5:13] = True
        assert got[0, 0, sees].isnan().all()
        torch.testing.assert_close(got[0, 0, ~sees], clean[0, 0, ~sees])


def test_what_a_bias_forbids_stays_forbidden_under_a_soft_cap(device):
    given = leaves(device, 33, 40, batch=1, heads=2, dim=16)
    bias = torch.zeros(1, 1, 33, 40, device=device)
    bias[..., ::3] = -torch.inf
    agree(given, bias=bias, softcap=5.0)
    got = observe(**given, stats=ROWS, bias=bias, softcap=5.0, backend="triton")
    assert (got.max_score.key % 3 != 0).all()


def test_a_row_that_sees_nothing_gives_zeros(device):
    given = leaves(device, 9, 5, batch=1, heads=2)
    seen = observe(**given, mask=Causal(), stats=ROWS, backend="triton")
    assert torch.equal(seen.out[:, :, :4], torch.zeros_like(seen.out[:, :, :4]))
    assert (seen.lse[:, :, :4] == -torch.inf).all()
    assert (seen.max_score.key[:, :, :4] == -1).all()
    assert (seen.entropy[:, :, :4] == 0).all()


def test_of_equal_scores_the_first_key_is_named(device):
    x = torch.zeros(1, 1, 70, 16, device=device)
    seen = observe(x, x, x, mask=Window(20), stats=[MaxScore()], backend="triton")
    assert seen.max_score.key.flatten().tolist() == [max(0, i - 19) for i in range(70)]


def test_the_same_call_gives_the_same_bits(device):
    given = leaves(device, 65, 65, batch=1, heads=2)
    first, again = (attention(**given, mask=Causal(), backend="triton") for _ in range(2))
    assert torch.equal(first, again)


def test_of_equal_scores_the_first_key_is_named_when_blocks_are_done_again(device):
    x = torch.zeros(1, 1, 70, 16, device=device)
    problem = problem_of(x, x, x, Options(Window(20)))
    operands, riders = Operands(problem), Riders(max_score=True)
    cut, result = operands.config("rows"), forward._empty(problem, riders)
    dirty = torch.ones(1, 1, -(-70 // cut.block_q), dtype=torch.int32, device=device)
    forward._launch(operands, cut, riders, result, result.argmax, dirty, 0, careful=True, parts=2)
    assert result.argmax.flatten().tolist() == [max(0, i - 19) for i in range(70)]


@pytest.mark.parametrize(("parts", "classes"), [(1, 1), (2, 1), (1, 0), (2, 0)])
def test_blocks_that_are_done_again_are_those_of_the_first_time(device, parts, classes):
    given, mask = leaves(device, 150, 170, heads=2, kv_heads=1), Causal()
    problem = problem_of(given["q"], given["k"], given["v"], Options(mask))
    operands, riders = Operands(problem), Riders(entropy=True, distance=True, max_score=True, first=3)
    cut = operands.config("rows")
    truth = observe(**given, mask=mask, stats=ROWS, backend="torch")
    wanted = {
        "out": truth.out,
        "lse": truth.lse,
        "entropy": truth.entropy,
        "distance": truth.mean_distance,
        "max_score": truth.max_score.value,
        "first": truth.sink_mass,
    }
    result = forward._empty(problem, riders)
    # Of one class of keys the tile of the largest score is told; of none the key itself.
    peak_at = torch.full_like(truth.lse, -7, dtype=torch.int32 if classes else torch.int64)
    dirty = torch.ones(2, 2, -(-150 // cut.block_q), dtype=torch.int32, device=device)
    # All but those of one head, which stay as they are.
    dirty[0, 1] = 0
    for name in wanted:
        getattr(result, name).fill_(-1)
        wanted[name][0, 1] = -1
    grain = cut.block_k
    blocks, lines = dirty.shape[2], -(-170 // grain)
    told = TileMaxima(torch.full((4, lines, blocks * cut.block_q), torch.nan, device=device), grain)
    forward._launch(
        operands, cut, riders, result, peak_at, dirty, classes, told, careful=True, early=3, parts=parts
    )
    for name, x in wanted.items():
        close(getattr(result, name), x, 1e-3 if name == "distance" else 3e-5)
    place = truth.max_score.key // (cut.block_k if classes else 1)
    place[0, 1] = -7
    assert torch.equal(peak_at.long(), place)
    assert not dirty.any()
    # Tiles that no query of a block sees are not told, nor are those of that head.
    q, k = given["q"], given["k"].repeat_interleave(2, 1)
    visible = torch.ones(150, 170, device=device).tril(20)
    seen = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(visible == 0, -torch.inf)
    seen[0, 1] = -torch.inf
    seen = torch.nn.functional.pad(seen, (0, lines * grain - 170), value=-torch.inf)
    tops = told.scores.unflatten(0, (2, 2)).mT[:, :, :150] / 1.4426950408889634
    assert tops[0, 1].isnan().all()
    close(tops.nan_to_num(nan=-torch.inf, neginf=-torch.inf), seen.unflatten(3, (lines, grain)).amax(4))
