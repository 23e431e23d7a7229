"""Claims about attention that is computed tile by tile."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.memory import peak_bytes
from regard.claims.pictures import Bars, Curves
from regard.claims.timing import Clock, machine, medians
from regard.claims.words import listed, number, percent, slope
from regard.engine import attention

__all__ = ["CLAIMS", "eager", "tiled"]

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

tiled: Attend = partial(attention, backend="torch")


def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention as the formula is written, with the whole map in memory."""
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


def _inputs(n: int, heads: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = torch.randn(3, 1, heads, n, 64).unbind()
    return q, k, v


def measure_exact(attend: Attend = tiled, n: int = 1025) -> Measurement:
    """Both ways in float32 against the formula in float64: their errors, and their bits."""
    q, k, v = _inputs(n, heads=4)
    truth = eager(q.double(), k.double(), v.double())
    ours, theirs = attend(q, k, v), eager(q, k, v)
    size = truth.square().mean().sqrt()
    errors = [((x.double() - truth).square().mean().sqrt() / size).item() for x in (ours, theirs)]
    return Measurement(
        {
            "length": n,
            "error_tiled": errors[0],
            "error_eager": errors[1],
            "ratio": errors[0] / errors[1],
            "share_of_numbers_with_the_same_bits": (ours == theirs).double().mean().item(),
        }
    )


def judge_exact(m: Measurement) -> Verdict:
    found = (
        f"at {m['length']} tokens in float32 tiles are {number(m['error_tiled'])} off the float64 result and "
        f"the plain formula {number(m['error_eager'])}"
    )
    if m["ratio"] > 2:
        return Verdict.folklore(f"{found}: {number(m['ratio'])} times the error")
    same = m["share_of_numbers_with_the_same_bits"]
    if same < 1:
        return Verdict.conditional(
            f"{found}; but it is the same only to rounding: {percent(1 - same)} of the numbers have "
            f"other bits"
        )
    return Verdict.holds(f"{found}, with the same bits")


def _growth(sizes: Sequence[float]) -> float:
    """The exponent of what grows, as lengths double: a part that stays the same drops out."""
    return math.log2((sizes[-1] - sizes[-2]) / (sizes[-2] - sizes[-3]))


def measure_linear(attend: Attend = tiled, lengths: Sequence[int] = (1024, 2048, 4096, 8192)) -> Measurement:
    """Peak memory of tiles and of the whole map, by length; each length is twice the one before."""
    short = lengths[:3]
    held = [peak_bytes(partial(attend, *_inputs(n))) for n in lengths]
    whole = [peak_bytes(partial(eager, *_inputs(n))) for n in short]
    return Measurement(
        {
            "lengths": list(lengths),
            "bytes_tiled": held,
            "bytes_eager": whole,
            "exponent_tiled": _growth(held),
            "exponent_eager": _growth(whole),
        },
        Curves(
            {"tiles": (lengths, held), "whole map": (short, whole)}, "n", "peak bytes, one head", log="xy"
        ),
    )


def judge_linear(m: Measurement) -> Verdict:
    found = (
        f"beyond a fixed part, peak memory grows as n^{m['exponent_tiled']:.2f} in tiles and as "
        f"n^{m['exponent_eager']:.2f} with the whole map (at {m['lengths'][2]} tokens of one head "
        f"{number(m['bytes_tiled'][2] / 2**20)} and {number(m['bytes_eager'][2] / 2**20)} MiB)"
    )
    if m["exponent_tiled"] > 1.2:
        return Verdict.folklore(found)
    return Verdict.holds(found)


def measure_asymptotic(
    attend: Attend = tiled, lengths: Sequence[int] = (1024, 2048, 4096), clock: Clock = medians
) -> Measurement:
    """FLOPs of the tiles' matrix products, counted; and the time they take."""
    flops = []
    for n in lengths:
        with FlopCounterMode(display=False) as counter:
            attend(*_inputs(n))
        flops.append(counter.get_total_flops())
    seconds = clock({str(n): partial(attend, *_inputs(n)) for n in lengths})
    times = [seconds[str(n)] for n in lengths]
    return Measurement(
        {
            "lengths": list(lengths),
            "flops": flops,
            "seconds": times,
            "exponent_of_flops": slope(lengths, flops),
            "exponent_of_time": slope(lengths, times),
            "machine": machine(),
        }
    )


def judge_asymptotic(m: Measurement) -> Verdict:
    found = (
        f"from {m['lengths'][0]} to {m['lengths'][-1]} tokens the FLOPs of tiles grow as "
        f"n^{m['exponent_of_flops']:.2f}, and the time, on this machine, as n^{m['exponent_of_time']:.2f}"
    )
    return Verdict.holds(found) if m["exponent_of_flops"] > 1.8 else Verdict.folklore(found)


def measure_faster(
    clock: Clock = medians,
    lengths: Sequence[int] = (512, 1024, 2048, 4096),
    claimed: tuple[float, float] = (2.0, 4.0),
) -> Measurement:
    """Times of the plain formula and the fused kernel, measured in turns on this machine."""
    ratios, seconds = [], {}
    for n in lengths:
        q, k, v = _inputs(n, heads=2)
        tasks = {"plain": partial(eager, q, k, v), "fused": partial(attention, q, k, v)}
        with torch.no_grad():
            times = clock(tasks)
        ratios.append(times["plain"] / times["fused"])
        seconds[str(n)] = times
    low, high = claimed
    return Measurement(
        {
            "lengths": list(lengths),
            "ratios": ratios,
            "seconds": seconds,
            "claimed_low": low,
            "claimed_high": high,
            "machine": machine(),
        },
        Bars([str(n) for n in lengths], {"ratio": ratios}, "times faster", "tokens", level=1.0),
    )


def judge_faster(m: Measurement) -> Verdict:
    low, high = m["claimed_low"], m["claimed_high"]
    said = listed(f"{r:.1f} at {n}" for r, n in zip(m["ratios"], m["lengths"], strict=True))
    found = f"on this machine ({m['machine']}) the fused kernel is faster by a factor of {said} tokens"
    inside = [low <= ratio <= high for ratio in m["ratios"]]
    if all(inside):
        return Verdict.holds(found)
    if max(m["ratios"]) < low:
        return Verdict.folklore(found)
    return Verdict.conditional(
        f"{found}: at {sum(inside)} of {len(inside)} lengths within {number(low)} to {number(high)}"
    )


def _trained(attend: Attend, n: int) -> Callable[[], object]:
    """A forward and a backward pass over n tokens."""
    q, k, v = (x.requires_grad_() for x in _inputs(n))
    return lambda: attend(q, k, v).sum().backward()


def measure_memory(attend: Attend = tiled, lengths: Sequence[int] = (1024, 2048, 4096)) -> Measurement:
    """Peak memory of a forward pass, and of a forward and a backward pass, in tiles."""
    forward = [peak_bytes(partial(attend, *_inputs(n))) for n in lengths]
    both = [peak_bytes(_trained(attend, n)) for n in lengths]
    whole = peak_bytes(_trained(eager, lengths[-1]))
    return Measurement(
        {
            "lengths": list(lengths),
            "bytes_forward": forward,
            "bytes_training": both,
            "training_by_forward": both[-1] / forward[-1],
            "exponent_training": slope(lengths, both),
            "whole_map_by_tiles": whole / both[-1],
        },
        Curves(
            {"forward": (lengths, forward), "forward and backward": (lengths, both)}, "n", "bytes", log="xy"
        ),
    )


def judge_memory(m: Measurement) -> Verdict:
    found = (
        f"at {m['lengths'][-1]} tokens a forward and a backward pass in tiles hold "
        f"{number(m['training_by_forward'])} "
        f"times the memory of a forward pass alone, growing as n^{m['exponent_training']:.2f}; with the "
        f"whole map "
        f"they hold {number(m['whole_map_by_tiles'])} times as much as in tiles"
    )
    if m["exponent_training"] > 1.5:
        return Verdict.folklore(found)
    if m["training_by_forward"] <= 1.2:
        return Verdict.holds(found)
    return Verdict.conditional(f"of the same order, and not as little: {found}")


CLAIMS = (
    Claim(
        "tiles-memory",
        "With tiles, training takes the memory of a single forward pass.",
        "Peak memory of a forward pass, and of a forward and a backward pass, by length.",
        measure_memory,
        judge_memory,
    ),
    Claim(
        "flash-exact",
        "Tiled attention gives the same result as the plain formula.",
        "The errors of both in float32 against float64, and their bits.",
        measure_exact,
        judge_exact,
    ),
    Claim(
        "flash-linear",
        "Tiled attention needs memory in proportion to n.",
        "Peak memory by length, for tiles and for the whole map.",
        measure_linear,
        judge_linear,
    ),
    Claim(
        "flash-asymptotic",
        "Tiled attention does not change that computation grows as n².",
        "FLOPs counted by PyTorch, and seconds on the machine at hand, by length.",
        measure_asymptotic,
        judge_asymptotic,
    ),
    Claim(
        "flash-faster",
        "Tiled attention is two to four times faster.",
        "The plain formula and PyTorch's fused kernel in turns, on one thread of the machine at hand.",
        measure_faster,
        judge_faster,
    ),
)
