"""Recording what a vision model attends to in an image, and reading it back patch by patch."""

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
from regard.models.recording import Recording
from regard.models.switch import unwrapped
from regard.models.tokens import Token
from regard.models.watch import watch

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["PatchGrid", "image_map", "picture_of", "plot_image", "record_image"]

PATCH = re.compile(r"patch (\d+),(\d+)")
Query = str | tuple[int, int] | int


@dataclass(frozen=True)
class PatchGrid:
    """The patches an image is cut into, row by row, after `leading` tokens that are no patches.

    >>> PatchGrid(2, 2, 1).names
    ('[CLS]', 'patch 0,0', 'patch 0,1', 'patch 1,0', 'patch 1,1')
    """

    rows: int
    columns: int
    leading: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """What each token is: the class token, registers, then patches by row and column."""
        first = ["[CLS]", *(f"register {number}" for number in range(1, self.leading))][: self.leading]
        patches = (f"patch {row},{column}" for row in range(self.rows) for column in range(self.columns))
        return (*first, *patches)

    def index(self, query: Query) -> int:
        """The place of a token: a name, the (row, column) of a patch, or a number."""
        if isinstance(query, int):
            if not 0 <= query < len(self.names):
                raise RecordingError(f"there is no token {query}; there are {len(self.names)}.")
            return query
        name = query if isinstance(query, str) else f"patch {query[0]},{query[1]}"
        if name not in self.names:
            raise RecordingError(
                f"there is no token {name!r}; there are {self.rows} rows and {self.columns} columns of "
                f"patches{''.join(f', {other}' for other in self.names[: self.leading])}."
            )
        return self.names.index(name)

    @classmethod
    def of_names(cls, names: Sequence[str]) -> PatchGrid:
        """The grid that the tokens of a recording describe."""
        places = [found.groups() for name in names if (found := PATCH.fullmatch(name))]
        if not places:
            raise RecordingError("the recording is not of an image: none of its tokens is a patch.")
        rows, columns = (max(int(place[axis]) for place in places) + 1 for axis in (0, 1))
        return cls(rows, columns, len(names) - len(places))


def record_image(
    model: Any,
    image: Any,
    *,
    grid: tuple[int, int] | None = None,
    **options: Any,
) -> Recording:
    """Run a vision model on an image and return the recording; its tokens are patches.

    `model` is a pair of a model and its image processor, or a model alone, which is given pixel values of
    shape (3, height, width) or (1, 3, height, width). Of a model that reads images and texts the vision part
    runs. `image` is a file, a PIL image or an array of height × width × 3. `grid` is how many rows and
    columns of patches there are, where the model's config does not say. The other options are those of
    `watch`.
    """
    runner, processor = model if isinstance(model, tuple) else (model, None)
    runner = _vision_part(unwrapped(runner))
    pixels = _pixels(runner, processor, image)
    with torch.no_grad(), watch(runner, **options) as recording:
        runner(pixel_values=pixels)
        tokens = recording.all_layers[0].keys
        found = _grid_of(runner, pixels, tokens, grid)
        role = recording.all_layers[0].role
        named = [Token(place, name, 0, 0) for place, name in enumerate(found.names)]
        recording.token_ids = {role: torch.arange(tokens)[None]}
        recording.restore_tokens([named], role)
    return recording


def image_map(
    recording: Recording, layer: int, head: int | None = None, query: Query = "[CLS]"
) -> Float[Tensor, "rows columns"]:
    """What one token gives to each patch, in one head or, without one, the mean over the heads."""
    found = _grid(recording)
    seen = recording.maps[layer]
    if head is not None:
        recording.layers[layer].check_head(head)
    place = found.index(query)
    weights = seen[0, :, place].mean(0) if head is None else seen[0, head, place]
    return weights[found.leading :].view(found.rows, found.columns)


def plot_image(
    recording: Recording,
    image: Any,
    layer: int,
    head: int | None = None,
    query: Query = "[CLS]",
    ax: Axes | None = None,
) -> Figure:
    """The image with the weights that one token gives to its patches laid over it.

    The image is a file, a PIL image or an array of height × width × 3, not kept in the recording. A query
    that is a patch is framed.
    """
    from regard.plots import over_image

    found = _grid(recording)
    place = found.index(query) - found.leading
    who = f"layer {layer}, " + ("mean over heads" if head is None else f"head {head}")
    name = found.names[place + found.leading]
    return over_image(
        image_map(recording, layer, head, query),
        picture_of(image),
        title=f"what {name} looks at: {who}",
        frame=divmod(place, found.columns) if place >= 0 else None,
        ax=ax,
    )


def _grid(recording: Recording) -> PatchGrid:
    return PatchGrid.of_names([token.text for token in recording.tokens_of(recording.all_layers[0].role)[0]])


def _vision_part(model: Any) -> Any:
    """The part of a model that takes pixel values and nothing else."""
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
    """An image as an array or a PIL image; a file is read."""
    if not isinstance(image, str | Path):
        return image
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(image).convert("RGB")
    except (OSError, UnidentifiedImageError) as error:
        raise ModelError(f"{image} cannot be read as an image: {error}.") from None


def _grid_of(model: Any, pixels: Tensor, tokens: int, given: tuple[int, int] | None) -> PatchGrid:
    """How the tokens of a model lie on an image, from its config or as given."""
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
    if not 0 <= tokens - rows * columns < tokens:
        raise ModelError(
            f"{rows} x {columns} patches do not fit the {tokens} tokens of {type(model).__name__}; say how "
            "many rows and columns there are: grid=(rows, columns)."
        )
    return PatchGrid(rows, columns, tokens - rows * columns)
