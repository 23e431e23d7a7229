"""What the sums of a thread's columns are compiled to, read from the text for the assembler.

Run as a script it prints, as JSON, how often each weight of a row is counted: in the sum of its weights, and
in the sum by distance.
"""

from __future__ import annotations

import json
import re
import struct

from triton.backends.compiler import GPUTarget
from triton.compiler import compile as compiled
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from regard.engine.triton.hopper.forward.kernel import _weight_sums
from regard.engine.triton.hopper.thread_columns import HALF, split_by_thread
from regard.engine.triton.launch.start import ALWAYS_OPTIONS

# A sum of some of what was loaded: how often each.
Sum = dict[str, float]


@gluon.jit
def masses_kernel(P, MASS, BEFORE):
    """The weights of one tile, added up by the four threads of each row."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 16])
    row = gl.arange(0, HALF, gl.SliceLayout(1, layout))[:, None]
    p = split_by_thread(gl.load(P + row * 128 + gl.arange(0, 128, gl.SliceLayout(0, layout))[None, :]), 128)
    rows: gl.constexpr = gl.SliceLayout(2, p.type.layout)
    mass, before = _weight_sums(p, rows)
    at = gl.arange(0, HALF, gl.SliceLayout(1, rows))[:, None] * 4
    at += gl.arange(0, 4, gl.SliceLayout(0, rows))[None, :]
    gl.store(MASS + at, mass)
    gl.store(BEFORE + at, before)


def text() -> str:
    names = {"P": "*fp32", "MASS": "*fp32", "BEFORE": "*fp32"}
    source = GluonASTSource(masses_kernel, names, {}, {(i,): [["tt.divisibility", 16]] for i in range(3)})
    return compiled(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, **ALWAYS_OPTIONS}).asm[
        "ptx"
    ]


def stored(ptx: str) -> list[Sum]:
    """What is stored, as sums of what was loaded."""
    known: dict[str, Sum] = {}
    found = []
    for line in ptx.splitlines():
        name, *operands = re.findall(r"[%\w.]+", line.split("//")[0]) or [""]
        name, operands = (operands[1], operands[2:]) if name.startswith("%p") else (name, operands)
        if name.startswith("ld.global"):
            known |= {x: {x: 1.0} for x in operands if x.startswith(("%r", "%f")) and "rd" not in x}
        elif name == "mov.b32" and operands[1] in known:
            known[operands[0]] = known[operands[1]]
        elif name.startswith(("add", "sub", "mul", "fma", "neg")) and "f32" in name:
            to, *given = operands
            known[to] = _sum(name.split(".")[0], given, known)
        elif name.startswith("st.global"):
            found += [known[x] for x in operands if x in known]
    return found


def _sum(what: str, given: list[str], known: dict[str, Sum]) -> Sum:
    terms = [_number(x) if x.startswith("0f") else known[x] for x in given]
    if what == "neg":
        return _times(terms[0], -1.0)
    if what == "mul":
        return _product(*terms)
    if what == "fma":
        return _plus(_product(terms[0], terms[1]), terms[2])
    return _plus(terms[0], terms[1] if what == "add" else _times(terms[1], -1.0))


def _number(x: str) -> float:
    return struct.unpack(">f", bytes.fromhex(x[2:]))[0]


def _product(x: Sum | float, y: Sum | float) -> Sum:
    return _times(y, x) if isinstance(x, float) else _times(x, y)


def _times(x: Sum, factor: float) -> Sum:
    return {name: factor * count for name, count in x.items()}


def _plus(x: Sum, y: Sum) -> Sum:
    return {name: x.get(name, 0.0) + y.get(name, 0.0) for name in x | y}


if __name__ == "__main__":
    print(json.dumps([sorted(counts.values()) for counts in stored(text())]))
