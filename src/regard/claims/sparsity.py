"""Claims about patterns that leave pairs out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from regard.claims.claim import Claim, Measurement, Verdict
from regard.claims.pictures import Curves
from regard.claims.timing import Clock, medians
from regard.claims.words import listed, percent, slope
from regard.engine import attention
from regard.masks import BigBird, Causal, Chunk, Longformer, Mask, Strided, Window

__all__ = ["CLAIMS"]

LOCAL = Causal() & Window(256)


def _flops(task: Callable[[], object]) -> int:
    with FlopCounterMode(display=False) as counter:
        task()
    return counter.get_total_flops()


def _dense(q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
    """Every pair computed, and then the mask."""
    seen = mask.dense(q.shape[-2], k.shape[-2])
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    return scores.softmax(-1) @ v


def measure_window(
    mask: Mask = LOCAL, lengths: Sequence[int] = (1024, 2048, 4096, 8192), clock: Clock = medians
) -> Measurement:
    """Pairs that may attend, FLOPs and seconds by length; and FLOPs where the mask only hides."""
    tasks, masked, flops = {}, [], []
    for n in lengths:
        q, k, v = torch.randn(3, 1, 1, n, 64).unbind()
        tasks[str(n)] = partial(attention, q, k, v, mask, backend="torch")
        flops.append(_flops(tasks[str(n)]))
        if n <= 2048:
            masked.append(_flops(partial(_dense, q, k, v, mask)))
    seconds = clock(tasks)
    pairs = [mask.pairs(n) for n in lengths]
    full = [Causal().pairs(n) for n in lengths]
    lines = {"pattern": (lengths, pairs), "causal": (lengths, full)}
    return Measurement(
        {
            "mask": repr(mask),
            "lengths": list(lengths),
            "pairs": pairs,
            "flops": flops,
            "exponent_of_pairs": slope(lengths, pairs),
            "exponent_of_flops": slope(lengths, flops),
            "exponent_of_time": slope(lengths, [seconds[str(n)] for n in lengths]),
            "exponent_of_flops_if_only_hidden": slope(lengths[: len(masked)], masked),
        },
        Curves(lines, "n", "pairs that may attend", log="xy"),
    )


def judge_window(m: Measurement) -> Verdict:
    found = (
        f"from {m['lengths'][0]} to {m['lengths'][-1]} tokens {m['mask']} allows pairs as "
        f"n^{m['exponent_of_pairs']:.2f}, and computing them takes FLOPs as n^{m['exponent_of_flops']:.2f} "
        f"and time, on this machine, as n^{m['exponent_of_time']:.2f}"
    )
    if m["exponent_of_pairs"] > 1.2 or m["exponent_of_flops"] > 1.2:
        return Verdict.folklore(found)
    if m["exponent_of_flops_if_only_hidden"] > 1.8:
        return Verdict.conditional(
            f"{found}; but only where hidden pairs are left out: a mask put on all scores costs "
            f"n^{m['exponent_of_flops_if_only_hidden']:.2f}"
        )
    return Verdict.holds(found)


def patterns(n: int) -> dict[str, Mask]:
    """Common patterns, at the size of a small text."""
    return {
        "window": Window(n // 16 + 1),
        "chunks": Chunk(n // 8),
        "strided": Window(n // 8) | Strided(n // 8),
        "window, global tokens": Longformer(n // 8, 1),
        "blocks at random": BigBird(n // 16, n),
    }


def _reached(seen: Bool[Tensor, "n n"], layers: int) -> list[float]:
    """The share of all pairs that a path joins, after each layer."""
    joined, shares = torch.eye(len(seen)), []
    for _ in range(layers):
        joined = (joined @ seen.float() > 0).float()
        shares.append(joined.mean().item())
    return shares


def measure_paths(masks: Mapping[str, Mask] | None = None, n: int = 64, layers: int = 20) -> Measurement:
    """Which tokens can reach which through one layer, two, and more of a pattern."""
    found = {
        name: _reached(mask.dense(n, n).reshape(n, n), layers)
        for name, mask in (patterns(n) if masks is None else masks).items()
    }
    depth = range(1, layers + 1)
    return Measurement(
        {
            "tokens": n,
            "layers": layers,
            "share_in_one_layer": {name: shares[0] for name, shares in found.items()},
            "layers_to_join_all": {
                name: next((i for i, share in zip(depth, shares, strict=True) if share == 1), None)
                for name, shares in found.items()
            },
            "share_in_all_layers": {name: shares[-1] for name, shares in found.items()},
        },
        Curves({name: (list(depth), shares) for name, shares in found.items()}, "layers", "pairs joined"),
    )


def judge_paths(m: Measurement) -> Verdict:
    one, all_joined = m["share_in_one_layer"], m["layers_to_join_all"]
    blocking = [name for name, share in one.items() if share < 1]
    if not blocking:
        return Verdict.folklore(f"one layer of {listed(one)} joins every pair already")
    found = "one layer joins " + listed(f"{percent(one[name])} of pairs ({name})" for name in blocking)
    restored = [name for name in blocking if all_joined[name] is not None]
    never = [name for name in blocking if all_joined[name] is None]
    if not restored:
        return Verdict.folklore(f"{found}, and {m['layers']} layers do not join the rest")
    found += "; all are joined after " + listed(f"{all_joined[name]} layers ({name})" for name in restored)
    if never:
        return Verdict.conditional(
            f"{found}; but {listed(never)} of the same shape in every layer never get beyond "
            f"{listed(percent(m['share_in_all_layers'][name]) for name in never)}"
        )
    return Verdict.holds(found)


SPARSE: dict[str, Callable[[int], Mask]] = {
    "a window of 64": lambda n: Causal() & Window(64),
    "Longformer": lambda n: Longformer(window=64, global_tokens=1),
    "strides of √n": lambda n: Causal() & (Window(math.isqrt(n)) | Strided(math.isqrt(n))),
    "a window of n/8": lambda n: Causal() & Window(n // 8),
}


def measure_relief(
    patterns: Mapping[str, Callable[[int], Mask]] = SPARSE, lengths: Sequence[int] = (256, 512, 1024, 2048)
) -> Measurement:
    """How the pairs of several patterns grow with the length."""
    pairs = {name: [made(n).pairs(n) for n in lengths] for name, made in patterns.items()}
    return Measurement(
        {
            "lengths": list(lengths),
            "exponent": {name: slope(lengths, counts) for name, counts in pairs.items()},
            "share_of_all_pairs": {name: counts[-1] / lengths[-1] ** 2 for name, counts in pairs.items()},
        },
        Curves(
            {name: (list(lengths), counts) for name, counts in pairs.items()}, "tokens", "pairs", log="xy"
        ),
    )


def judge_relief(m: Measurement) -> Verdict:
    said = listed(f"n^{power:.2f} for {name}" for name, power in m["exponent"].items())
    found = f"from {m['lengths'][0]} to {m['lengths'][-1]} tokens pairs grow as {said}"
    relieved = [name for name, power in m["exponent"].items() if power < 1.75]
    if not relieved:
        return Verdict.holds(found)
    if len(relieved) < len(m["exponent"]) / 2:
        return Verdict.conditional(f"of most patterns: {found}")
    return Verdict.folklore(f"{found}; a pattern gives none only where its window grows with the text")


CLAIMS = (
    Claim(
        "sparse-asymptotic",
        "Sparse attention gives no asymptotic relief.",
        "Pairs that four patterns allow, by length: the exponent.",
        measure_relief,
        judge_relief,
    ),
    Claim(
        "window-linear",
        "Local and sliding patterns cost in proportion to n.",
        "Pairs, FLOPs and seconds by length, where hidden pairs are skipped and where they are only masked.",
        measure_window,
        judge_window,
    ),
    Claim(
        "sparse-blocks-paths",
        "Sparse patterns block some paths between tokens; more layers and global tokens restore them.",
        "Which of 64 tokens reach which through k layers of five patterns.",
        measure_paths,
        judge_paths,
    ),
)
