"""Tiny random models of families that have parts with configs of their own, and read more than ids."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from models.families import SMALL, _small

Inputs = dict[str, torch.Tensor]
IMAGE = 90
TOKENS = {"image_token_id": IMAGE, "image_token_index": IMAGE, "video_token_id": 91, "audio_token_id": 92,
          "vision_start_token_id": 93, "vision_end_token_id": 94}  # fmt: skip
MROPE: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}
INTERLEAVED = {**MROPE, "mrope_interleaved": True}
DEEP = {"deepstack_visual_indexes": [0, 1], "num_position_embeddings": 16}
SIZES: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"text_config": {"rope_parameters": MROPE}, "vision_config": {"hidden_size": 32}},
    "qwen2_5_vl": {
        "text_config": {"rope_parameters": MROPE},
        "vision_config": {"window_size": 16, "fullatt_block_indexes": [1]},
    },
    "qwen3_vl": {"text_config": {"rope_parameters": INTERLEAVED}, "vision_config": DEEP},
    "qwen3_vl_moe": {"text_config": {"rope_parameters": INTERLEAVED}, "vision_config": DEEP},
    "idefics3": {"scale_factor": 2},
    "smolvlm": {"scale_factor": 2},
    "paligemma": {"vision_config": {"projection_dim": 32}, "projection_dim": 32},
    "internvl": {"vision_config": {"image_size": [16, 16], "patch_size": [4, 4]}, "image_seq_length": 4},
    "segformer": {
        "hidden_sizes": [16, 32], "num_encoder_blocks": 2, "depths": [2, 2], "sr_ratios": [2, 1],
        "num_attention_heads": [2, 4], "patch_sizes": [3, 3], "strides": [2, 2], "mlp_ratios": [2, 2],
    },
    "moonshine": {
        f"{side}_{what}": size
        for side in ("encoder", "decoder")
        for what, size in (("num_hidden_layers", 2), ("num_attention_heads", 4), ("num_key_value_heads", 4))
    },
}  # fmt: skip


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def ids() -> torch.Tensor:
    return torch.randint(3, 85, (2, 21), generator=torch.Generator().manual_seed(3))


def pair(model: Any) -> Inputs:
    """A text and an image, each read by its own part."""
    return {"input_ids": ids(), "pixel_values": drawn(2, 3, 16, 16)}


def beside(count: int) -> Callable[[Any], Inputs]:
    """An image within a text, where `count` tokens stand for it."""
    return lambda model: {"input_ids": _with_image(count), "pixel_values": drawn(1, 3, 16, 16)}


def cut(model: Any) -> Inputs:
    """An image that is one of several cuts."""
    whole = torch.ones(1, 1, 16, 16, dtype=torch.long)
    return {
        "input_ids": _with_image(4), "pixel_values": drawn(1, 1, 3, 16, 16), "pixel_attention_mask": whole,
    }  # fmt: skip


def merged(model: Any) -> Inputs:
    """Patches as Qwen's processor gives them, merged two by two in the text."""
    vision, given = model.config.vision_config, _with_image(4)
    size = 3 * vision.temporal_patch_size * vision.patch_size**2
    return {
        "input_ids": given, "pixel_values": drawn(16, size), "image_grid_thw": torch.tensor([[1, 4, 4]]),
        "mm_token_type_ids": (given == IMAGE).long(),
    }  # fmt: skip


def frames(model: Any) -> Inputs:
    return {"pixel_values": drawn(2, 4, 3, 16, 16)}


def sound(model: Any) -> Inputs:
    return {"input_values": drawn(2, 4000), "decoder_input_ids": ids()[:, :7]}


def features(bins: int) -> Callable[[Any], Inputs]:
    def made(model: Any) -> Inputs:
        spoken = {"decoder_input_ids": ids()[:, :7]} if model.config.is_encoder_decoder else {}
        return {"input_features": drawn(2, 64, bins), **spoken}

    return made


READS: dict[str, Callable[[Any], Inputs]] = {
    **dict.fromkeys(
        ("clip", "siglip", "metaclip_2", "chinese_clip", "altclip", "owlvit", "aimv2", "blip"), pair
    ),
    **dict.fromkeys(("llava", "paligemma"), beside(16)),
    **dict.fromkeys(("internvl", "aya_vision"), beside(4)),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe"), merged),
    **dict.fromkeys(("idefics3", "smolvlm"), cut),
    **dict.fromkeys(("videomae", "vivit"), frames),
    "segformer": lambda model: {"pixel_values": drawn(2, 3, 32, 32)},
    "vit_mae": lambda model: {"pixel_values": drawn(2, 3, 16, 16), "noise": drawn(2, 16)},
    "moonshine": sound,
    "wav2vec2-bert": features(160),
    "speech_to_text": features(80),
    "parakeet_encoder": features(80),
}


def made(name: str) -> Any:
    """A model of a family, the same every time."""
    from transformers import CONFIG_MAPPING, AutoModel

    torch.manual_seed(0)
    config = _tiny(CONFIG_MAPPING[name], copy.deepcopy(SIZES.get(name, {})))
    return AutoModel.from_config(config, attn_implementation="eager").eval()


def _with_image(count: int) -> torch.Tensor:
    given = ids()[:1]
    return torch.cat([given[:, :3], torch.full((1, count), IMAGE), given[:, 3:]], 1)


def _tiny(kind: type, extra: dict[str, Any]) -> Any:
    """A small config, also where a part may be of any kind, which `families` leaves as large as it is."""
    whole = kind()
    known = whole.to_dict()
    parts = {
        name: _tiny(type(part), extra.pop(name, {}))
        for name in whole.sub_configs
        if (part := getattr(whole, name, None)) is not None
    }
    extra |= {name: number for name, number in TOKENS.items() if isinstance(known.get(name), int)}
    small = _small(kind, extra)
    named = {name: getattr(small, name) for name in small.to_dict() if name in SMALL or name in extra}
    named = {name: value for name, value in named.items() if name not in whole.attribute_map}
    return kind(**{**named, **parts}) if parts else small
