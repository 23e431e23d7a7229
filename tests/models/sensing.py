"""Tiny models that see and hear, with processors made of the parts that real ones have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import transformers as hf
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ["what", "is", "in", "the", "picture", "?", "a", "red", "cat", "sat", "on", "mat"]
SPECIAL = ["<image>", "<|image_pad|>", "<|start|>", "<|user|>", "<|assistant|>"]
VISION: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TEXT = {**VISION, "vocab_size": 64, "intermediate_size": 32, "num_key_value_heads": 2}
TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|> {% if m.content is string %}{{ m.content }} {% else %}"
    "{% for part in m.content %}{% if part.type == 'image' %}<image> {% else %}{{ part.text }} {% endif %}"
    "{% endfor %}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def picture(height: int = 40, width: int = 60) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8))


def tokenizer() -> hf.PreTrainedTokenizerFast:
    words = {word: i for i, word in enumerate(["<unk>", "<pad>", *SPECIAL, *WORDS])}
    built = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=built, unk_token="<unk>", pad_token="<pad>", additional_special_tokens=SPECIAL
    )


def llava() -> tuple[Any, Any]:
    """16 tokens for each image, and a processor of transformers."""
    vision = hf.CLIPVisionConfig(**VISION, intermediate_size=48, image_size=32, patch_size=8)
    config = hf.LlavaConfig(
        vision_config=vision, text_config=hf.LlamaConfig(**TEXT), image_token_id=2, image_token_index=2,
        vision_feature_layer=-1,
    )  # fmt: skip
    torch.manual_seed(0)
    crop = {"height": 32, "width": 32}
    processor = hf.LlavaProcessor(
        image_processor=hf.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=crop),
        tokenizer=tokenizer(), patch_size=8, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, image_token="<image>", chat_template=TEMPLATE,
    )  # fmt: skip
    return hf.LlavaForConditionalGeneration._from_config(
        config, attn_implementation="eager"
    ).eval(), processor


def paligemma() -> tuple[Any, Any]:
    """16 tokens for an image, and a text that looks ahead."""
    vision = hf.SiglipVisionConfig(
        **VISION, intermediate_size=48, image_size=32, patch_size=8, projection_dim=32
    )
    config = hf.PaliGemmaConfig(
        vision_config=vision,
        text_config=hf.GemmaConfig(**TEXT, head_dim=8),
        image_token_id=2,
        projection_dim=32,
    )
    torch.manual_seed(0)
    eyes = hf.SiglipImageProcessor(size={"height": 32, "width": 32})
    eyes.image_seq_length = 16
    words = tokenizer()
    words.bos_token, words.add_bos_token = "<|start|>", False
    model = hf.PaliGemmaForConditionalGeneration._from_config(config, attn_implementation="eager")
    return model.eval(), hf.PaliGemmaProcessor(image_processor=eyes, tokenizer=words)


class QwenProcessor:
    """What Qwen2VLProcessor does with images; that one wants a library for videos beside."""

    image_token = "<|image_pad|>"
    chat_template = None

    def __init__(self) -> None:
        self.tokenizer = tokenizer()
        self.image_processor = hf.Qwen2VLImageProcessor(patch_size=8, min_pixels=256, max_pixels=4096)

    def __call__(self, images: Any, text: list[str], return_tensors: str) -> dict[str, Any]:
        seen = self.image_processor(images=images, return_tensors=return_tensors)
        written = text[0]
        for size in seen["image_grid_thw"]:
            count = int(size.prod()) // self.image_processor.merge_size**2
            written = written.replace(self.image_token, " ".join(["<|mark|>"] * count), 1)
        found = self.tokenizer([written.replace("<|mark|>", self.image_token)], return_tensors=return_tensors)
        kinds = (found["input_ids"] == 3).long()
        return {**found, **seen, "mm_token_type_ids": kinds}


def qwen() -> tuple[Any, Any]:
    """As many tokens as an image has patches, merged two by two."""
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}
    config = hf.Qwen2VLConfig(
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 8},
        text_config={**TEXT, "rope_parameters": rope}, image_token_id=3, vision_start_token_id=4,
    )  # fmt: skip
    torch.manual_seed(0)
    model = hf.Qwen2VLForConditionalGeneration._from_config(config, attn_implementation="eager")
    return model.eval(), QwenProcessor()


def whisper() -> tuple[Any, Any]:
    """Three seconds in 150 frames; two layers of four heads that look at them."""
    config = hf.WhisperConfig(
        vocab_size=64, num_mel_bins=16, d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32,
        max_source_positions=150, max_target_positions=40, decoder_start_token_id=4, eos_token_id=1,
        pad_token_id=1, bos_token_id=1, begin_suppress_tokens=None, suppress_tokens=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = hf.WhisperForConditionalGeneration._from_config(config, attn_implementation="eager").eval()
    model.generation_config.no_timestamps_token_id = 50
    model.generation_config.max_length = 12
    listener = hf.WhisperFeatureExtractor(feature_size=16, chunk_length=3)
    return model, SimpleNamespace(feature_extractor=listener, tokenizer=tokenizer())


def sound(seconds: float = 2.0) -> torch.Tensor:
    return 0.1 * torch.randn(round(16000 * seconds), generator=torch.Generator().manual_seed(0))
