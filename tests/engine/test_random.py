"""Any mask, any shape, any layout, any options, drawn at random."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from effort import examples
from engine.harness import judge, own_random_state
from oracle import dense_attention, dense_mask
from regard import attention, explain_dispatch
from strategies import lengths, masks


def laid_out(x, order):
    """The same numbers in another order in memory."""
    back = torch.argsort(torch.tensor(order)).tolist()
    return x.permute(order).contiguous().permute(back)


@st.composite
def calls(draw):
    """(leaves, mask, options, backend) of a call that is valid."""
    batch, kv_heads, group = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    q, k, dim = draw(lengths(129)), draw(lengths(129)), draw(st.sampled_from([1, 3, 8, 17]))
    heads, v_dim = kv_heads * group, draw(st.sampled_from([dim, dim + 2]))
    # A single number in half precision may be right by luck, and eager attention then allows no error at all.
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    torch.manual_seed(draw(st.integers(0, 99)))
    shapes = {"q": (heads, q, dim), "k": (kv_heads, k, dim), "v": (kv_heads, k, v_dim)}
    order = draw(st.permutations(range(4)))
    leaves = {name: laid_out(torch.randn(batch, *shape).to(dtype), order) for name, shape in shapes.items()}
    options = {}
    if draw(st.booleans()):
        full = (batch, heads, q, k)
        # The keys keep their axis: the gradient of one number shared by all is a sum that nearly cancels, and
        # eager's own error in one number, the yardstick here, may be 0 by chance. test_scoring covers it.
        leaves["bias"] = torch.randn([size if draw(st.booleans()) else 1 for size in full[:3]] + [k])
    if draw(st.booleans()):
        leaves["sink"] = torch.randn(heads)
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([1.0, 20.0]))
    if draw(st.booleans()):
        options["scale"] = draw(st.floats(-1.0, 1.0))
    if draw(st.booleans()):
        options["score_mod"] = lambda s, b, h, i, j: s - 0.01 * (i - j).abs() * (1 + h + b)
    mask = draw(st.none() | masks(q, k, batch, heads))
    return leaves, mask, options, draw(st.sampled_from(["auto", "torch", "sdpa"]))


@examples(150)
@given(calls())
def test_any_call_agrees_with_the_oracle(call):
    leaves, mask, options, backend = call
    with own_random_state():
        constant = {name: x for name, x in leaves.items() if name in ("bias", "sink")}
        if backend == "sdpa" and explain_dispatch(**leaves, mask=mask, **options).backend != "sdpa":
            backend = "torch"
        if backend == "sdpa":
            # A bias that learns is streamed: here it is a constant.
            leaves = {name: x for name, x in leaves.items() if name != "bias"}
            options = {**options, **{name: x for name, x in constant.items() if name == "bias"}}
        allowed = dense_mask(mask, leaves["q"], leaves["k"])
        judge(
            lambda x: attention(**x, mask=mask, backend=backend, **options),
            lambda x: dense_attention(**x, allowed=allowed, **options).out,
            leaves,
        )
