"""Kernels compiled for Hopper on any machine: what a launch would pass becomes a signature to compile.

Run as a script it prints, as JSON, what the compiler made of the kernels named on the command line.
"""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.int16: "*i16",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
LENGTH = 256


class Recorder:
    """Stands in for a kernel and remembers what it would have been launched with."""

    def __init__(self, kernel) -> None:
        self.kernel, self.fn = kernel, kernel.fn
        self.launches: list[dict[str, Any]] = []

    def __getitem__(self, grid):
        names = list(inspect.signature(self.fn).parameters)
        return lambda *args, **given: self.launches.append({**dict(zip(names, args, strict=False)), **given})


def recorded(module, name: str) -> Recorder:
    """A recorder in the place of a module's kernel."""
    there = getattr(module, name)
    recorder = Recorder(there.kernel if isinstance(there, Recorder) else there)
    setattr(module, name, recorder)
    return recorder


def compiled(kernel, launch: dict[str, Any]):
    """The kernel compiled for compute capability 9.0 as this launch would have it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

    from regard.engine.triton.launch.start import ALWAYS_OPTIONS, OPTIONS

    signature, constants, attributes = {}, {}, {}
    for index, (name, parameter) in enumerate(inspect.signature(kernel.fn).parameters.items()):
        value = launch[name]
        if "constexpr" in str(parameter.annotation):
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, Tensor):
            signature[name] = TYPES[value.dtype]
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif hasattr(value, "block_shape"):
            layout = f",{value.layout!r}" if hasattr(value, "layout") else ""
            signature[name] = f"tensordesc<{TYPES[value.base.dtype][1:]}{value.block_shape}{layout}>"
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name] = "i32"
            if value % 16 == 0 and name.endswith(("_b", "_h", "_n")):
                attributes[(index,)] = [["tt.divisibility", 16]]
    if isinstance(kernel, GluonJITFunction):
        made = {(list(signature).index(name),): value for name, value in constants.items()}
        source = GluonASTSource(kernel, signature, made, attributes)
    else:
        source = ASTSource(kernel, signature, constants, attributes)
    options = ALWAYS_OPTIONS | {name: launch[name] for name in OPTIONS if name in launch}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


def report(made) -> dict[str, int]:
    """Of a compiled kernel:

    - stack: bytes of local memory per thread, and spilled: how often every turn of a loop uses it;
    - wgmma: how many matrix instructions of Hopper's there are;
    - covered: how many products have 32 exponentials between them and the wait for them;
    - meanwhile: where all products but the last are waited for first, the least number of exponentials
      before the last one is;
    - threes: how often the largest of three is looked for;
    - barrier: the highest number of a barrier that the compiler took for itself;
    - apart: how far the first two loops with products lie apart.
    """
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (
            subprocess.run([tool, what, file.name], capture_output=True, text=True, check=True).stdout
            for what in ("-res-usage", "-sass")
        )
    found = re.search(r"STACK:(\d+)", usage)
    waits = re.findall(r"HGMMA[^\n]* gsb0 ;(.*?)DEPBAR\.LE", code, re.DOTALL)
    # Between the wait for all but one and the next one for all.
    spans = re.findall(r"DEPBAR\.LE gsb0, 0x1(.*?)DEPBAR\.LE gsb0, 0x0", code, re.DOTALL)
    # Ours have their numbers in registers.
    taken = [int(number) for number in re.findall(r"bar(?:\.warp|rier)?\.\w+\s+(\d+)", made.asm["ptx"])]
    return {
        "barrier": max(taken, default=-1),
        "stack": int(found[1]) if found else -1,
        "spilled": _spilled(code),
        "wgmma": made.asm["ptx"].count("wgmma.mma_async"),
        "covered": sum(wait.count("MUFU.EX2") >= 32 for wait in waits),
        "meanwhile": min((span.count("MUFU.EX2") for span in spans), default=0),
        "threes": code.count("VIMNMX3"),
        "apart": _apart(code),
    }


def _apart(code: str) -> int:
    """Bytes from the first loop with products, and none within it, to the second; 0 if there is none."""
    starts = [first for first, _ in _loops(code)]
    return starts[1] - starts[0] if len(starts) > 1 else 0


def _spilled(code: str) -> int:
    """How often every turn of a loop with products uses local memory.

    What a branch may skip isn't counted.
    """
    count = 0
    for first, last in _loops(code):
        skipped = [
            (at, to) for at, text in _lines(code) if (to := _target(text)) and first <= at < to <= last
        ]
        for at, text in _lines(code):
            if first <= at <= last and re.search(r"\b(LDL|STL)\b", text):
                count += not any(start < at < stop for start, stop in skipped)
    return count


def _loops(code: str) -> list[tuple[int, int]]:
    """The first and last instruction of each loop with products that has no other such loop within it.

    Code moved out of a loop ends in a branch back into it, and makes no loop of its own.
    """
    lines = _lines(code)
    products = [at for at, text in lines if "HGMMA" in text]
    back = [(to, at) for at, text in lines if (to := _target(text)) is not None]
    loops = sorted((first, last) for first, last in back if any(first <= at < last for at in products))
    return [
        (first, last)
        for first, last in loops
        if not any(
            loop != (first, last)
            and ((first <= loop[0] and loop[1] <= last) or loop[0] < first <= loop[1] < last)
            for loop in loops
        )
    ]


def _lines(code: str) -> list[tuple[int, str]]:
    """The address and the text of every instruction."""
    return [(int(at, 16), text) for at, text in re.findall(r"/\*([0-9a-f]{4,})\*/ +(.*?);", code)]


def _target(text: str) -> int | None:
    """Where a branch goes."""
    found = re.search(r"\bBRA[^;]*?(0x[0-9a-f]+)", text)
    return int(found[1], 16) if found else None


@cache
def launch_of(name: str, dim: int) -> tuple[Any, dict[str, Any]]:
    """The kernel of that name and what it would be launched with on a Hopper GPU at this head dim."""
    from regard.engine.inputs import Options, problem_of
    from regard.engine.riders import Riders
    from regard.engine.triton import configs, operands
    from regard.engine.triton.backward import launch as backward
    from regard.engine.triton.backward import preprocess
    from regard.engine.triton.forward import launch as forward
    from regard.engine.triton.head_sums import launch as head_sums
    from regard.engine.triton.hopper.argmax import launch as argmax
    from regard.engine.triton.hopper.backward import launch as hopper_backward
    from regard.engine.triton.hopper.forward import launch as hopper_forward
    from regard.engine.triton.hopper.second_pass import sweep as hopper_sweep
    from regard.engine.triton.hopper.topk import launch as topk
    from regard.engine.triton.second_pass import sweep
    from regard.masks import Causal
    from regard.stats import Indexer, Scores

    operands.config = lambda kernel, device, wide, dtype: configs.TABLE[kernel, 9, max(64, wide)]
    operands.has_tma = lambda device: True
    q, k, v = torch.zeros(3, 1, 2, LENGTH, dim, dtype=torch.bfloat16).unbind()
    problem = problem_of(q, k, v, Options(Causal()))
    lse = torch.zeros(1, 2, LENGTH)
    homes = {
        "forward_kernel": forward,
        "second_pass_kernel": sweep,
        "queries_kernel": backward,
        "divergence_kernel": head_sums,
        "shared_keys_kernel": head_sums,
        "tiles_kernel": head_sums,
        "hopper_forward_kernel": hopper_forward,
        "hopper_second_pass_kernel": hopper_sweep,
        "hopper_argmax_kernel": argmax,
        "hopper_candidates_kernel": topk,
        "hopper_threshold_kernel": topk,
        "choose_tiles_kernel": topk,
        "drop_ties_kernel": topk,
        "raise_thresholds_kernel": topk,
        "exhaustive_kernel": topk,
        "hopper_keys_kernel": hopper_backward,
        "hopper_queries_kernel": hopper_backward,
    }
    module = homes[name]
    recorder = recorded(module, name)
    preprocess.preprocess_kernel = Recorder(preprocess.preprocess_kernel)
    everything = Riders(entropy=True, distance=True, max_score=True, first=4, top_keys=8, grain=64)
    if module is forward:
        forward.forward(problem, Riders(entropy=True))
    elif module is argmax:
        forward.hopper.applicable = lambda problem: True
        forward.hopper.finds_argmax = lambda problem: False
        recorded(forward, "forward_kernel")
        recorded(hopper_forward, "hopper_forward_kernel")
        recorded(module, "group_by_tile_kernel")
        forward.forward(problem, Riders(max_score=True, first=4))
    elif module in (hopper_forward, topk):
        forward.hopper.applicable = lambda problem: True
        for other in ("forward_kernel", "argmax_kernel", "first_weight_kernel"):
            recorded(forward, other)
        kernels = {
            "threshold_kernel",
            "wanted_tiles_kernel",
            "hopper_threshold_kernel",
            "hopper_candidates_kernel",
        }
        helpers = {"choose_tiles_kernel", "raise_thresholds_kernel", "shares_kernel", "exhaustive_kernel"}
        helpers |= {"drop_ties_kernel", "select_kernel"}
        for other in (kernels | helpers) - {name}:
            recorded(topk, other)
        if module is topk:
            recorded(hopper_forward, "hopper_forward_kernel")
        forward.forward(problem, everything)
    elif module is hopper_sweep:
        for other in ("lse2_kernel", "reduce_columns_kernel", "reduce_diagonals_kernel"):
            recorded(module, other)
        asked = sweep.SweepRequest(True, diagonals=True, pool=64, pool_sums=True)
        hopper_sweep.sweep(problem, lse, asked)
    elif module is sweep:
        sweep.sweep(problem, lse, sweep.SweepRequest(columns=True))
    elif name == "shared_keys_kernel":
        head_sums.shared_keys(problem, lse, 8)
    elif name == "divergence_kernel":
        index = torch.zeros(1, 4, LENGTH, dim, dtype=torch.bfloat16)
        head_sums.divergence_sums(problem, lse, Indexer(index, index[:, 0], index[..., 0]))
    elif name == "tiles_kernel":
        scores, row = torch.zeros(1, LENGTH, LENGTH), torch.ones(1, LENGTH)
        head_sums.student_gradients(problem, lse, Scores(scores), [0], (row, row, row))
    elif module is hopper_backward:
        backward.hopper.applicable = lambda problem: True
        other = "hopper_queries_kernel" if name == "hopper_keys_kernel" else "hopper_keys_kernel"
        recorded(module, other)
        backward.backward(problem, q, lse, q)
    else:
        backward.hopper.applicable = lambda problem: False
        backward.keys_kernel = Recorder(backward.keys_kernel)
        backward.backward(problem, q, lse, q)
    return recorder.kernel, recorder.launches[0]


def variant(name: str) -> tuple[Any, dict[str, Any]]:
    """`launch_of` a kernel, with the compile-time arguments that are named behind it: "kernel A=0 B=1"."""
    kernel, *changes = name.split()
    changed = {key: int(value) for key, value in (change.split("=") for change in changes)}
    found, launch = launch_of(kernel, changed.get("DIM", 128))
    return found, {**launch, **changed}


if __name__ == "__main__":
    print(json.dumps({name: report(compiled(*variant(name))) for name in sys.argv[1:]}))
