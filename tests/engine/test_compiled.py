"""`torch.compile`, `torch.export` and fake tensors: a call is one operator of the graph."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from jaxtyping import config as jaxtyping_config
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch._dynamo.utils import counters
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import regard
from regard import Causal, Chunk, Dense, Documents, Padding, Prefix, Where, Window, attention
from regard.engine.operators.library import attention_operator
from regard.engine.operators.packing import Packed, pack, unpack
from regard.errors import BackendError
from regard.masks import (
    BigBird,
    Global,
    Longformer,
    Mask,
    Not,
    RandomBlocks,
    StreamingSinks,
    Strided,
)
from regard.scores import Additive, ALiBi, Bias, General, RelativeBias, Score

SOME = torch.tensor([True, False, True, True])


@dataclass(frozen=True)
class Near(Mask):
    """A mask of one's own that is a value."""

    most: int

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q - k).abs() <= self.most


class Odd(Mask):
    """A mask of one's own that nothing is known about."""

    def allows(self, q: Tensor, k: Tensor) -> Tensor:
        return (q + k) % 2 == 1


def near(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q - k).abs() <= h + 1


def bent(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return score * 1.5 - (q - k).abs() * 0.1


MASKS: dict[str, Callable[[int], Mask | None]] = {
    "none": lambda n: None,
    "causal": lambda n: Causal(),
    "shifted": lambda n: Causal(shift=1),
    "and": lambda n: Causal() & Window(4),
    "or": lambda n: Causal() | Global(2),
    "not": lambda n: Not(Causal()),
    "chunk": lambda n: Chunk(4),
    "dense": lambda n: Dense((torch.arange(n)[:, None] + torch.arange(n)) % 3 != 0),
    "by head": lambda n: Dense(
        (torch.arange(2)[None, :, None, None] + torch.arange(n)).expand(1, 2, n, n) % 2 == 0
    ),
    "documents": lambda n: Causal() & Documents(ids=torch.arange(n) // 5),
    "padding": lambda n: Padding(torch.arange(n) < n - 2),
    "prefix": lambda n: Causal() | Prefix(3),
    "random": lambda n: RandomBlocks(2, 2, 64),
    "strided": lambda n: Strided(3),
    "window": lambda n: Window(n // 2),
    "where": lambda n: Where(near),
    "big bird": lambda n: BigBird(2, 64),
    "longformer": lambda n: Longformer(4, 1),
    "sinks": lambda n: StreamingSinks(2, 4),
    "own value": lambda n: Near(2),
    "own": lambda n: Causal() & Odd(),
}

# With parameters, with tensors, with a function, and put together. All of them take a minute.
FEW = ["and", "documents", "where", "own value"]
some_masks = pytest.mark.parametrize(
    "names", [FEW, pytest.param([*MASKS], marks=pytest.mark.slow)], ids=["few", "all"]
)


# Compilers warn about PyTorch's own code.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _fresh():
    """No graph of another test, and constructors as they are outside of tests: compilers see their checks."""
    torch._dynamo.reset()
    counters.clear()
    before = jaxtyping_config.jaxtyping_disable
    jaxtyping_config.update("jaxtyping_disable", True)
    yield
    jaxtyping_config.update("jaxtyping_disable", before)
    torch._dynamo.reset()


def inputs(n: int, heads: int = 2, kv_heads: int | None = None) -> list[Tensor]:
    torch.default_generator.manual_seed(n)
    sizes = (heads, kv_heads or heads, kv_heads or heads)
    return [torch.randn(2, size, n, 8, requires_grad=True) for size in sizes]


def compiled(function: Callable[..., Tensor], backend: str = "aot_eager", dynamic: bool | None = True):
    return torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)


def check_equal(
    function: Callable[..., Tensor], given, *rest, compiled=None, learns=(), tolerance=0.0
) -> None:
    """The compiled function's output and gradients are those of the function, to the bit unless said."""
    found, wanted = [], []
    for call, into in ((compiled, found), (function, wanted)):
        torch.default_generator.manual_seed(0)
        out = call(*given, *rest)
        into += [out, *torch.autograd.grad(out.square().sum(), [*given, *learns], materialize_grads=True)]
    for place, (got, want) in enumerate(zip(found, wanted, strict=True)):
        assert torch.allclose(got, want, rtol=tolerance, atol=tolerance), place


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


@some_masks
def test_every_mask_made_outside_is_one_graph_for_every_length(names):
    def every(q, k, v, *masks):
        return torch.stack([attention(q, k, v, mask) for mask in masks])

    run = compiled(every)
    for n in (14, 21):
        check_equal(every, inputs(n), *[MASKS[name](n) for name in names], compiled=run)
    assert graphs() == 1


@some_masks
def test_every_mask_made_inside_is_one_graph_for_every_length(names):
    def every(q, k, v):
        return torch.stack([attention(q, k, v, MASKS[name](q.shape[2])) for name in names])

    run = compiled(every)
    for n in (14, 21):
        check_equal(every, inputs(n), compiled=run)
    assert graphs() == 1


def test_lengths_and_widths_that_change_compile_once_more_and_then_no_more():
    def call(q, k, v, mask):
        return attention(q, k, v, mask)

    run = compiled(call, dynamic=None)
    for n, width in ((14, 3), (15, 3), (21, 3), (22, 4), (23, 5), (30, 6), (31, 9)):
        check_equal(call, inputs(n), Causal() & Window(width), compiled=run)
    assert graphs() == 3


def test_another_kind_of_mask_is_never_taken_for_the_first():
    run = compiled(attention, backend="eager")
    given = inputs(9)
    for mask in (
        Causal(),
        Window(2),
        Causal() & Window(2),
        Causal() | Window(2),
        None,
        Where(near),
        Where(near_2),
    ):
        assert torch.equal(run(*given, mask), attention(*given, mask))


def near_2(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return (q - k).abs() <= 2


def test_masks_with_tensors_follow_what_is_in_them():
    run = compiled(lambda q, k, v, valid: attention(q, k, v, Padding(valid)))
    q, k, v = (x[:, :, :4].detach() for x in inputs(9))
    valid = SOME.clone()
    for _ in range(2):
        assert torch.equal(run(q, k, v, valid), attention(q, k, v, Padding(valid)))
        valid[1], valid[3] = True, False


@pytest.mark.long
def test_options_are_part_of_the_graph_and_learn():
    parameter = torch.nn.Parameter
    slopes, table, sink = (
        parameter(torch.tensor([0.5, 0.1])),
        parameter(torch.randn(2, 16)),
        parameter(SOME[:2] + 0.5),
    )
    weight, dense = parameter(torch.randn(8, 8) * 0.3), parameter(torch.randn(2, 1, 1))
    hidden = [parameter(torch.randn(8, 4)), parameter(torch.randn(8, 4)), parameter(torch.randn(4))]

    def every(q, k, v):
        kinds = [
            attention(q, k, v, Causal(), bias=ALiBi(slopes)),
            attention(q, k, v, Causal(), bias=RelativeBias(table)),
            attention(q, k, v, Causal(), bias=dense, sink=sink),
            attention(q, k, v, Window(3), score=General(weight)),
            attention(q, k, v, Causal(), score=Additive(*hidden)),
            attention(q, k, v, Causal(), softcap=3.0, scale=0.2),
            attention(q, k, v, Causal(), score_mod=bent, backend="torch"),
            attention(q, k, v, Causal(), dropout=0.5),
            regard.sdpa(q, k, v, is_causal=True),
            attention(q[0], k[0], v[0], is_causal=True).expand_as(q),
            attention(q[0, 0], k[0, 0], v[0, 0]).expand_as(q),
        ]
        return torch.stack(kinds)

    run = compiled(every)
    for n in (13, 18):
        check_equal(every, inputs(n), compiled=run, learns=[slopes, table, dense, sink, weight, *hidden])
    assert graphs() == 1


def test_grouped_heads_and_half_precision_compile():
    def call(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return attention(q, k, v, Causal() & Window(5)).float()

    check_equal(call, inputs(17, heads=4, kv_heads=2), compiled=compiled(call))


def test_a_decode_step_is_one_graph_as_the_cache_grows():
    def step(q, k, v):
        return attention(q, k, v, Causal() & Window(6))

    run = compiled(step)
    with torch.no_grad():
        for n in (11, 12, 19):
            q, k, v = inputs(n)
            assert torch.equal(run(q[:, :, -1:], k, v), step(q[:, :, -1:], k, v))
    assert graphs() == 1


@pytest.mark.long
def test_inductor_runs_it_between_its_own_kernels():
    def call(q, k, v):
        return attention(q * 2, k, v, Causal() & Window(4)).transpose(1, 2).flatten(2).relu()

    run = compiled(call, backend="inductor", dynamic=False)
    given = inputs(12)
    assert torch.allclose(run(*given), call(*given), rtol=1e-6, atol=1e-6)


class Layer(torch.nn.Module):
    def __init__(self, mask: Mask) -> None:
        super().__init__()
        self.project, self.mask = torch.nn.Linear(16, 16), mask

    def forward(self, x: Tensor) -> Tensor:
        y = self.project(x).unflatten(-1, (2, 8)).transpose(1, 2)
        return attention(y, y, y, self.mask).transpose(1, 2).flatten(2)


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_is_saved_and_read_and_runs_at_other_lengths(strict):
    layer = Layer(Causal() & Window(3) & Where(near))
    length = torch.export.Dim("length", min=4, max=64)
    program = torch.export.export(
        layer, (torch.randn(1, 12, 16),), dynamic_shapes=({1: length},), strict=strict
    )
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again = torch.export.load(file).module()
    x = torch.randn(1, 33, 16)
    assert torch.equal(again(x), layer(x))
    again(x).sum().backward()
    layer(x).sum().backward()
    for got, want in zip(again.parameters(), layer.parameters(), strict=True):
        assert torch.equal(got.grad, want.grad)


def test_a_program_that_was_exported_without_gradients_says_so():
    with torch.no_grad():
        program = torch.export.export(Layer(Causal()), (torch.randn(1, 12, 16),))
    out = program.module()(torch.randn(1, 12, 16))
    with pytest.raises(
        BackendError, match=r"traced where nothing needed a gradient.*outside of torch\.no_grad"
    ):
        out.sum().backward()


def test_fake_tensors_have_the_shape_and_nothing_is_computed():
    with FakeTensorMode():
        q = torch.empty(2, 4, 1_000_000, 8, dtype=torch.bfloat16)
        out = attention(q, q[:, :2], q[:, :2, :, :6], Causal())
    assert out.shape == (2, 4, 1_000_000, 6)
    assert out.dtype == torch.bfloat16


def test_make_fx_records_the_operator():
    graph = make_fx(lambda q: attention(q, q, q, Causal()))(torch.randn(1, 1, 5, 4))
    assert torch.ops.regard.attention.default in [node.target for node in graph.graph.nodes]


def test_the_operator_passes_the_checks_of_pytorch():
    packed = Packed()
    mask = pack(Causal() & Window(3), packed)
    form = pack((None, None, 2.0, None, regard.scores.DotProduct(), None, 0.0), packed)
    q, k, v = inputs(7)
    given = q, k, v, [], [], None, packed.numbers, packed.reals, form, mask, "auto", [True, True, True]
    torch.library.opcheck(attention_operator, given)


@pytest.mark.parametrize("transform", ["grad", "vmap", "jvp"])
def test_a_transform_in_compiled_code_is_refused_in_one_sentence(transform):
    q, k, v = (x.detach() for x in inputs(6))
    calls = {
        "grad": lambda: torch.func.grad(lambda x: attention(x, k, v).sum())(q),
        "vmap": lambda: torch.func.vmap(lambda x: attention(x, k[0], v[0]))(q),
        "jvp": lambda: torch.func.jvp(lambda x: attention(x, k, v), (q,), (q,))[1],
    }
    with pytest.raises(Unsupported, match=r"regard\.attention inside torch\.func transforms"):
        compiled(calls[transform])()
    if transform == "vmap":
        # Without fullgraph the call is left to Python. (PyTorch cannot resume inside of grad.)
        torch._dynamo.reset()
        assert torch.equal(torch.compile(calls[transform], backend="eager")(), calls[transform]())


def test_what_cannot_be_called_later_is_refused_with_the_remedy():
    class Doubled(Score):
        def tile(self, q, k, *parameters):
            return 2 * q @ k.mT

    doubled = Doubled()
    given = inputs(5)
    with pytest.raises(Unsupported, match="make a score function a frozen dataclass"):
        compiled(lambda q, k, v: attention(q, k, v, score=doubled))(*given)
    with pytest.raises(Unsupported, match="define a score_mod outside of the compiled code"):
        compiled(lambda q, k, v: attention(q, k, v, score_mod=lambda s, b, h, i, j: s + 1))(*given)


def test_functions_and_biases_of_the_compiled_code_become_tensors_of_the_graph():
    class Step(Bias):
        def tile(self, q_pos, k_pos):
            return (q_pos[:, None] - k_pos >= 3) * 0.5

    step = Step()

    def call(q, k, v, ids):
        return attention(q, k, v, Where(lambda b, h, i, j: ids[i] == ids[j]) & Causal(), bias=step)

    run = compiled(call)
    for n in (14, 21):
        check_equal(call, inputs(n), torch.arange(n) // 4, compiled=run, tolerance=1e-5)
    assert graphs() == 1


def test_a_function_without_a_name_is_of_its_process():
    packed = Packed()
    form = pack(Where(lambda b, h, q, k: q >= k), packed)
    assert unpack(form, packed).draw(2) == Causal().draw(2)
    process = form.split("=")[1].split("#")[0]
    with pytest.raises(BackendError, match="define it at the top of a module that can be imported"):
        unpack(form.replace(process, "0" * len(process)), Packed(numbers=packed.numbers))


@pytest.mark.parametrize("name", [name for name in MASKS if name != "own"])
def test_a_packed_mask_is_the_mask(name):
    mask, packed = MASKS[name](12), Packed()
    again = unpack(pack(mask, packed), packed)
    assert (mask is None and again is None) or torch.equal(again.dense(12), mask.dense(12))


def test_scales_may_be_infinitely_wrong_and_are_refused_when_they_run():
    with pytest.raises(regard.errors.ScoreError, match="scale is inf"):
        compiled(lambda q, k, v: attention(q, k, v, scale=math.inf))(*inputs(5))


def test_an_observation_in_compiled_code_is_left_to_python():
    def entropy(q, k, v):
        return regard.observe(q * 1, k, v, Causal()).entropy * 2

    given = inputs(7)
    with pytest.raises(Unsupported, match="call it outside of the compiled function"):
        compiled(entropy)(*given)
    torch._dynamo.reset()
    assert torch.equal(torch.compile(entropy, backend="aot_eager")(*given), entropy(*given))


def in_export(function: Callable[..., Tensor], *given: Tensor) -> None:
    class Calls(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    torch.export.export(Calls(), given)


def in_fake_mode(function: Callable[..., Tensor], *given: Tensor) -> None:
    with FakeTensorMode() as fake:
        function(*map(fake.from_tensor, given))


@pytest.mark.parametrize("how", [in_export, lambda f, *given: make_fx(f)(*given), in_fake_mode])
@pytest.mark.parametrize(
    "read", [lambda q, k, v: regard.observe(q, k, v).out, lambda q, k, v: regard.AttentionMap.of(q, k)[0]]
)
def test_a_map_of_tensors_that_are_traced_or_fake_is_refused_in_one_sentence(how, read):
    with pytest.raises(BackendError) as caught:
        how(read, *(x.detach() for x in inputs(7)))
    assert str(caught.value) == (
        "a map cannot be read while a program is exported or traced, nor of fake tensors, which hold no "
        "numbers. Call `attention` inside, and `observe` outside."
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("call", [attention, regard.sdpa, lambda q, k, v: regard.observe(q, k, v).out])
def test_the_tracer_of_torchscript_is_refused_with_the_remedy(call):
    with pytest.raises(BackendError, match=r"torch\.jit\.trace cannot follow regard.* Use torch\.export"):
        torch.jit.trace(call, tuple(x.detach() for x in inputs(7)))
