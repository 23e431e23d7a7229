"""`Recording`: the maps, tokens and statistics of one run of one model over one text."""

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

# Which stack `recording.maps` means where a model has several.
MAIN = ("decoder", "encoder", "vision", "audio", "cross")


class Recording:
    """What a model did with one text: maps, statistics, tokens. `watch` makes it, `Recording.open` reads it.

    `layers` and `maps` are those of the main stack; a model with several has `encoder`, `decoder`, `cross`,
    `vision` or `audio` as well. `complete` is False for what a run that was cut short left on disk.
    """

    def __init__(self, model: ModelIdentity) -> None:
        self.model = model
        self.tokenizer: str | None = None
        self.texts: list[str] | None = None
        """What each row of the batch read, where that is known."""
        self.complete = True
        self.path: Path | None = None
        self.token_ids: dict[str, Int[Tensor, "batch n"]] = {}
        self.pictures: list[Picture] = []
        """The images that `record` was given, and the spectrogram of the sound; small."""
        self.cleared: Callable[[], None] | None = None
        """Called when a new text begins, so that what is being written begins anew too."""
        self._layers: list[Layer] = []
        self._tokenizer: Any = None
        self._spans: Sequence[Sequence[tuple[int, int]]] | None = None
        self._tokens: dict[str, list[list[Token]]] = {}
        self._passages: dict[str, list[list[Passage]]] = {}

    @classmethod
    def of(cls, model: Any, within: Any = None) -> Recording:
        """An empty recording of a model; `within` is what wraps it, if anything does."""
        return cls(ModelIdentity.of(model, within))

    @staticmethod
    @extension_point
    def open(path: str | Path) -> Recording:
        """Read a recording; its tensors stay on disk until they are looked at, and are checked then.

        A recording that was cut short opens too, with the layers it has: `recording.complete` is False.
        """
        ...

    @extension_point
    def save(self, path: str | Path, *, resume: bool = False, overwrite: bool = False) -> None:
        """Write it as a folder; a crash leaves a partial one that `resume` completes.

        A recording that is there already is refused, unless `overwrite` replaces it: the old one stands until
        the new one is complete.

        How much will be written is `recording.nbytes`; where it does not fit on the disk, nothing is.
        """
        ...

    @property
    def text(self) -> str | None:
        """The text that was read, the first of a batch; None where only token ids are known."""
        return self.texts[0] if self.texts else None

    @text.setter
    def text(self, text: str | None) -> None:
        self.texts = None if text is None else [text]

    @property
    def stacks(self) -> dict[str, Stack]:
        """Every stack that was seen, by its role."""
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
    def all_layers(self) -> list[Layer]:
        """Every layer of every stack, in the order in which they ran."""
        return list(self._layers)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors: what saving will write, but for a little text."""
        return sum(layer.nbytes for layer in self._layers)

    @property
    def tokens(self) -> list[Token]:
        """The tokens of the first text of the batch; attach a tokenizer to have them."""
        return self.batch_tokens[0]

    @property
    def batch_tokens(self) -> list[list[Token]]:
        """The tokens of every text of the batch; of an encoder-decoder, those of the decoder."""
        return self.tokens_of("decoder" if "decoder" in self.token_ids else "encoder")

    def tokens_of(self, role: str) -> list[list[Token]]:
        """The tokens of every text that one side read: "encoder" or "decoder"; cross-attention has both."""
        if role not in self._tokens:
            self._tokens[role] = self._tokenized(role)
        return self._tokens[role]

    @property
    def passages(self) -> list[Passage]:
        """Named runs among `tokens`: what each speaker of a chat said, which tokens stand for an image.

        `passage.tokens` is a range, as `SegmentMass` and knock-outs take it.
        """
        return next(iter(self.passages_of("decoder" if "decoder" in self.token_ids else "encoder")), [])

    def passages_of(self, role: str) -> list[list[Passage]]:
        """The passages of every text that one side read; those of a sound are the encoder's."""
        return self._passages.get(role, [])

    def note_passages(self, role: str, passages: Sequence[Sequence[Passage]]) -> None:
        """Keep the passages of every text that one side reads."""
        if any(passages):
            self._passages[role] = [list(row) for row in passages]

    @extension_point
    def alone(self, row: int = 0, stack: str | None = None) -> Recording:
        """One text of the batch as if the model had read nothing else: without the others, without padding.

        `stack` leaves out the other stacks. docs/atlas.md says how padding is recognised.
        """
        ...

    def stat(self, name: str) -> Any:
        """One statistic of all layers of the main stack: (layers, batch, heads, ...)."""
        return self.layers.stat(name)

    def attach(
        self, tokenizer: Any, text: str | Sequence[str] | None = None, spans: Sequence[Any] | None = None
    ) -> Recording:
        """Say how token ids read, and which text they came from; then `recording.tokens` knows both.

        Of an encoder-decoder, `text` is what the encoder read; of a batch, one text for each row. `spans`
        says where each token begins and ends in the text, for each text of several; without it the text is
        tokenized once more.
        """
        if isinstance(text, str):
            text, spans = [text], None if spans is None else [spans]
        self.texts = None if text is None else list(text)
        self._tokenizer, self._spans, self._tokens = tokenizer, spans, {}
        self.tokenizer = getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__
        return self

    @extension_point
    def atlas(self, progress: Callable[[int, int], None] | None = None) -> Atlas:
        """What every head does: its statistics, and how much it is of each kind.

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
        """The image that was seen, with the weights that one token gives to its patches laid over it.

        `query` is a word of the text beside the image, a patch or a token's number; without a layer or a
        head, the mean over them. The options are those of `regard.models.plot_image`.
        """
        ...

    @extension_point
    def show(self, **options: Any) -> Any:
        """Look at it: the deep-zoom map and the text, as a widget in a notebook.

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
        """One row for each layer, batch row, head and query: its token, and every statistic of rows."""
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
    def to_attentions(self, stack: str | None = None) -> tuple[Tensor, ...]:
        """The maps as tensors (batch, heads, q, k), one a layer, as `outputs.attentions` of transformers.

        BertViz and CircuitsVis draw these. A map that is long is refused: it is not kept, it is computed.
        """
        ...

    @extension_point
    def _repr_html_(self) -> str:
        """What a notebook shows."""
        ...

    def check_model(self, model: Any) -> None:
        """Raise RecordingError unless this is the model that was recorded, weights included."""
        now = ModelIdentity.of(model)
        if now.fingerprint != self.model.fingerprint:
            raise RecordingError(
                f"the recording is of {self.model.kind} {self.model.name!r} and this is {now.kind} "
                f"{now.name!r} with another config or other weights; what it computes now is not what was "
                "recorded. Load the model that was recorded, or record again."
            )

    def stack(self, role: str) -> Stack:
        """The layers of one role; empty where the model has none."""
        return Stack(role, {layer.index: layer for layer in self._layers if layer.role == role})

    def find(self, site: Site) -> Layer | None:
        """The layer recorded at a site, if there is one."""
        return next((layer for layer in self._layers if layer.site == site), None)

    def put(self, layer: Layer) -> None:
        """Keep a layer, in place of the one its site had."""
        for place, other in enumerate(self._layers):
            if other.site == layer.site:
                self._layers[place] = layer
                return
        self._layers.append(layer)

    def clear(self) -> None:
        """Forget the text: another one begins."""
        self._layers, self.token_ids, self._tokens = [], {}, {}
        if self.cleared is not None:
            self.cleared()

    def note_tokens(self, role: str, ids: Any, past: int) -> None:
        """Remember the ids a pass reads, after the `past` it has read before."""
        if not isinstance(ids, Tensor) or ids.ndim != 2 or ids.is_floating_point():
            return
        ids, before = ids.detach().cpu(), self.token_ids.get(role)
        if past and before is not None and before.shape[0] == ids.shape[0] and before.shape[1] >= past:
            # Without a cache a pass reads everything again; with one, only what is new.
            ids = torch.cat([before[:, :past], ids], 1)
        self.token_ids[role] = ids
        self._tokens = {}

    def restore_tokens(self, tokens: list[list[Token]], role: str = "decoder") -> None:
        """Take tokens that were read from disk."""
        self._tokens[role] = tokens

    @property
    def reader(self) -> str:
        """Which side read `text`: the encoder where there is one, else the decoder."""
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
        return f"Recording({self.model.kind}, {len(self._layers)} layers{tokens}, {size}{partial})"
