"""Induction: a head that finds what came next the last time.

    python examples/induction.py [--out DIR]

200 random tokens, said twice. The first time the next one cannot be guessed; the second time a model that
looks for the same token earlier on, and at what followed it, knows. The loss says that the bundled model
does, the atlas says which heads, and the map shows how: a stripe 199 keys back. Cut those heads and the
model forgets the trick.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import torch
from torch.nn import functional as F

import regard
from regard.models import bundled, record
from regard.plots import Inset, curves, overview

SAID = 200


def losses(model, ids: torch.Tensor) -> torch.Tensor:
    """The loss of each token, given those before it."""
    with torch.no_grad():
        logits = model(ids).logits
    return F.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")


def main(out: Path | None = None, said: int = SAID) -> dict[str, float]:
    """Say something twice, find the heads that notice, and cut them."""
    torch.manual_seed(0)
    folder = out or Path(tempfile.mkdtemp())
    model, tokenizer = bundled()
    words = torch.randint(10, model.config.vocab_size, (said,))
    ids = torch.cat([torch.tensor([tokenizer.bos_token_id]), words, words])[None]
    loss = losses(model, ids)
    first, second = loss[:said].mean().item(), loss[said:].mean().item()
    print(f"loss the first time {first:.2f} nats a token, the second time {second:.2f}")

    recording = record((model, tokenizer), ids)
    cards = sorted(recording.atlas().heads, key=lambda card: -card.score("induction"))
    print("the heads that notice:")
    for card in cards[:4]:
        print(f"  layer {card.layer} head {card.head}: induction {card.score('induction'):.2f}")

    best = cards[0]
    seen = recording.maps[best.layer]
    start = said + said // 5
    part = seen[0, best.head, start : start + 24, start - said : start - said + 24]
    figure = overview(
        seen.pooled(4, how="max")[0, best.head],
        (len(ids[0]), len(ids[0])),
        inset=Inset(part, start, start - said),
        title=f"Layer {best.layer} head {best.head}: {said} tokens, said twice",
    )
    figure.savefig(folder / "induction.png")

    noticing = [(card.layer, card.head) for card in cards if card.score("induction") > 0.25]
    cut = regard.knockout(model, ids, heads=noticing)
    others = [(card.layer, card.head) for card in cards[-len(noticing) :]]
    spared = regard.knockout(model, ids, heads=others)
    print(f"cut these {len(noticing)} heads: loss {cut.loss_before:.2f} → {cut.loss_after:.2f}", end="")
    print(f"; cut the {len(noticing)} that notice least: → {spared.loss_after:.2f}")
    figure = curves(
        {"loss": (range(1, len(loss) + 1), loss.tolist())},
        x_title="token",
        y_title="loss (nats)",
        title=f"The same {said} tokens, a second time",
    )
    figure.axes[0].get_legend().remove()
    figure.savefig(folder / "induction_loss.png")
    print(f"figures: {folder}")
    return {"first": first, "second": second, "cut": cut.loss_change, "spared": spared.loss_change}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
