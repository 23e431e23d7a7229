"""A model is asked for the colour of a shape, and its attention shows which part of the picture it looked at.

    python examples/coloured_shapes.py [--steps 400] [--out FOLDER]

A small vision–language model (LLaVA's architecture: a CLIP encoder of one layer, a Llama of two) is trained
on pictures of up to four coloured shapes, each in a patch of its own, and on questions like "what colour is
the circle". It answers with a colour. Nothing tells it where the circle is: the word has to find it. We know,
so for every head the share of the word's weight on the image that falls on that patch can be measured. The
figure shows one picture, and what the best head for each shape gives to its patches.

A right answer does not need such a head. The encoder mixes patches too, so a colour may be read elsewhere: a
map says what was looked at, not what was known.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    CLIPImageProcessor,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from regard.models import Recording, image_map, record

COLOURS = {
    "red": (217, 51, 51),
    "green": (51, 166, 77),
    "blue": (51, 89, 217),
    "yellow": (242, 204, 51),
    "purple": (153, 77, 179),
}
SHAPES = ["circle", "square", "triangle", "cross", "ring"]
PATCH, SIDE, MOST = 12, 4, 4
QUESTION = ["what", "colour", "is", "the"]
WORDS = ["<unk>", "<image>", *QUESTION, *SHAPES, *COLOURS]


class Shape(NamedTuple):
    """A shape's colour, and the patch it is drawn in."""

    colour: str
    patch: int


class Result(NamedTuple):
    """Shares: right answers; the weight on the image that falls on the shape's patch; the same by chance."""

    accuracy: float
    found: float
    chance: float
    # The head that finds a shape: its layer and number.
    heads: dict[str, tuple[int, int]]


def outline(shape: str) -> Tensor:
    """The points of a patch that a shape covers."""
    line = torch.arange(PATCH) - (PATCH - 1) / 2
    y, x = torch.meshgrid(line, line, indexing="ij")
    far = (x**2 + y**2).sqrt()
    return {
        "circle": far < 4.6,
        "square": (x.abs() < 4) & (y.abs() < 4),
        "triangle": (y.abs() < 4) & (x.abs() < (y + 4.5) / 2),
        "cross": ((x.abs() < 1.3) | (y.abs() < 1.3)) & (far < 5.2),
        "ring": (far < 5.2) & (far > 3),
    }[shape]


def scene(count: int, rng: random.Random) -> tuple[Tensor, dict[str, Shape]]:
    """A picture (height, width, 3) of different shapes in different patches, and what is where."""
    picture = torch.full((SIDE * PATCH, SIDE * PATCH, 3), 242, dtype=torch.uint8)
    shapes: dict[str, Shape] = {}
    for name, patch in zip(rng.sample(SHAPES, count), rng.sample(range(SIDE**2), count), strict=True):
        colour = rng.choice(list(COLOURS))
        y, x = patch // SIDE * PATCH, patch % SIDE * PATCH
        picture[y : y + PATCH, x : x + PATCH][outline(name)] = torch.tensor(
            COLOURS[colour], dtype=torch.uint8
        )
        shapes[name] = Shape(colour, patch)
    return picture, shapes


def processor() -> LlavaProcessor:
    """What cuts pictures into patches, and the words of questions and answers."""
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    side = {"height": SIDE * PATCH, "width": SIDE * PATCH}
    special = {"unk_token": "<unk>", "additional_special_tokens": ["<image>"]}
    return LlavaProcessor(
        CLIPImageProcessor(size={"shortest_edge": SIDE * PATCH}, crop_size=side),
        PreTrainedTokenizerFast(tokenizer_object=words, **special),
        patch_size=PATCH,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
    )


def small_llava() -> LlavaForConditionalGeneration:
    """A vision encoder of one layer and a decoder of two, 0.16 million parameters."""
    # Weights are drawn wider than the usual 0.02, which is for models ten times as wide.
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "initializer_range": 0.1}
    vision = CLIPVisionConfig(**sizes, num_hidden_layers=1, image_size=SIDE * PATCH, patch_size=PATCH)
    text = LlamaConfig(
        **sizes, num_hidden_layers=2, vocab_size=len(WORDS), bos_token_id=None, eos_token_id=None
    )
    config = LlavaConfig(vision_config=vision, text_config=text, vision_feature_layer=-1, image_token_index=1)
    return LlavaForConditionalGeneration(config)


def asked(
    count: int, most: int, rng: random.Random, reader: LlavaProcessor
) -> tuple[dict[str, Tensor], Tensor]:
    """What the model is given for so many questions, and the ids of the right answers."""
    pictures, questions, answers = [], [], []
    for _ in range(count):
        picture, shapes = scene(rng.randint(1, most), rng)
        name = rng.choice(list(shapes))
        pictures.append(Image.fromarray(picture.numpy()))
        questions.append(" ".join(["<image>", *QUESTION, name]))
        answers.append(WORDS.index(shapes[name].colour))
    given = reader(images=pictures, text=questions, return_tensors="pt")
    return {name: given[name] for name in ("input_ids", "pixel_values")}, torch.tensor(answers)


def train(steps: int, rng: random.Random, reader: LlavaProcessor) -> LlavaForConditionalGeneration:
    """Train on pictures of one shape, and of one more whenever nine of ten answers are right."""
    model = small_llava()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    most, right = 1, 0.0
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 50, max(0.05, 3 * (1 - step / steps)))
        given, answers = asked(32, most, rng, reader)
        logits = model(**given).logits[:, -1]
        loss = torch.nn.functional.cross_entropy(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        right = 0.95 * right + 0.05 * (logits.argmax(-1) == answers).float().mean().item()
        if right > 0.9 and most < MOST:
            most, right = most + 1, 0.0
        if step % 100 == 0 or step == steps:
            print(f"step {step:4}  up to {most} shapes  loss {loss.item():.3f}", flush=True)
    return model


def recorded(
    model: LlavaForConditionalGeneration, reader: LlavaProcessor, picture: Tensor, name: str
) -> Recording:
    """The model reads a question about a picture."""
    question = " ".join(["<image>", *QUESTION, name])
    return record((model, reader), question, images=Image.fromarray(picture.numpy()))


def on_patch(recording: Recording, layer: int, head: int, patch: int) -> float:
    """The share of the last word's weight on the image that falls on one patch."""
    weights = image_map(recording, layer, head).flatten()
    return (weights[patch] / weights.sum()).item()


def shares(recordings: list[tuple[Recording, int]]) -> Tensor:
    """The mean share on the shape's own patch, for each layer and head."""
    return torch.tensor(
        [
            [[on_patch(recording, layer, head, patch) for head in range(4)] for layer in range(2)]
            for recording, patch in recordings
        ]
    ).mean(0)


def drawn(picture: Tensor, recordings: dict[str, Recording], heads: dict[str, tuple[int, int]]) -> plt.Figure:
    """The picture, and what each shape's word gives to its patches in the head that finds it."""
    figure, (first, *others) = plt.subplots(1, 1 + len(recordings), figsize=(12, 2.8), layout="constrained")
    first.imshow(picture.numpy())
    first.set_title("the picture")
    for axes, (name, recording) in zip(others, recordings.items(), strict=True):
        layer, head = heads[name]
        recording.plot_image(picture.numpy(), layer=layer, head=head, ax=axes)
        axes.set_title(f"“{name}”, head {layer}.{head}")
    for axes in (first, *others):
        axes.set_axis_off()
    return figure


def main(steps: int = 400, out: Path | None = None) -> Result:
    """Train, see where the words look in pictures never seen, and draw one of them."""
    torch.manual_seed(0)
    rng = random.Random(0)
    reader = processor()
    model = train(steps, rng, reader).eval()
    with torch.no_grad():
        given, answers = asked(200, MOST, rng, reader)
        accuracy = (model(**given).logits[:, -1].argmax(-1) == answers).float().mean().item()
    print(f"right answers: {accuracy:.1%} (chance {1 / len(COLOURS):.1%})")
    scenes = [scene(MOST, rng) for _ in range(20)]
    seen = {
        name: [
            (recorded(model, reader, picture, name), shapes[name].patch)
            for picture, shapes in scenes
            if name in shapes
        ]
        for name in SHAPES
    }
    heads: dict[str, tuple[int, int]] = {}
    found = 0.0
    print("share of a word's weight on the image that falls on its own shape, in the head that finds it:")
    for name, recordings in seen.items():
        by_head = shares(recordings)
        heads[name] = divmod(int(by_head.argmax()), 4)
        found += by_head.max().item() / len(seen)
        print(f"  {name:<9} head {heads[name][0]}.{heads[name][1]}  {by_head.max().item():.1%}")
    result = Result(accuracy, found, 1 / SIDE**2, heads)
    print(f"all shapes: {result.found:.1%} (chance {result.chance:.1%})")
    picture, shapes = scenes[0]
    shown = {name: recorded(model, reader, picture, name) for name in shapes}
    folder = out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    drawn(picture, shown, heads).savefig(folder / "coloured_shapes.png", dpi=110)
    print(f"figure: {folder / 'coloured_shapes.png'}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
