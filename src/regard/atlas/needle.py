"""`needle`: can a model find a sentence hidden in a long text, and which heads attend to it?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.atlas.anatomy import Anatomy, Callers
from regard.atlas.haystack import Haystack, Hidden, Needle
from regard.atlas.reading import read
from regard.atlas.results import plain, table_of
from regard.atlas.running import attending
from regard.engine import attention
from regard.errors import ModelError
from regard.models.bundled import sample_book, sample_text
from regard.models.call import AttentionCall

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["NeedleTest", "needle"]

NEEDLE = "The name of the old grey donkey that lived behind the mill was Barnaby Thistle."
QUESTION = "The name of the old grey donkey that lived behind the mill was"
# Up to this many tokens the bundled story is the haystack; longer texts use the bundled book.
STORY = 2000


@dataclass(frozen=True, repr=False)
class NeedleTest:
    """How well a model retrieves a sentence hidden at each depth, and which heads attend to it.

    The *queries* are the positions that predict the answer's tokens; the model reads the true answer. A
    head's `retrieval` is the weight that these queries give to the needle, Σ_j∈needle α_ij, the mean over
    them; `copying` counts only the answer's own tokens within the needle, and is 0 if the needle doesn't
    contain the answer word for word. Both are (depths, layers, heads), padded with NaN if layers have
    different numbers of heads. `chance` is the weight that an even spread gives to the needle.
    `log_probability` is that of the whole answer, in nats, by depth; `control` is the same in the same text
    without the needle.
    """

    needle: str
    question: str
    answer: str
    tokens: int
    answer_tokens: int
    layers: tuple[int, ...]
    depths: tuple[float, ...]
    places: tuple[float, ...]
    """The actual depths: each is rounded to the nearest end of a sentence."""
    log_probability: tuple[float, ...]
    control: float
    chance: float
    retrieval: Float[Tensor, "depths layers heads"]
    copying: Float[Tensor, "depths layers heads"]

    def heads(self, count: int = 5) -> list[tuple[int, int, float]]:
        """The heads with the most weight on the needle, over all depths: (layer, head, mean retrieval)."""
        mean = self.retrieval.nanmean(0)
        order = mean.nan_to_num(-1.0).flatten().argsort(descending=True)[:count]
        places = [divmod(int(place), mean.shape[1]) for place in order]
        return [(self.layers[row], head, float(mean[row, head])) for row, head in places]

    def to_dict(self) -> dict[str, Any]:
        """Plain data that `json.dumps` takes."""
        return plain(self)

    def table(self) -> Table:
        """Depth by depth, for Rich: the answer's log-probability and the best heads' retrieval."""
        best = self.heads(4)
        rows = [
            [
                f"{place:.0%}",
                f"{self.log_probability[number]:.2f}",
                f"{self.log_probability[number] - self.control:+.2f}",
                *(f"{self.retrieval[number, self.layers.index(layer), head]:.2f}" for layer, head, _ in best),
            ]
            for number, place in enumerate(self.places)
        ]
        columns = ["depth", "log p(answer)", "over control", *(f"{layer}.{head}" for layer, head, _ in best)]
        caption = (
            f"control, without the needle: {self.control:.2f} nats; columns like 6.3 are the retrieval of "
            f"layer 6 head 3, {self.chance:.3f} by chance"
        )
        return table_of(str(self), columns, rows, caption)

    def __repr__(self) -> str:
        return f"NeedleTest({self})"

    def __str__(self) -> str:
        mean = sum(self.log_probability) / len(self.log_probability)
        layer, head, score = self.heads(1)[0]
        return (
            f"{self.answer.strip()!r} at {len(self.depths)} depths of {self.tokens} tokens: "
            f"log p {mean:.2f}, {self.control:.2f} without the needle; layer {layer} head {head} gives it "
            f"{score:.0%}"
        )


def needle(
    model: Any,
    tokenizer: Any,
    *,
    haystack: str | None = None,
    needle: str = NEEDLE,
    question: str = QUESTION,
    answer: str | None = None,
    depths: int | Sequence[float] = 11,
    length: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> NeedleTest:
    """Hide a sentence at several depths of a text, ask for it at the end, and see which heads attend to it.

    The text is as much of `haystack` as fits into `length` tokens, or into the model's context. By default it
    is the bundled story, or the bundled book if `length` is over 2,000. The needle goes between two of its
    sentences, from the first (depth 0) to the last (1). After it come `question` and `answer`; by default the
    answer is what follows the question in the needle, so that a model without instruction tuning can still
    copy it.

    >>> from regard.models import bundled
    >>> test = needle(*bundled(), depths=3, length=400)
    >>> test.answer, min(test.log_probability) > test.control
    (' Barnaby Thistle', True)
    """
    hidden, fractions = Needle.of(needle, question, answer), _fractions(depths)
    if haystack is None:
        haystack = sample_text() if length is None or length <= STORY else sample_book()
    hay = Haystack(model, tokenizer, haystack, hidden, length)
    control, texts = hay.without(), [hay.at(depth) for depth in fractions]
    anatomy = Anatomy.of_text(model, control.ids)
    looker, chances = _NeedleWatcher(model, anatomy), []
    looks: dict[str, list[Tensor]] = {"needle": [], "source": []}
    with attending(model, looker):
        for done, text in enumerate([control, *texts]):
            looker.begin(text)
            chances.append(_log_probability(model, text))
            for name, found in looks.items() if text.needle else ():
                found.append(looker.stacked(name))
            if progress is not None:
                progress(done + 1, len(texts) + 1)
    return NeedleTest(
        needle=hidden.sentence,
        question=hidden.question,
        answer=hidden.answer,
        tokens=max(text.ids.shape[1] for text in texts),
        answer_tokens=len(texts[0].reply),
        layers=tuple(anatomy.heads),
        depths=fractions,
        places=tuple(text.place for text in texts),
        log_probability=tuple(chances[1:]),
        control=chances[0],
        chance=sum(len(text.needle) / text.reply.start for text in texts) / len(texts),
        retrieval=torch.stack(looks["needle"]),
        copying=torch.stack(looks["source"]),
    )


class _NeedleWatcher:
    """Hooks into a model's attention and reads the weight that the answer's queries give to the needle."""

    def __init__(self, model: Any, anatomy: Anatomy) -> None:
        self._callers = Callers(model, anatomy)
        self._text: Hidden | None = None
        self._seen: dict[str, dict[int, Tensor]] = {}

    def begin(self, text: Hidden) -> None:
        """Set the text of the next run."""
        self._text, self._seen = text, {"needle": {}, "source": {}}
        self._callers.begin()

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, None]:
        """Run one attention call unchanged, and read the weights of the answer's queries."""
        layer, text = self._callers.layer(module), self._text
        if text is not None and text.needle and layer is not None:
            # The position before a token is the one that predicts it.
            rows = slice(text.reply.start - 1, text.reply.stop - 1)
            weights = call.map[0, :, rows, text.needle].mean(1).cpu()
            inside = [place - text.needle.start for place in text.source]
            self._seen["needle"][layer] = weights.sum(-1)
            self._seen["source"][layer] = weights[:, inside].sum(-1)
        return attention(call.q, call.k, call.v, **call.options), None

    def stacked(self, name: str) -> Float[Tensor, "layers heads"]:
        """The weights of one run; layers with fewer heads than others are padded with NaN."""
        heads = self._callers.anatomy.heads
        rows, most = [self._seen[name][layer] for layer in heads], max(heads.values())
        pad = torch.nn.functional.pad
        return torch.stack([pad(row, (0, most - len(row)), value=torch.nan) for row in rows])


def _log_probability(model: Any, text: Hidden) -> float:
    """The log-probability of the whole answer, each token given those before it."""
    places = [place - 1 for place in text.reply]
    logits = read(model, text.ids, places, loss=False).logits[0].double()
    targets = text.ids[0, text.reply.start : text.reply.stop]
    return float(logits.log_softmax(-1).gather(1, targets[:, None]).sum())


def _fractions(depths: int | Sequence[float]) -> tuple[float, ...]:
    if isinstance(depths, int):
        found = torch.linspace(0, 1, depths, dtype=torch.float64).tolist() if depths > 0 else []
    else:
        found = [float(depth) for depth in depths]
    if not found or not all(0.0 <= depth <= 1.0 for depth in found):
        raise ModelError(f"depths is {depths!r}; wanted how many, at least 1, or fractions from 0 to 1.")
    return tuple(found)
