"""The block around attention: in a whole transformer, only attention moves anything between tokens.

    python examples/block.py [--out DIR]

A block is norm, attention, residual, norm, feed-forward, residual. One word of a text is changed, and the
residual stream of every token is compared before and after, layer by layer. With attention the change
spreads to the tokens behind it, and never to those before. With the output of attention set to zero, every
other part left as it is, it stays where it was put: norms, residuals and feed-forward layers work on one
token at a time. The second figure says what each part of a block adds to the stream.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from regard.models import bundled
from regard.plots import curves, heatmap, visible

BEFORE = "The old cat stood by the river and the lamp was lit."
AFTER = "The old king stood by the river and the lamp was lit."


@contextmanager
def without_attention(model) -> Iterator[None]:
    """Let every attention write zeros; what is around it stays."""
    hooks = [
        layer.self_attn.register_forward_hook(lambda _, given, out: (torch.zeros_like(out[0]), *out[1:]))
        for layer in model.model.layers
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def change(model, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
    """How far each token's stream moved, relative to its length, after the embedding and after each layer."""
    with torch.no_grad():
        was, now = (model(ids, output_hidden_states=True).hidden_states for ids in (before, after))
    moved = [(b - a).norm(dim=-1)[0] / a.norm(dim=-1)[0] for a, b in zip(was, now, strict=True)]
    return torch.stack(moved)


def added(model, ids: torch.Tensor) -> dict[str, list[float]]:
    """The mean length of what attention and feed-forward add, and of the stream they add it to, by layer."""
    sizes: dict[str, list[float]] = {"stream": [], "attention": [], "feed-forward": []}

    def size(name: str, tensor: torch.Tensor) -> None:
        sizes[name].append(tensor.norm(dim=-1).mean().item())

    hooks = []
    for layer in model.model.layers:
        hooks.append(layer.register_forward_pre_hook(lambda _, given: size("stream", given[0])))
        hooks.append(layer.self_attn.register_forward_hook(lambda _, given, out: size("attention", out[0])))
        hooks.append(layer.mlp.register_forward_hook(lambda _, given, out: size("feed-forward", out)))
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    return sizes


def main(out: Path | None = None) -> dict[str, float]:
    """Change a word with and without attention; print and draw where it shows."""
    folder = out or Path(tempfile.mkdtemp())
    model, tokenizer = bundled()
    before, after = (tokenizer(text, return_tensors="pt")["input_ids"] for text in (BEFORE, AFTER))
    place = int((before != after).nonzero()[0, 1])
    words = [visible(tokenizer.decode([token])) for token in before[0].tolist()]
    with_it = change(model, before, after)
    with without_attention(model):
        alone = change(model, before, after)
    print(f"{words[place]!r} at place {place} becomes {tokenizer.decode(after[0, place : place + 1])!r}")
    print("tokens that change at the top:")
    print(
        f"  with attention     {int((with_it[-1] > 0).sum())} of {len(words)}, none before place {place}: ",
        end="",
    )
    print(bool((with_it[-1, :place] == 0).all()))
    print(f"  attention silenced {int((alone[-1] > 0).sum())}, at place {int(alone[-1].argmax())}")
    rows = ["embedding", *(f"layer {layer}" for layer in range(len(with_it) - 1))]
    for name, moved in (("block", with_it), ("block_silenced", alone)):
        title = "Where a changed word shows" + (", attention silenced" if moved is alone else "")
        figure = heatmap(moved, rows, words, annotate=False, title=title, row_title="", column_title="token")
        figure.savefig(folder / f"{name}.png", dpi=110)
    sizes = added(model, before)
    print("layer   stream   attention adds   feed-forward adds")
    for layer, (stream, attention, forward) in enumerate(zip(*sizes.values(), strict=True)):
        print(f"{layer:5}   {stream:6.1f}   {attention:14.1f}   {forward:17.1f}")
    lines = {name: (range(len(size)), size) for name, size in sizes.items()}
    figure = curves(lines, x_title="layer", y_title="mean length", title="What a block adds to the stream")
    figure.savefig(folder / "block_parts.png")
    print(f"figures: {folder}")
    return {"with": int((with_it[-1] > 0).sum()), "silenced": int((alone[-1] > 0).sum()), "place": place}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
