"""Before attention: what a recurrent network remembers, and how far a gradient has to walk.

    python examples/before_attention.py [--out DIR]

A recurrent network squeezes what it has read into one state, step after step. How much of a sequence can be
read out of its last state? For each distance a line is fitted from states to inputs, and judged on
sequences it has not seen: near inputs come out, far ones are gone, and the R² of all distances together
can be no more than the state has numbers. The gradient walks the same way back and shrinks at every step.
Attention keeps all inputs and looks: one head that asks for a distance gets that input, and its gradient
arrives in one step from anywhere. Both networks are untrained; training moves the curve, not the limit.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch import nn

import regard
from regard.plots import curves

LENGTH, WIDTH = 64, 32
TRAIN, TEST = 4000, 1000


def states_of(network: nn.GRU, inputs: torch.Tensor) -> torch.Tensor:
    """The last state of the recurrent network, which is all that it hands on."""
    return network(inputs[..., None])[1][0]


def looked_up(inputs: torch.Tensor, distance: int) -> torch.Tensor:
    """What a head finds that asks for the input a distance back: keys are places, values are the inputs."""
    places = torch.eye(LENGTH, dtype=inputs.dtype)[None, None]
    query = places[:, :, -1 - distance, None].expand(len(inputs), 1, 1, LENGTH)
    keys = places.expand(len(inputs), 1, LENGTH, LENGTH)
    return regard.attention(query, keys, inputs[:, None, :, None], scale=50.0)[:, 0, 0, 0]


def explained(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """R²: the share of the variance that was found; below 0 counts as nothing."""
    return max(0.0, 1 - ((found - wanted) ** 2).mean().item() / wanted.var(correction=0).item())


def gradients(network: nn.GRU) -> tuple[list[float], list[float]]:
    """How much the last output changes with the input at each distance, for both, the nearest being 1."""
    inputs = torch.randn(64, LENGTH, dtype=torch.float64, requires_grad=True)
    (walked,) = torch.autograd.grad(states_of(network, inputs).sum(), inputs)
    jumped = []
    for distance in range(LENGTH):
        values = torch.randn(1, LENGTH, requires_grad=True)
        (slope,) = torch.autograd.grad(looked_up(values, distance).sum(), values)
        jumped.append(slope[0, -1 - distance].abs().item())
    sizes = walked.abs().mean(0).flip(0)
    return (sizes / sizes[0]).tolist(), jumped


def main(out: Path | None = None) -> dict[str, float]:
    """Fit, look up, send gradients back; print and draw."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    # In double precision: states hold far inputs in their last digits, and a line can read them there.
    network = nn.GRU(1, WIDTH, batch_first=True).double()
    inputs = torch.randn(TRAIN + TEST, LENGTH, dtype=torch.float64)
    with torch.no_grad():
        states = states_of(network, inputs)
        states = torch.cat([states, torch.ones(len(states), 1).double()], -1)
        fit = torch.linalg.lstsq(states[:TRAIN], inputs[:TRAIN]).solution
        read = states[TRAIN:] @ fit
        held = inputs[TRAIN:]
        remembered = [explained(read[:, -1 - d], held[:, -1 - d]) for d in range(LENGTH)]
        attended = [explained(looked_up(held, d), held[:, -1 - d]) for d in range(LENGTH)]
    walked, jumped = gradients(network)
    print("distance   remembered (R²)   looked up (R²)   gradient, recurrent   by attention")
    for d in (0, 1, 2, 4, 8, 16, 63):
        print(f"{d:8}   {remembered[d]:15.3f}   {attended[d]:14.3f}   {walked[d]:19.1e}   {jumped[d]:12.3f}")
    capacity = sum(remembered)
    print(f"all distances together: {capacity:.1f} in a state of {WIDTH}, {sum(attended):.1f} by attention")
    print(f"steps one after the other to read {LENGTH} inputs: {LENGTH} and 1")
    places = range(LENGTH)
    lines = {"state of a recurrent network": (places, remembered), "attention": (places, attended)}
    figure = curves(lines, x_title="distance", y_title="R²", title="What is left of an input")
    figure.savefig(folder / "before_attention.png")
    lines = {"recurrent": (places, walked), "attention": (places, jumped)}
    figure = curves(lines, x_title="distance", y_title="gradient", title="How far a gradient gets")
    figure.axes[0].set_yscale("log")
    figure.savefig(folder / "before_attention_gradient.png")
    print(f"figures: {folder}")
    return {"capacity": capacity, "attention": sum(attended), "walked": walked[-1], "jumped": jumped[-1]}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
