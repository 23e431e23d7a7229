"""Makes a recording from attention weights that another program computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.errors import RecordingError
from regard.maps import observe
from regard.masks import Causal, Dense, Mask
from regard.models.identity import ModelIdentity
from regard.models.layer import Layer
from regard.models.recording import Recording
from regard.models.segment import Segment
from regard.models.sites import ROLES, Site
from regard.models.tokens import Token
from regard.models.translate import Frame

__all__ = ["from_attentions"]

# How far the sum of a row may be from 1, by dtype: half precision rounds each weight.
SLACK = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 2e-2, torch.bfloat16: 5e-2}


def from_attentions(
    attentions: Sequence[Any],
    tokens: Sequence[str] | None = None,
    *,
    model: str = "imported",
    role: str = "decoder",
) -> Recording:
    """Make a recording from saved attention weights; the viewer and the atlas read it like any other.

    `attentions` holds one tensor or array (batch, heads, q, k) for each layer, as `outputs.attentions` of
    transformers does; (heads, q, k) is a batch of one. `tokens` are the texts of the tokens, in order.
    There are no values and no outputs, so statistics that weigh values are not available.

    The recording stores queries log α and unit vectors as keys, which give exactly these weights.

    >>> recording = from_attentions([torch.eye(3).expand(1, 2, 3, 3)], ["The", " cat", " sat"])
    >>> recording.maps[0][0, 1, 2]
    tensor([0., 0., 1.])
    >>> recording
    Recording(imported, 1 layers, 3 tokens, 288 bytes)
    """
    if role not in ROLES:
        raise RecordingError(f"role is {role!r}; wanted one of {', '.join(ROLES)}.")
    if not isinstance(attentions, Sequence | Tensor) and not hasattr(attentions, "__array__"):
        raise RecordingError(
            f"attentions is of type {type(attentions).__name__}; wanted a list of one tensor "
            "(batch, heads, q, k) for each layer. Of a file of NumPy arrays: [file[name] for name in names]."
        )
    if isinstance(attentions, str):
        raise RecordingError("attentions is text; load the file first, with torch.load or numpy.load.")
    if not len(attentions):
        raise RecordingError("attentions is empty; wanted one tensor (batch, heads, q, k) for each layer.")
    made = Recording(ModelIdentity(model, model, ""))
    for index, given in enumerate(attentions):
        made.put(_layer(_checked(given, index), Site(f"attentions.{index}", role, index)))
    if tokens is not None:
        _attach(made, list(tokens), role)
    return made


def _checked(given: Any, index: int) -> Float[Tensor, "batch heads q k"]:
    """The weights of one layer in float32 or float64; raises unless rows are not negative and sum to 1."""
    if given is None:
        raise RecordingError(
            f"attentions[{index}] is None: the model was not asked for its weights. With transformers: "
            'attn_implementation="eager" and output_attentions=True.'
        )
    try:
        x = torch.as_tensor(given).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecordingError(
            f"attentions[{index}] is of type {type(given).__name__}; wanted a tensor (batch, heads, q, k). "
            "What generate() returns has a tuple for each step: import one step."
        ) from error
    x = x[None] if x.ndim == 3 else x
    if x.ndim != 4 or not x.is_floating_point() or not x.numel():
        raise RecordingError(
            f"attentions[{index}] is {tuple(x.shape)} of {x.dtype}; wanted floats (batch, heads, q, k)."
        )
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    if not bool(wide.isfinite().all()) or bool((wide < 0).any()):
        raise RecordingError(
            f"attentions[{index}] has weights below 0, NaN or infinity; wanted softmax weights."
        )
    sums = wide.double().sum(-1)
    # A row that may attend to nothing sums to 0.
    off = torch.where(sums == 0, 0.0, (sums - 1).abs())
    if float(off.max()) > SLACK.get(x.dtype, 1e-4):
        batch, head, query = (int(i) for i in torch.unravel_index(off.argmax(), off.shape))
        raise RecordingError(
            f"attentions[{index}] does not sum to 1: row {query} of head {head} in batch row {batch} sums to "
            f"{float(sums[batch, head, query]):.4g}. Give the weights after softmax, without dropout."
        )
    return wide


def _layer(weights: Float[Tensor, "batch heads q k"], site: Site) -> Layer:
    q_len, k_len = weights.shape[2:]
    mask = _mask(weights)
    q = weights.clamp_min(torch.finfo(weights.dtype).tiny).log()
    k = torch.eye(k_len, dtype=weights.dtype).expand(len(weights), 1, k_len, k_len)
    v = weights.new_zeros(len(weights), 1, k_len, 1)
    seen = observe(q, k, v, mask, scale=1.0)
    layer = Layer(site)
    layer.segments = [Segment(seen.lse, dict(seen.stats), q, k, v)]
    layer.row_stats = frozenset(seen.stats)
    layer.mask = layer.first_mask = mask
    layer.options = {"scale": 1.0, "softcap": None, "sink": None}
    layer.frame = Frame(q_len, k_len)
    return layer


def _mask(weights: Float[Tensor, "batch heads q k"]) -> Mask | None:
    """The mask of the cells with weight: a named mask if one matches exactly."""
    seen = weights > 0
    if bool(seen.all()):
        return None
    q_len, k_len = weights.shape[2:]
    causal = Causal().dense(q_len, k_len)
    return Causal() if bool((seen == causal).all()) else Dense(seen)


def _attach(recording: Recording, tokens: list[str], role: str) -> None:
    """Attach tokens: one id per distinct token text, and each token's span in the text."""
    if not all(isinstance(text, str) for text in tokens):
        raise RecordingError("tokens holds something else than text; decode the ids first, one by one.")
    batch, _, _, keys = recording.all_layers[0].map.shape
    if len(tokens) != keys:
        raise RecordingError(f"there are {len(tokens)} tokens and {keys} keys; wanted one text for each key.")
    side = "encoder" if role in ("encoder", "cross", "vision", "audio") else "decoder"
    numbers = {text: number for number, text in enumerate(dict.fromkeys(tokens))}
    starts = [0]
    for text in tokens:
        starts.append(starts[-1] + len(text))
    ids = torch.tensor([[numbers[text] for text in tokens]] * batch)
    recording.token_ids[side] = ids
    recording.text = "".join(tokens)
    known = [Token(numbers[text], text, starts[i], starts[i + 1]) for i, text in enumerate(tokens)]
    recording.restore_tokens([known] * batch, side)
