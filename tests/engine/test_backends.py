"""The Backend protocol: the engine names no backend, and a new one is one class and one line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

from engine.harness import qkv
from regard import attention, explain_dispatch, observe
from regard.engine import backends
from regard.engine.backend import Backend
from regard.engine.torch_backend.forward import forward
from regard.masks import Causal
from regard.stats import ColumnMass, Entropy

ENGINE = Path(backends.__file__).parent
NAMELESS = ["dispatch", "autograd", "observing", "second_pass", "attention", "transformed", "compat"]
FOLDERS = {"native", "sdpa_backend", "torch_backend", "triton"}
NAMES = {backend.name for backend in backends.REGISTRY}


def named_in(source: str) -> list[str]:
    """The backends that a module imports, or that a string of its code names."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("regard.engine"):
            parts = {*(node.module or "").split("."), *(alias.name for alias in node.names)}
            found += sorted(parts & FOLDERS)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            said = node.value.strip("'\"")
            found += [said] if said in NAMES or "backend='" in said else []
    return found


@pytest.mark.parametrize("name", NAMELESS)
def test_the_engine_around_backends_names_none_of_them(name):
    source = (ENGINE / f"{name}.py").read_text()
    # `sdpa` is also the name of PyTorch's function, which compat mirrors.
    assert [each for each in named_in(source) if (name, each) != ("compat", "sdpa")] == []


@pytest.mark.parametrize(
    "source",
    [
        "from regard.engine import native",
        "from regard.engine.triton.forward import vendor",
        "if backend == 'torch': pass",
        "raise E(f\"backend='sdpa' cannot\")",
    ],
)
def test_a_name_of_a_backend_is_found(source):
    assert len(named_in(source)) == 1


class Toy(Backend):
    """Nothing but a forward, for calls without a mask."""

    name = "toy"
    calls = 0

    def refusal(self, problem):
        return None if problem.mask is None else "toys know no masks"

    def forward(self, problem, riders):
        Toy.calls += 1
        return forward(problem, riders)


@pytest.fixture
def _toy(monkeypatch):
    monkeypatch.setattr(backends, "REGISTRY", (Toy(), *backends.REGISTRY))
    monkeypatch.setattr(Toy, "calls", 0)


@pytest.mark.usefixtures("_toy")
@pytest.mark.parametrize("name", ["auto", "toy"])
def test_a_new_backend_computes_attention_observations_and_gradients(name):
    torch.manual_seed(0)
    leaves = qkv(33, 35)
    assert explain_dispatch(**leaves, backend=name).backend == "toy"
    torch.testing.assert_close(attention(**leaves, backend=name), attention(**leaves, backend="torch"))
    asked = [Entropy(), ColumnMass()]
    seen, truth = (observe(**leaves, stats=asked, backend=each) for each in (name, "torch"))
    torch.testing.assert_close(seen.entropy, truth.entropy)
    torch.testing.assert_close(seen.column_mass, truth.column_mass)
    grown = [x.clone().requires_grad_() for x in leaves.values()]
    ours, theirs = (
        torch.autograd.grad(attention(*grown, backend=each).square().sum(), grown) for each in (name, "torch")
    )
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)
    assert Toy.calls == 3


@pytest.mark.usefixtures("_toy")
def test_what_a_new_backend_refuses_goes_to_the_next_or_is_refused_by_name():
    leaves = qkv(33, 33)
    assert explain_dispatch(**leaves, mask=Causal()).backend == "sdpa"
    with pytest.raises(Exception, match="backend='toy' cannot run this call: toys know no masks"):
        attention(**leaves, mask=Causal(), backend="toy")
    with pytest.raises(Exception, match="regard has 'auto', 'sdpa', 'torch', 'toy', 'triton'"):
        attention(**leaves, backend="nothing")
    assert Toy.calls == 0
