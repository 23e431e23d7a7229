"""What the compiler makes of the hot kernels for Hopper; no GPU is needed to know."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.triton.scripts import printed_by

triton = pytest.importorskip("triton")

KERNELS = (
    "forward_kernel",
    "second_pass_kernel",
    "divergence_kernel",
    "divergence_kernel INDEXED=0",
    "shared_keys_kernel",
    "tiles_kernel",
    "hopper_forward_kernel",
    "hopper_forward_kernel GRAIN=128",
    "hopper_forward_kernel ENTROPIES=0 DISTANCES=0 MAX_SCORES=0 FIRST_KEYS=0",
    "hopper_forward_kernel DIM=64",
    "hopper_forward_kernel GRAIN=0 MAX_SCORES=1 FIRST_KEYS=0",
    "hopper_forward_kernel GRAIN=0 MAX_SCORES=1 FIND_KEY=1",
    "hopper_forward_kernel GRAIN=0 ENTROPIES=0 DISTANCES=0 MAX_SCORES=0 FIRST_KEYS=0",
    "hopper_second_pass_kernel",
    "hopper_second_pass_kernel DIAGONALS=0",
    "hopper_second_pass_kernel WARPGROUPS=2 SUMS=1 MAXIMA=1 POOL_Q=1 POOL_K=1",
    "hopper_second_pass_kernel WARPGROUPS=2 SUMS=1 MAXIMA=1 POOL_Q=4 POOL_K=4",
    "hopper_second_pass_kernel WARPGROUPS=2 SUMS=1 MAXIMA=1 POOL_Q=16 POOL_K=16",
    "hopper_second_pass_kernel WARPGROUPS=2 SUMS=1 MAXIMA=1 POOL_Q=32 POOL_K=16",
    "hopper_second_pass_kernel WARPGROUPS=2 MAXIMA=1 POOL_Q=64 POOL_K=16",
    "hopper_threshold_kernel",
    "hopper_threshold_kernel LINES=128 maxnreg=64",
    "hopper_threshold_kernel LINES=256 maxnreg=96",
    "hopper_threshold_kernel LINES=512 num_warps=8 maxnreg=128",
    "hopper_argmax_kernel",
    "hopper_candidates_kernel",
    "hopper_candidates_kernel MASKED=0",
    "hopper_candidates_kernel GRAIN=128 maxnreg=168",
    "raise_thresholds_kernel",
    "raise_thresholds_kernel GRAIN=128 USED=2",
    "exhaustive_kernel GRAIN=128",
    "hopper_keys_kernel",
    "hopper_queries_kernel",
)
# Between these, and in none of the benchmarks; a compiler takes six seconds for each.
MORE = (
    "hopper_forward_kernel GRAIN=0 DISTANCES=0 MAX_SCORES=0 FIRST_KEYS=0",
    "hopper_forward_kernel DISTANCES=0",
    "hopper_forward_kernel GRAIN=0 MAX_SCORES=1 FIND_KEY=1 DIM=64",
    "hopper_forward_kernel GRAIN=0 MAX_SCORES=1 FIND_KEY=1 ENTROPIES=0 DISTANCES=0 FIRST_KEYS=0",
    "second_pass_kernel COLUMN_MAXIMA=1",
    "hopper_second_pass_kernel WARPGROUPS=2 SUMS=1 MAXIMA=1 POOL_Q=2 POOL_K=2",
    "hopper_second_pass_kernel WARPGROUPS=2 SUMS=1 MAXIMA=1 POOL_Q=8 POOL_K=8",
)
# These add all heads of a tile.
OVER_HEADS = ("divergence_kernel", "shared_keys_kernel", "tiles_kernel")
# What assemblers of other releases of Triton keep in local memory, in bytes a thread (`make tritons`). They
# passed the tests on a device like that; how fast they are is in benchmarks/results/gpu_releases.md.
SPILLED = {
    "3.8": {"hopper_candidates_kernel": 32},
    "3.9": {"hopper_forward_kernel": 8, "hopper_second_pass_kernel": 8, "hopper_queries_kernel": 112},
}


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, int]]:
    return compiled(KERNELS)


def compiled(kernels: Sequence[str]) -> dict[str, dict[str, int]]:
    """Reports on kernels."""
    return printed_by("compiling.py", *kernels)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if "threshold" not in name])
def test_hot_kernels_use_the_matrix_units_of_hopper(kernel, reports):
    assert reports[kernel]["wgmma"] > 0


def test_the_second_pass_keeps_everything_in_registers(reports):
    assert reports["second_pass_kernel"]["stack"] == 0


def test_the_forward_spills_next_to_nothing(reports):
    """The edge loop keeps a few bytes per thread in local memory; the loop over full tiles does not."""
    assert reports["forward_kernel"]["stack"] <= 128


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.split()[0] in OVER_HEADS])
def test_loops_over_heads_keep_everything_in_registers(kernel, reports):
    """A few sums of a row are in local memory while the heads are added.

    Loops over full tiles use none of it. With given scores, the loop over tiles at the edge of a mask stores
    and loads one pair of numbers.
    """
    assert reports[kernel]["spilled"] <= (2 if kernel == "divergence_kernel INDEXED=0" else 0)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.startswith("hopper")])
def test_kernels_for_hopper_keep_everything_in_registers(kernel, reports):
    """Where something is left over, the assembler also makes products wait for one another.

    The forward keeps up to four numbers that only the branch for leaping scores and the ends of loops use.
    """
    release = ".".join(triton.__version__.split(".")[:2])
    rarely = 16 if kernel.startswith("hopper_forward") else 0
    assert reports[kernel]["stack"] <= SPILLED.get(release, {}).get(kernel, rarely)
    if kernel not in SPILLED.get(release, {}):
        assert reports[kernel]["spilled"] == 0


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.startswith("hopper")])
def test_the_compiler_takes_no_barrier_that_places_in_rings_have(kernel, reports):
    assert reports[kernel]["barrier"] < 8


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.startswith("hopper_second_pass")])
def test_the_second_pass_for_hopper_exponentiates_while_the_next_block_is_multiplied(kernel, reports):
    """32 exponentials a thread, for either block of each warpgroup."""
    assert reports[kernel]["covered"] == (4 if "WARPGROUPS=2" in kernel else 6)


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.startswith("hopper_forward")])
def test_the_forward_for_hopper_exponentiates_while_values_are_mixed(kernel, reports):
    """The assembler likes to move exponentials behind the wait for that product: 64 a thread and tile are
    before it."""
    assert reports[kernel]["meanwhile"] >= 64


@pytest.mark.parametrize(
    "kernel", [name for name in KERNELS if name.startswith("hopper_forward") and "MAX_SCORES=1" not in name]
)
def test_the_hopper_forward_uses_the_three_input_maximum(kernel, reports):
    """Two rows of 32 weights a thread, in two parts or whole, in the loops of two warpgroups."""
    assert reports[kernel]["threes"] >= 2 * 2 * 14


@pytest.mark.parametrize("kernel", [name for name in KERNELS if name.startswith("hopper_forward")])
def test_loops_of_the_forward_for_hopper_have_places_of_their_own_in_the_instruction_cache(kernel, reports):
    assert apart_enough(reports[kernel]["apart"])


def apart_enough(apart: int) -> bool:
    """What lies a multiple of 16 KiB apart, or up to 2 KiB more, has the same places."""
    return apart > 0 and 2 << 10 < apart % (16 << 10) < 15 << 10


@pytest.mark.slow
def test_variants_in_between_are_compiled_as_these_are():
    for kernel, report in compiled(MORE).items():
        assert report["wgmma"] > 0, kernel
        assert report["stack"] <= (0 if "second_pass" in kernel else 16), kernel
        assert report["spilled"] == 0, kernel
        assert report["barrier"] < 8, kernel
        assert report["covered"] == 4 if "second_pass" in kernel else report["meanwhile"] >= 64, kernel
        assert "second_pass" in kernel or apart_enough(report["apart"]), kernel
