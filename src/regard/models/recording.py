"""`Recording`: the attention maps, tokens and statistics of one run of a model over a text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from regard.cards import Atlas
from regard.errors import RecordingError
from regard.extension import extension_point
from regard.models.identity import ModelIdentity
from regard.models.layer import Layer
from regard.models.passages import Passage
from regard.models.pictures import Picture
from regard.models.rounding import Rounded
from regard.models.sites import Site
from regard.models.sizes import spoken
from regard.models.stack import Maps, Stack
from regard.models.tokens import Token, tokens_of

if TYPE_CHECKING:
    import numpy as np
    import pandas
    import pyarrow
    from matplotlib.figure import Figure

__all__ = ["Recording"]

# The stack that `recording.maps` returns if a model has several, by preference.
MAIN = ("decoder", "encoder", "vision", "audio", "cross", "pooling", "predicting")


class Recording:
    """The maps, statistics and tokens of one run of a model. `watch` makes it, `Recording.open` reads it.

    `layers` and `maps` belong to the main stack; a model with several stacks also has `encoder`, `decoder`,
    `cross`, `vision`, `audio`, `pooling` or `predicting`. `complete` is False for a recording on disk that
    was cut short.
    """

    def __init__(self, model: ModelIdentity) -> None:
        self.model = model
        self.tokenizer: str | None = None
        self.texts: list[str] | None = None
        """The text of each row of the batch, if known."""
        self.complete = True
        self.path: Path | None = None
        self.token_ids: dict[str, Int[Tensor, "batch n"]] = {}
        self.pictures: list[Picture] = []
        """The images that `record` was given, and the spectrogram of the sound; small."""
        self.cleared: Callable[[], None] | None = None
        """Called when a new text begins, so that the writer starts over too."""
        self._layers: list[Layer] = []
        self._tokenizer: Any = None
        self._spans: Sequence[Sequence[tuple[int, int]]] | None = None
        self._tokens: dict[str, list[list[Token]]] = {}
        self._passages: dict[str, list[list[Passage]]] = {}

    @classmethod
    def of(cls, model: Any, within: Any = None) -> Recording:
        """An empty recording of a model; `within` is its wrapper, if any."""
        return cls(ModelIdentity.of(model, within))

    @staticmethod
    @extension_point
    def open(path: str | Path) -> Recording:
        """Read a recording. Its tensors are read, and their checksums verified, on first access.

        A recording that was cut short opens with the layers it has; then `recording.complete` is False.
        """
        ...

    @extension_point
    def save(
        self,
        path: str | Path,
        *,
        resume: bool = False,
        overwrite: bool = False,
        keys: str | None = None,
        queries: str | None = None,
    ) -> None:
        """Write the recording to a folder; after a crash `resume=True` completes a partial one.

        If the folder holds a recording already, this raises; with `overwrite=True` the old one is replaced
        once the new one is complete.

        Before writing, `recording.nbytes` is compared with the free disk space; if it doesn't fit, this
        raises.

        `keys="bf16"` or `"fp8"` writes keys in 16 or 8 bits, `queries` does so with queries, and `rounded`
        says how far weights are from the exact ones.
        """
        ...

    @property
    def rounded(self) -> Rounded | None:
        """How keys and queries were rounded on disk, in the layer whose weights differ most."""
        found = [layer.rounded for layer in self._layers if layer.rounded is not None]
        return max(found, key=lambda rounded: rounded.largest, default=None)

    @property
    def text(self) -> str | None:
        """The text that was read, the first of a batch; None if only token ids are known."""
        return self.texts[0] if self.texts else None

    @text.setter
    def text(self, text: str | None) -> None:
        self.texts = None if text is None else [text]

    @property
    def stacks(self) -> dict[str, Stack]:
        """Every recorded stack, by its role."""
        return {role: self.stack(role) for role in MAIN if any(layer.role == role for layer in self._layers)}

    @property
    def layers(self) -> Stack:
        """The layers of the main stack: the decoder of an encoder-decoder, else the text."""
        if not self._layers:
            raise RecordingError("nothing was recorded yet; run the model inside the watch block.")
        return next(iter(self.stacks.values()))

    @property
    def maps(self) -> Maps:
        """The attention maps of the main stack, by layer number."""
        return self.layers.maps

    @property
    def encoder(self) -> Stack:
        return self._stack_or_raise("encoder")

    @property
    def decoder(self) -> Stack:
        return self._stack_or_raise("decoder")

    @property
    def cross(self) -> Stack:
        return self._stack_or_raise("cross")

    @property
    def vision(self) -> Stack:
        return self._stack_or_raise("vision")

    @property
    def audio(self) -> Stack:
        return self._stack_or_raise("audio")

    @property
    def pooling(self) -> Stack:
        """Pooling heads: queries of their own attend to the tokens or patches, and summarise them."""
        return self._stack_or_raise("pooling")

    @property
    def predicting(self) -> Stack:
        """Streams beside the text in which ProphetNet and XLNet predict tokens."""
        return self._stack_or_raise("predicting")

    @property
    def all_layers(self) -> list[Layer]:
        """All layers of all stacks, in the order in which they ran."""
        return list(self._layers)

    @property
    def nbytes(self) -> int:
        """The size of all tensors in bytes; saving writes this and a small manifest."""
        return sum(layer.nbytes for layer in self._layers)

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the first text of the batch; this needs a tokenizer, see `attach`."""
        return self.batch_tokens[0]

    @property
    def batch_tokens(self) -> list[list[Token]]:
        """The tokens of every text of the batch; for an encoder-decoder, those of the decoder."""
        return self.tokens_of("decoder" if "decoder" in self.token_ids else "encoder")

    def tokens_of(self, role: str) -> list[list[Token]]:
        """The tokens of every text that one side read: "encoder" or "decoder"; cross-attention has both."""
        if role not in self._tokens:
            self._tokens[role] = self._tokenized(role)
        return self._tokens[role]

    @property
    def passages(self) -> list[Passage]:
        """Named ranges of `tokens`: the messages of a chat, the tokens of an image.

        `SegmentMass` and knock-outs take `passage.tokens`, a range.
        """
        return next(iter(self.passages_of("decoder" if "decoder" in self.token_ids else "encoder")), [])

    def passages_of(self, role: str) -> list[list[Passage]]:
        """The passages of every text that one side read; those of a sound belong to the encoder."""
        return self._passages.get(role, [])

    def note_passages(self, role: str, passages: Sequence[Sequence[Passage]]) -> None:
        """Store the passages of every text that one side reads."""
        if any(passages):
            self._passages[role] = [list(row) for row in passages]

    @extension_point
    def alone(self, row: int = 0, stack: str | None = None) -> Recording:
        """The recording of one text of the batch, without other texts and padding.

        `stack` restricts it to one stack. docs/atlas.md says how padding is recognised.
        """
        ...

    def stat(self, name: str) -> Any:
        """One statistic of all layers of the main stack: (layers, batch, heads, ...)."""
        return self.layers.stat(name)

    def attach(
        self, tokenizer: Any, text: str | Sequence[str] | None = None, spans: Sequence[Any] | None = None
    ) -> Recording:
        """Attach a tokenizer, and the text that the token ids came from; `recording.tokens` uses both.

        For an encoder-decoder, `text` is the encoder's; for a batch, one text per row. `spans` gives the
        start and stop of each token in the text, per text of a batch; without it the text is tokenized again.
        """
        if isinstance(text, str):
            text, spans = [text], None if spans is None else [spans]
        self.texts = None if text is None else list(text)
        self._tokenizer, self._spans, self._tokens = tokenizer, spans, {}
        self.tokenizer = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        return self

    @extension_point
    def atlas(self, progress: Callable[[int, int], None] | None = None) -> Atlas:
        """The atlas of all heads: their statistics, and a score for each kind of head.

        `progress(done, total)` is called after every layer.
        """
        ...

    @extension_point
    def plot_image(
        self,
        picture: Any,
        layer: int | None = None,
        head: int | None = None,
        query: Any = None,
        image: int = 1,
        ax: Any = None,
    ) -> Figure:
        """Plot the image that was read, overlaid with the weights from one token to its patches.

        `query` is a word of the text, a patch, or a token's number; without a layer or a head, the mean over
        them. The options are those of `regard.models.plot_image`.
        """
        ...

    @extension_point
    def show(self, **options: Any) -> Any:
        """Show the deep-zoom map and the text, as a widget in a notebook.

        The options are those of `regard.viewer.show`; `regard view x.regard` opens a saved recording in a
        browser.
        """
        ...

    @extension_point
    def to_numpy(self) -> dict[str, np.ndarray]:
        """Token ids and every statistic as arrays, named such as `decoder.3.entropy`."""
        ...

    @extension_point
    def to_pandas(self) -> pandas.DataFrame:
        """One row for each layer, batch row, head and query: its token, and every row statistic."""
        ...

    @extension_point
    def to_arrow(self) -> pyarrow.Table:
        """The rows of `to_pandas` as an Arrow table."""
        ...

    @extension_point
    def to_parquet(self, path: str | Path) -> None:
        """The rows of `to_pandas` as a Parquet file."""
        ...

    @extension_point
    def to_zarr(self, path: str | Path, *, chunk: int = 512) -> None:
        """Write maps, statistics and token ids to a new Zarr group; maps tile by tile."""
        ...

    @extension_point
    def to_safetensors(self, path: str | Path) -> None:
        """The arrays of `to_numpy` as one safetensors file; `save` keeps queries and keys, too."""
        ...

    @extension_point
    def to_attentions(self, stack: str | None = None) -> tuple[Tensor, ...]:
        """The maps as tensors (batch, heads, q, k), one per layer, like `outputs.attentions` of transformers.

        BertViz and CircuitsVis can draw them. Long maps are refused, because all of their cells are computed.
        """
        ...

    @extension_point
    def _repr_html_(self) -> str:
        """The HTML that a notebook shows."""
        ...

    def check_model(self, model: Any) -> None:
        """Raise RecordingError unless this is the model that was recorded, with the same weights."""
        now = ModelIdentity.of(model)
        if now.fingerprint != self.model.fingerprint:
            raise RecordingError(
                f"the recording is of {self.model.kind} {self.model.name!r} and this is {now.kind} "
                f"{now.name!r} with another config or other weights; what it computes now is not what was "
                "recorded. Load the model that was recorded, or record again."
            )

    def stack(self, role: str) -> Stack:
        """The layers of one role; empty if the model has none."""
        return Stack(role, {layer.index: layer for layer in self._layers if layer.role == role})

    def find(self, site: Site) -> Layer | None:
        """The layer recorded at a site, if there is one."""
        return next((layer for layer in self._layers if layer.site == site), None)

    def put(self, layer: Layer) -> None:
        """Store a layer, replacing the one at the same site."""
        for place, other in enumerate(self._layers):
            if other.site == layer.site:
                self._layers[place] = layer
                return
        self._layers.append(layer)

    def arrange(self, place: Callable[[Site], int]) -> None:
        """Sort the layers by the place of their sites."""
        self._layers.sort(key=lambda layer: place(layer.site))

    def clear(self) -> None:
        """Drop everything about the text: a new one begins."""
        self._layers, self.token_ids, self._tokens = [], {}, {}
        if self.cleared is not None:
            self.cleared()

    def note_tokens(self, role: str, ids: Any, past: int) -> None:
        """Store the ids that a pass reads, after the `past` ids of earlier passes."""
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
            return
        ids, before = ids.detach().cpu(), self.token_ids.get(role)
        if past and before is not None and before.shape[0] == ids.shape[0] and before.shape[1] >= past:
            # Without a cache a pass reads all tokens again; with a cache, only new ones.
            ids = torch.cat([before[:, :past], ids], 1)
        self.token_ids[role] = ids
        self._tokens = {}

    def restore_tokens(self, tokens: list[list[Token]], role: str = "decoder") -> None:
        """Set the tokens that were read from disk."""
        self._tokens[role] = tokens

    @property
    def reader(self) -> str:
        """The side that read `text`: the encoder if there is one, else the decoder."""
        return "encoder" if "encoder" in self.token_ids else "decoder"

    def _tokenized(self, role: str) -> list[list[Token]]:
        if self._tokenizer is None:
            raise RecordingError(
                "no tokenizer was given, so token ids have no text; recording.attach(tokenizer, text) gives "
                "them one."
            )
        ids = self.token_ids.get(role)
        if ids is None:
            raise RecordingError("the model was not run on token ids, so there are no tokens to show.")
        texts, spans = (self.texts or [], self._spans or []) if role == self.reader else ([], [])
        known = zip_longest(ids.tolist(), texts[: len(ids)], spans[: len(ids)])
        return [tokens_of(self._tokenizer, *row) for row in known]

    def _stack_or_raise(self, role: str) -> Stack:
        stacks = self.stacks
        if role not in stacks:
            known = ", ".join(stacks) or "none"
            raise RecordingError(f"the recording has no {role}; its stacks are: {known}.")
        return stacks[role]

    def __repr__(self) -> str:
        ids = next(iter(self.token_ids.values()), None)
        tokens = "" if ids is None else f", {ids.shape[1]} tokens"
        partial = "" if self.complete else ", partial"
        size = spoken(self.nbytes) if self.path is None else str(self.path)
        rounded = "" if self.rounded is None else f", {self.rounded}"
        return f"Recording({self.model.kind}, {len(self._layers)} layers{tokens}, {size}{partial}{rounded})"
