"""Records a vision model on an image, and reads attention maps by patch."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import ModelError, RecordingError
from regard.extension import implements
from regard.models.looking import image_passage
from regard.models.pictures import pictures_of
from regard.models.recording import Recording
from regard.models.switch import unwrapped
from regard.models.tokens import Token
from regard.models.watch import watch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PatchGrid", "image_map", "picture_of", "plot_image", "record_image"]

PATCH = re.compile(r"patch (\d+),(\d+)")
DISTILLATION = "[DISTILLATION]"
POOLED = "[POOL]"
Query = str | tuple[int, int] | int


@dataclass(frozen=True)
class PatchGrid:
    """The grid of an image's patches, row by row, between `leading` and `trailing` tokens that are not.

    >>> PatchGrid(2, 2, 1).names
    ('[CLS]', 'patch 0,0', 'patch 0,1', 'patch 1,0', 'patch 1,1')
    """

    rows: int
    columns: int
    leading: int = 0
    trailing: int = 0
    distilled: bool = False
    """Whether the token after the class token learned from another model, as in DeiT."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each token: class token, registers, patches by row and column, detection tokens."""
        taught = [DISTILLATION] if self.distilled else []
        registers = (f"register {number}" for number in range(1, self.leading - len(taught)))
        first = ["[CLS]", *taught, *registers][: self.leading]
        patches = (f"patch {row},{column}" for row in range(self.rows) for column in range(self.columns))
        return (*first, *patches, *(f"detection {number}" for number in range(1, self.trailing + 1)))

    def index(self, query: Query) -> int:
        """The index of a token, given as a name, as the (row, column) of a patch, or as a number."""
        if isinstance(query, int):
            if not 0 <= query < len(self.names):
                raise RecordingError(f"there is no token {query}; there are {len(self.names)}.")
            return query
        name = query if isinstance(query, str) else f"patch {query[0]},{query[1]}"
        if name not in self.names:
            raise RecordingError(
                f"there is no token {name!r}; there are {self.rows} rows and {self.columns} columns of "
                f"patches{''.join(f', {other}' for other in self.names if not PATCH.fullmatch(other))}."
            )
        return self.names.index(name)

    @classmethod
    def of_names(cls, names: Sequence[str]) -> PatchGrid:
        """The grid described by the token names of a recording."""
        places = [found.groups() for name in names if (found := PATCH.fullmatch(name))]
        if not places:
            raise RecordingError("the recording is not of an image: none of its tokens is a patch.")
        rows, columns = (max(int(place[axis]) for place in places) + 1 for axis in (0, 1))
        leading = next(number for number, name in enumerate(names) if PATCH.fullmatch(name))
        return cls(rows, columns, leading, len(names) - len(places) - leading, DISTILLATION in names)


def record_image(
    model: Any,
    image: Any,
    *,
    grid: tuple[int, int] | None = None,
    **options: Any,
) -> Recording:
    """Run a vision model on an image and return the recording; its tokens are patches.

    `model` is a pair of a model and its image processor, or a model alone; then `image` must be pixel values
    of shape (3, height, width) or (1, 3, height, width). For a model that reads images and texts, only its
    vision part runs. `image` is a file, a PIL image or an array of height × width × 3. `grid` is the number
    of rows and columns of patches, if the model's config doesn't give it. The other options are those of
    `watch`.
    """
    runner, processor = model if isinstance(model, tuple) else (model, None)
    runner = _vision_part(unwrapped(runner))
    pixels = _pixels(runner, processor, image)
    with torch.no_grad(), watch(runner, **options) as recording:
        runner(pixel_values=pixels)
        found = _grid_of(runner, pixels, _seen(recording, runner), grid)
        role = recording.all_layers[0].role
        named = [Token(place, name, 0, 0) for place, name in enumerate(found.names)]
        recording.token_ids = {role: torch.arange(len(named))[None]}
        recording.restore_tokens([named], role)
        patch = pixels.shape[2] // found.rows, pixels.shape[3] // found.columns
        recording.pictures = pictures_of(pixels, processor, [image], patch)
    return recording


def image_map(
    recording: Recording,
    layer: int | None,
    head: int | None = None,
    query: Query | None = None,
    image: int = 1,
) -> Float[Tensor, "rows columns"]:
    """The weights from one token to each patch, in one head; without a head, the mean over the heads.

    For a vision model, `query` is a token's name, the (row, column) of a patch or a number; the default is
    "[CLS]", and in models without it "[POOL]", the pooling head. For a model that reads an image and a text,
    it is a word (its last occurrence counts) or the number of a token; the default is the last token; `image`
    is the number of the image. Without a layer, the mean over all layers.
    """
    found, place, name = _asked(recording, query, image)
    maps = recording.pooling.maps if name == POOLED else recording.maps
    layers = list(maps) if layer is None else [layer]
    total = torch.zeros(found.rows, found.columns)
    for number in layers:
        seen = maps[number]
        if head is not None and not 0 <= head < seen.shape[1]:
            raise RecordingError(
                f"layer {number} has no head {head}; its heads are 0 to {seen.shape[1] - 1}."
            )
        keys = slice(found.leading, found.leading + found.rows * found.columns)
        weights = seen[0, :, place, keys].mean(0) if head is None else seen[0, head, place, keys]
        total += weights.float().cpu().view(found.rows, found.columns)
    return total / len(layers)


def plot_image(
    recording: Recording,
    picture: Any,
    layer: int | None = None,
    head: int | None = None,
    query: Query | None = None,
    image: int = 1,
    ax: Axes | None = None,
) -> Figure:
    """Plot the image overlaid with the weights from one token to its patches.

    `picture` is a file, a PIL image or an array of height × width × 3, at any size. If the query is a patch,
    the plot frames it. Layer, head, query and image are those of `image_map`.
    """
    from regard.plots import over_image

    found, place, name = _asked(recording, query, image)
    where = "mean over layers" if layer is None else f"layer {layer}"
    who = "mean over heads" if head is None else f"head {head}"
    patch = place - found.leading
    return over_image(
        image_map(recording, layer, head, query, image),
        picture_of(picture),
        title=f"what {name} looks at: {where}, {who}",
        frame=divmod(patch, found.columns) if 0 <= patch < found.rows * found.columns else None,
        ax=ax,
    )


@implements(Recording.plot_image)
def _plot_image(
    self: Recording,
    picture: Any,
    layer: int | None = None,
    head: int | None = None,
    query: Any = None,
    image: int = 1,
    ax: Any = None,
) -> Figure:
    return plot_image(self, picture, layer, head, query, image, ax)


def _asked(recording: Recording, query: Query | None, image: int) -> tuple[PatchGrid, int, str]:
    """The keys that are patches, and the index and name of the query."""
    tokens = recording.tokens_of(next(iter(recording.stacks.values())).role) if recording.text is None else []
    names = [token.text for token in tokens[0]] if tokens else []
    if any(PATCH.fullmatch(name) for name in names):
        found = PatchGrid.of_names(names)
        pools = "pooling" in recording.stacks
        if pools and (query == POOLED or (query is None and "[CLS]" not in names)):
            return found, 0, POOLED
        place = found.index("[CLS]" if query is None else query)
        return found, place, found.names[place]
    passage = image_passage(recording, image)
    if not passage.rows:
        raise RecordingError(
            f"the {len(passage.tokens)} tokens of {passage.name} lie on no known grid; say how many rows and "
            "columns there are when you record: grid=(rows, columns)."
        )
    found, place = PatchGrid(passage.rows, passage.columns, passage.start), _place(recording, query)
    return found, place, repr(recording.tokens[place].text.strip())


def _place(recording: Recording, query: Query | None) -> int:
    """The index of the text token that a query names."""
    tokens = recording.tokens
    if query is None:
        return len(tokens) - 1
    if isinstance(query, int) and -len(tokens) <= query < len(tokens):
        return query % len(tokens)
    written = "".join(token.text for token in tokens)
    start = written.rfind(query) if isinstance(query, str) and query else -1
    if start < 0:
        raise RecordingError(
            f"there is no token {query!r} in the text; wanted a word of it, or 0 to {len(tokens) - 1}."
        )
    end = 0
    for place, token in enumerate(tokens):
        end += len(token.text)
        if end >= start + len(str(query)):
            return place
    return len(tokens) - 1


def _vision_part(model: Any) -> Any:
    """The part of a model that takes only pixel values."""
    if "input_ids" in inspect.signature(model.forward).parameters:
        for name in ("vision_model", "visual", "vision_tower"):
            part = next((p for path, p in model.named_modules() if path.rpartition(".")[2] == name), None)
            if part is not None:
                return part
    if "pixel_values" not in inspect.signature(model.forward).parameters:
        raise ModelError(f"{type(model).__name__} reads no images; use record(model, text).")
    return model


def _pixels(model: Any, processor: Any, image: Any) -> Float[Tensor, "1 3 height width"]:
    if isinstance(image, Tensor):
        pixels = image if image.ndim == 4 else image[None]
    elif processor is None:
        raise ModelError(
            f"record_image got {type(image).__name__} and a model without its image processor. Give both, "
            "record_image((model, processor), image), or give pixel values."
        )
    else:
        pixels = processor(images=picture_of(image), return_tensors="pt")["pixel_values"]
    if pixels.ndim != 4 or len(pixels) != 1:
        raise ModelError(f"pixel values have shape {tuple(pixels.shape)}; wanted (1, 3, height, width).")
    return pixels.to(model.device, model.dtype)


def picture_of(image: Any) -> Any:
    """The image as an array or PIL image, read from the file if it is a path."""
    if not isinstance(image, str | Path):
        return image
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(image).convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise ModelError(f"{image} cannot be read as an image: {error}.") from None


def _seen(recording: Recording, model: Any) -> int:
    """How many tokens the model made of the image."""
    if not recording.all_layers:
        raise ModelError(f"no attention was seen: {type(model).__name__} has none to record.")
    if any(hasattr(part, "use_mask_unit_attn") for part in model.modules()):
        raise ModelError(
            f"{type(model).__name__} orders its tokens by units of patches and merges them on the way, so "
            "its tokens are no rows and columns of patches. Record it with watch(model)."
        )
    first = recording.all_layers[0]
    windows = first.lse.shape[0]
    if windows > 1:
        raise ModelError(
            f"{type(model).__name__} attends within windows ({windows} of {first.rows} tokens in its first "
            "layer), so no map has a row for every patch. Record it with watch(model): each window is a text."
        )
    return first.keys


def _grid_of(model: Any, pixels: Tensor, tokens: int, given: tuple[int, int] | None) -> PatchGrid:
    """The patch grid of a model's tokens, from its config or as given."""
    if given is None:
        size = getattr(getattr(model.config, "vision_config", None) or model.config, "patch_size", None)
        if size is None:
            raise ModelError(
                f"the config of {type(model).__name__} has no patch_size; say how many rows and columns of "
                "patches there are: grid=(rows, columns)."
            )
        high, wide = (size, size) if isinstance(size, int) else tuple(size)[-2:]
        given = pixels.shape[2] // high, pixels.shape[3] // wide
    rows, columns = given
    trailing = getattr(model.config, "num_detection_tokens", 0)
    if not 0 <= tokens - rows * columns - trailing < tokens:
        raise ModelError(
            f"{rows} x {columns} patches do not fit the {tokens} tokens of {type(model).__name__}; say how "
            "many rows and columns there are: grid=(rows, columns)."
        )
    distilled = any(hasattr(part, "distillation_token") for part in model.modules())
    return PatchGrid(rows, columns, tokens - rows * columns - trailing, trailing, distilled)
