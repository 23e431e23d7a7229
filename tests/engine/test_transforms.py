"""Transforms of `torch.func` and forward-mode differentiation agree with dense attention."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import grad, jacrev, jvp, vmap

from engine.harness import qkv
from oracle import dense_attention, dense_mask
from regard import AttentionMap, attention, observe, sdpa
from regard.errors import BackendError, MaskError, ScoreError
from regard.masks import Causal, Dense, Window
from regard.scores import Additive, ALiBi, RelativeBias

# PyTorch's own forward mode loads its decompositions through a function that it has deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")

OPTIONS = {
    "plain": {},
    "causal": {"mask": Causal()},
    "window with dead rows": {"mask": Causal(shift=-3) & Window(3)},
    "soft cap and sink": {"softcap": 2.0, "sink": torch.tensor([0.5, -1.0, 0.0, 2.0])},
    "bias": {"bias": torch.randn(1, 4, 5, 7, generator=torch.Generator().manual_seed(0))},
}
with_options = pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
by_torch = pytest.mark.parametrize("backend", ["auto", "torch"])


def both(options: dict, backend: str):
    """Attention and its dense double, as functions of q, k and v in float64."""
    dense = {name: x for name, x in options.items() if name != "mask"}

    def ours(q, k, v):
        return attention(q, k, v, backend=backend, **options)

    def theirs(q, k, v):
        return dense_attention(q, k, v, dense_mask(options.get("mask"), q, k), **dense).out

    return ours, theirs


def leaves() -> list[torch.Tensor]:
    torch.manual_seed(3)
    return list(qkv(5, 7, batch=1, kv_heads=2, dim=3, dtype=torch.float64).values())


@by_torch
@with_options
def test_grad_and_jacrev_agree_with_dense_attention(options, backend):
    ours, theirs = both(options, backend)
    given = leaves()
    every = (0, 1, 2)
    got = grad(lambda *x: (ours(*x) ** 2).sum(), every)(*given)
    torch.testing.assert_close(got, grad(lambda *x: (theirs(*x) ** 2).sum(), every)(*given))
    torch.testing.assert_close(jacrev(ours, every)(*given), jacrev(theirs, every)(*given))


@by_torch
@with_options
def test_vmap_is_a_loop(options, backend):
    ours, _ = both(options, backend)
    many = [torch.stack([x, 2 * x, -x]) for x in leaves()]
    expected = torch.stack([ours(*(x[i] for x in many)) for i in range(3)])
    torch.testing.assert_close(vmap(ours)(*many), expected)
    shared = vmap(ours, in_dims=(0, None, None))(many[0], many[1][0], many[2][0])
    torch.testing.assert_close(shared[0], expected[0])


@by_torch
@with_options
def test_forward_mode_agrees_with_dense_attention(options, backend):
    ours, theirs = both(options, backend)
    given = leaves()
    tangents = [torch.cos(x) for x in given]
    for got, expected in zip(
        jvp(ours, tuple(given), tuple(tangents)), jvp(theirs, tuple(given), tuple(tangents)), strict=True
    ):
        torch.testing.assert_close(got, expected)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(x, t) for x, t in zip(given, tangents, strict=True)]
        tangent = forward_ad.unpack_dual(ours(*duals)).tangent
    torch.testing.assert_close(tangent, jvp(theirs, tuple(given), tuple(tangents))[1])


def test_transforms_nest():
    ours, theirs = both({"mask": Causal()}, "auto")
    q, k, v = leaves()

    def second(f):
        return grad(lambda x: (grad(lambda y: f(y, k, v).pow(2).sum())(x) ** 2).sum())(q)

    torch.testing.assert_close(second(ours), second(theirs))
    many = torch.stack([q, -q])
    per_sample = vmap(grad(lambda x: ours(x, k, v).sum()))(many)
    torch.testing.assert_close(per_sample[1], grad(lambda x: theirs(x, k, v).sum())(-q))


def test_gradients_of_a_bias_go_through_transforms():
    q, k, v = leaves()
    table = torch.randn(4, 8, dtype=torch.float64)

    def loss(t):
        return attention(q, k, v, bias=RelativeBias(t, bidirectional=False)).pow(2).sum()

    expected = torch.autograd.grad(loss(t := table.clone().requires_grad_()), t)[0]
    torch.testing.assert_close(grad(loss)(table), expected)


@pytest.mark.parametrize(
    ("several", "use"),
    [
        (torch.tensor([[0.1, 0.2, 0.4, 0.8], [1.0, 0.5, 0.25, 0.0]]), lambda x: {"bias": ALiBi(x)}),
        (torch.tensor([0.5, -2.0]), lambda x: {"score_mod": lambda s, b, h, i, j: s + x * (i - j)}),
    ],
    ids=["slopes", "captured"],
)
def test_what_is_no_argument_goes_through_transforms_too(several, use):
    q, k, v = leaves()
    many = vmap(lambda x: attention(q, k, v, **use(x)))(several)
    torch.testing.assert_close(many, torch.stack([attention(q, k, v, **use(x)) for x in several]))


def test_sdpa_can_be_mapped_over_masks():
    q, k, v = leaves()
    masks = torch.rand(3, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.7
    masks[..., 0] = True
    theirs = torch.nn.functional.scaled_dot_product_attention
    many = vmap(lambda m: sdpa(q, k, v, m, enable_gqa=True))(masks)
    torch.testing.assert_close(many, torch.stack([theirs(q, k, v, m, enable_gqa=True) for m in masks]))


def test_a_mask_is_not_made_of_what_a_transform_hides():
    q, k, v = leaves()
    with pytest.raises(MaskError) as caught:
        vmap(lambda m: attention(q, k, v, Dense(m)))(torch.ones(3, 5, 7, dtype=torch.bool))
    assert str(caught.value) == (
        "Dense got a tensor whose numbers a transform of torch.func hides, and a mask is read. Make the mask "
        "outside, or pass a bias that is 0 where a pair may attend and -inf elsewhere."
    )


def test_the_sdpa_backend_does_what_pytorch_does():
    q, k, v = leaves()
    torch.testing.assert_close(
        grad(lambda x: attention(x, k, v, backend="sdpa").sum())(q),
        grad(lambda x: attention(x, k, v, backend="torch").sum())(q),
    )


SAID = "inside torch.func transforms (grad, jacrev, vmap, jvp) and forward-mode differentiation"


def test_what_cannot_be_transformed_says_so():
    q, k, v = leaves()
    with pytest.raises(BackendError) as caught:
        jvp(lambda x: attention(x, k, v, backend="sdpa"), (q,), (q,))
    assert str(caught.value) == f"backend='sdpa' cannot run this call {SAID}. Use backend='torch'."
    with pytest.raises(BackendError, match=r"^backend='sdpa' cannot run this call inside torch\.func"):
        grad(lambda x: attention(x, k, v, Window(3), backend="sdpa").sum())(q)
    score = Additive(*(torch.randn(*shape, dtype=torch.float64) for shape in ((3, 4), (3, 4), (4,))))
    for use in (
        lambda f: grad(lambda x: f(x).sum())(q),
        lambda f: vmap(f)(torch.stack([q, q])),
        lambda f: jvp(f, (q,), (q,)),
    ):
        with pytest.raises(ScoreError) as caught:
            use(lambda x: attention(x, k, v, score=score))
        assert str(caught.value) == (
            f"Additive cannot be used {SAID}: its tile computes a gradient of its own. "
            "Use torch.autograd.grad, or a dot product."
        )


@pytest.mark.parametrize(
    "read",
    [lambda q, k, v: observe(q, k, v).out, lambda q, k, v: AttentionMap.of(q, k)[0]],
    ids=["observe", "AttentionMap.of"],
)
def test_a_map_cannot_be_read_inside_transforms(read):
    q, k, v = leaves()
    for use in (
        lambda: grad(lambda x: read(x, k, v).sum())(q),
        lambda: vmap(lambda x: read(x, k, v))(torch.stack([q, q])),
        lambda: jvp(lambda x: read(x, k, v), (q,), (q,)),
    ):
        with pytest.raises(BackendError) as caught:
            use()
        assert str(caught.value) == (
            f"a map cannot be read {SAID}, which hide its numbers. Call `attention` inside, and `observe` "
            "outside."
        )
