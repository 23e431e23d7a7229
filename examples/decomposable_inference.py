"""Decomposable attention decides what follows from a sentence, by aligning words alone.

    python examples/decomposable_inference.py [--steps 1000] [--out alignment.png]

Premises are clauses of the bundled story. A hypothesis keeps some of a premise's words, and says some of them
in other words (a heron is a bird); that far it follows. It contradicts once a word has become its opposite,
and it is open once a word is in it that the premise knows nothing of. The model compares each word with what
it is aligned with and adds up; word order it never sees. It is judged on clauses it was not trained on.
"""

from __future__ import annotations

import argparse
import random
import re
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.models import sample_text
from regard.nn import Decomposable
from regard.nn.classic import Inference
from regard.plots import heatmap

VERDICTS = ("follows", "contradicts", "open")
SAME = {"girl": "child", "heron": "bird", "badger": "animal", "cat": "animal", "kitten": "animal"}
SAME |= {"path": "road", "lane": "road", "boats": "ships", "evening": "dusk", "cloak": "coat", "ran": "moved"}
SAME |= {"supper": "food", "cake": "food", "wept": "cried", "began": "started", "wind": "air", "upon": "on"}
SAME |= {"grandfather": "man", "climbed": "moved", "lamp": "light", "river": "water", "hill": "height"}
OPPOSITES = ["up down", "in out", "before after", "she he", "her his", "nobody everybody", "every no"]
OPPOSITES += ["large small", "little great", "old young", "dark bright", "red green", "was wasn't", "i you"]
OPPOSITES += ["are aren't", "were weren't", "will won't", "came left", "went stayed", "have lack", "and or"]
OPPOSITES += ["lost found", "said denied", "blue yellow", "shut open", "all none", "to from", "had lacked"]
OPPOSITES += ["is isn't", "on off", "for against", "of without"]
OPPOSITE = {w: other for a, b in map(str.split, OPPOSITES) for w, other in ((a, b), (b, a))}


class Pair(NamedTuple):
    """Two sentences, how they relate, and for each word of the second the word of the first it comes from."""

    premise: list[str]
    hypothesis: list[str]
    verdict: int
    source: list[str | None]


class Result(NamedTuple):
    """Shares: the verdict is right; a changed word looks hardest at its source; it would do so by chance."""

    accuracy: float
    alignment: float
    chance: float


def clauses() -> list[list[str]]:
    """The story, cut at its punctuation."""
    pieces = re.split(r'[.,;:!?"\n]+', sample_text().lower().replace("mr.", "mr"))
    found = (re.findall(r"[a-z]+", piece) for piece in pieces)
    return [words for words in found if 4 <= len(words) <= 14]


def random_pair(premises: list[list[str]], rng: random.Random) -> Pair:
    """A hypothesis made by rule from one of the premises.

    Opposites are dealt out in the premise too, and words that are new come from another premise: no word of
    the hypothesis says by itself what the verdict is.
    """
    mine, other = rng.sample(premises, 2)
    premise = [OPPOSITE[w] if w in OPPOSITE and rng.random() < 0.5 else w for w in mine]
    kept = sorted(rng.sample(range(len(premise)), rng.randint(len(premise) // 2, len(premise))))
    source: list[str | None] = [premise[i] for i in kept]
    words = [SAME[w] if w in SAME and rng.random() < 0.5 else w for w in (premise[i] for i in kept)]
    known = {*premise, *(d[w] for d in (SAME, OPPOSITE) for w in premise if w in d)}
    against = [i for i, w in enumerate(source) if w in OPPOSITE and OPPOSITE[w] not in premise]
    new = [word for word in other if word not in known]
    verdict = rng.choice([0, *([1] if against else []), *([2] if new else [])])
    if verdict == 1:
        at = rng.choice(against)
        words[at] = OPPOSITE[premise[kept[at]]]
    elif verdict == 2:
        at = rng.randrange(len(words))
        words[at], source[at] = rng.choice(new), None
    return Pair(premise, words, verdict, source)


class Judge(nn.Module):
    """Word vectors, and decomposable attention over them."""

    def __init__(self, vocabulary: list[str], dim: int = 64) -> None:
        super().__init__()
        self.index = {word: i for i, word in enumerate(vocabulary)}
        self.vectors = nn.Embedding(len(vocabulary), dim)
        # Small at first: with scores that are large already, a word never looks at another than its equal.
        nn.init.normal_(self.vectors.weight, std=0.15)
        self.judge = Decomposable(dim, hidden=64, classes=3)

    def sentences(self, rows: list[list[str]]) -> tuple[Tensor, list[int]]:
        """Word vectors, padded at the end, and lengths."""
        ids = [torch.tensor([self.index[word] for word in row]) for row in rows]
        return self.vectors(nn.utils.rnn.pad_sequence(ids, batch_first=True)), [len(row) for row in rows]

    def forward(self, pairs: list[Pair]) -> Tensor:
        a, a_lengths = self.sentences([pair.premise for pair in pairs])
        b, b_lengths = self.sentences([pair.hypothesis for pair in pairs])
        return self.judge(a, b, a_lengths, b_lengths)

    def observe(self, pairs: list[Pair]) -> Inference:
        """The verdicts and both maps."""
        a, a_lengths = self.sentences([pair.premise for pair in pairs])
        b, b_lengths = self.sentences([pair.hypothesis for pair in pairs])
        return self.judge.observe(a, b, a_lengths, b_lengths)


def train(model: Judge, premises: list[list[str]], steps: int, rng: random.Random) -> None:
    """Train on hypotheses that are made anew in every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for step in range(1, steps + 1):
        pairs = [random_pair(premises, rng) for _ in range(32)]
        loss = nn.functional.cross_entropy(model(pairs), torch.tensor([pair.verdict for pair in pairs]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 or step == steps:
            print(f"step {step:4}  loss {loss.item():.3f}", flush=True)


def measure(model: Judge, pairs: list[Pair]) -> tuple[Result, Inference]:
    """How often the verdict is right, and how often a changed word looks hardest at the word it comes from.

    Words that stayed what they were are left out: equal vectors find each other before any training.
    """
    with torch.no_grad():
        seen = model.observe(pairs)
    verdicts = torch.tensor([pair.verdict for pair in pairs])
    looks = seen.back.map.dense()[:, 0].argmax(-1).tolist()
    found = [
        (pair.premise[look] == source, pair.premise.count(source) / len(pair.premise))
        for pair, row in zip(pairs, looks, strict=True)
        for word, source, look in zip(pair.hypothesis, pair.source, row, strict=False)
        if source not in (None, word)
    ]
    hit, chance = (sum(column) / len(found) for column in zip(*found, strict=True))
    return Result((seen.logits.argmax(-1) == verdicts).float().mean().item(), hit, chance), seen


def main(steps: int = 1000, out: Path | None = None) -> Result:
    """Train, measure on held-out clauses, and draw one pair."""
    torch.manual_seed(0)
    rng = random.Random(0)
    premises = clauses()
    rng.shuffle(premises)
    vocabulary = sorted({*(w for p in premises for w in p), *SAME.values(), *OPPOSITE})
    model = Judge(vocabulary)
    shown = ["the", "heron", "went", "down", "the", "old", "path"]
    told = ["the", "bird", "went", "up", "the", "path"]
    pairs = [Pair(shown, told, 1, ["the", "heron", "went", "down", "the", "path"])]
    pairs += [random_pair(premises[:30], rng) for _ in range(400)]
    untrained, _ = measure(model, pairs)
    train(model, premises[30:], steps, rng)
    result, seen = measure(model, pairs)
    commonest = max(Counter(pair.verdict for pair in pairs).values()) / len(pairs)
    print(
        f"verdicts right on held-out clauses: {result.accuracy:.1%} (always the commonest: {commonest:.1%})"
    )
    print(f"changed words that look hardest at their source: {result.alignment:.1%}", end=" ")
    print(f"(untrained {untrained.alignment:.1%}, chance {result.chance:.1%})")
    verdict = VERDICTS[int(seen.logits[0].argmax())]
    figure = heatmap(
        seen.back.map[0, 0, : len(told), : len(shown)],
        told,
        shown,
        title=f"Decomposable attention: {verdict}",
        row_title="hypothesis",
        column_title="premise",
    )
    out = out or Path(tempfile.mkdtemp()) / "decomposable.png"
    figure.savefig(out)
    print(f"figure: {out}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
