"""A model listens to a phone number, and its attention says when each digit was dialled.

    python examples/phone_number.py [--steps 1000] [--out FOLDER]

Every key of a telephone has a sound of its own: two tones of fixed frequencies (DTMF, ITU-T Q.23). A small
Whisper (two layers of four heads on either side) is trained to write the digits of numbers dialled at random,
first of one digit, then of more as it learns. Nothing tells it when a digit was dialled. The heads of its
cross-attention that follow the sound do: dynamic time warping of their weights gives every digit a time, and
since the sound was made here the true one is known. The figure shows one number: the sound as the model gets
it, and below it where the best head looks before it writes each digit, with the times found.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor
from transformers import (
    PreTrainedTokenizerFast,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from regard.atlas import TimedWord, alignment_heads, word_times
from regard.models import Recording, record

RATE, SECONDS, FRAME = 16_000, 2, 0.02
KEYS = "123456789*0#"
ROWS, COLUMNS = (697, 770, 852, 941), (1209, 1336, 1477)
MOST = 6
START, STOP, PAD = 10, 11, 12
LISTENER = WhisperFeatureExtractor(feature_size=80, chunk_length=SECONDS)


class Number(NamedTuple):
    """The digits, their sound, and when each begins and ends, in seconds."""

    digits: str
    sound: Tensor
    spans: list[tuple[float, float]]


class Result(NamedTuple):
    """The share of digits written rightly, and how well the ends of tones are found."""

    accuracy: float
    # Seconds between the end of a tone and the end found for its digit, the median.
    off: float
    # The same where the time from the first tone to the last is cut into equal parts.
    off_equal: float


def tone(key: str, samples: int) -> Tensor:
    """The two tones of a key, faded in and out within 5 ms."""
    place, time = KEYS.index(key), torch.arange(samples)
    waves = [torch.sin(2 * torch.pi * f * time / RATE) for f in (ROWS[place // 3], COLUMNS[place % 3])]
    fade = torch.minimum(time, samples - 1 - time).div(0.005 * RATE).clamp(max=1)
    return sum(waves) * fade / 4


def dialled(digits: str, rng: random.Random) -> Number:
    """The sound of a number: tones of 60 to 160 ms with pauses of 40 to 300 ms, and a little noise."""
    sound = torch.randn(RATE * SECONDS, generator=torch.Generator().manual_seed(rng.getrandbits(32))) / 100
    at, spans = int(rng.uniform(0.05, 0.4) * RATE), []
    for digit in digits:
        length = int(rng.uniform(0.06, 0.16) * RATE)
        if at + length > len(sound):
            break
        sound[at : at + length] += tone(digit, length)
        spans.append((at / RATE, (at + length) / RATE))
        at += length + int(rng.uniform(0.04, 0.3) * RATE)
    return Number(digits[: len(spans)], sound, spans)


def some(count: int, longest: int, rng: random.Random) -> list[Number]:
    """Numbers of 1 to `longest` digits."""
    return [dialled("".join(rng.choices("0123456789", k=rng.randint(1, longest))), rng) for _ in range(count)]


def heard(numbers: list[Number]) -> Tensor:
    """Log-mel spectrograms (numbers, 80, frames), as every Whisper gets them."""
    sounds = [number.sound.numpy() for number in numbers]
    return LISTENER(sounds, sampling_rate=RATE, return_tensors="pt").input_features


def to_write(numbers: list[Number]) -> Tensor:
    """The digits and the end, as a row of labels each; -100 is not counted."""
    rows = torch.full((len(numbers), MOST + 1), -100)
    for row, number in zip(rows, numbers, strict=True):
        row[: len(number.digits) + 1] = torch.tensor([*map(int, number.digits), STOP])
    return rows


def small_whisper() -> WhisperForConditionalGeneration:
    """Two layers of four heads on either side, 0.2 million parameters."""
    half = {"layers": 2, "attention_heads": 4, "ffn_dim": 128}
    sizes = {f"{side}_{name}": size for side in ("encoder", "decoder") for name, size in half.items()}
    ids = {"decoder_start_token_id": START, "bos_token_id": START, "eos_token_id": STOP, "pad_token_id": PAD}
    # Weights are drawn wider than Whisper's own 0.02, which is for models ten times as wide.
    places = {"max_source_positions": 50 * SECONDS, "max_target_positions": 2 * MOST}
    return WhisperForConditionalGeneration(
        WhisperConfig(**sizes, **ids, **places, vocab_size=PAD + 1, d_model=64, init_std=0.1)
    )


def train(steps: int, heard_of_each: int, rng: random.Random) -> WhisperForConditionalGeneration:
    """Train on numbers of one digit, and of one more whenever nine of ten digits are right."""
    model = small_whisper()
    pools = [
        (heard(numbers), to_write(numbers))
        for n in range(MOST)
        if (numbers := some(heard_of_each, n + 1, rng))
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    longest, right = 1, 0.0
    for step in range(1, steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = 1e-3 * min(1.0, step / 50, max(0.05, 3 * (1 - step / steps)))
        sounds, labels = pools[rng.choice([longest - 1, rng.randrange(longest)])]
        picked = torch.randint(len(sounds), (32,))
        found = model(input_features=sounds[picked], labels=labels[picked])
        optimizer.zero_grad()
        found.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        counted = labels[picked] >= 0
        right = (
            0.95 * right + 0.05 * (found.logits.argmax(-1) == labels[picked])[counted].float().mean().item()
        )
        if right > 0.9 and longest < MOST:
            longest, right = longest + 1, 0.0
        if step % 100 == 0 or step == steps:
            print(f"step {step:4}  up to {longest} digits  loss {found.loss.item():.3f}", flush=True)
    return model


def processor() -> Any:
    """What `record` needs beside the model: how to listen, and how digits are written."""
    ids = {**{str(digit): digit for digit in range(10)}, "<s>": START, "</s>": STOP, "<pad>": PAD}
    words = Tokenizer(models.WordLevel(ids, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", START), ("</s>", STOP)]
    )
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<pad>"}
    return SimpleNamespace(
        feature_extractor=LISTENER,
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=words, **special),
    )


def recorded(model: WhisperForConditionalGeneration, number: Number) -> Recording:
    """The model hears a number while it reads its digits."""
    return record((model, processor()), " ".join(number.digits), audio=(number.sound, RATE))


def ends_off(times: list[tuple[Number, list[TimedWord]]]) -> tuple[float, float]:
    """By how many seconds ends are off, the median: those found, and those of equal parts."""
    found, equal = [], []
    for number, words in times:
        first, last = number.spans[0][0], number.spans[-1][1]
        for place, ((_, stop), word) in enumerate(zip(number.spans, words, strict=True), start=1):
            found.append(abs(word.stop - stop))
            equal.append(abs(first + (last - first) * place / len(words) - stop))
    return torch.tensor(found).median().item(), torch.tensor(equal).median().item()


def drawn(number: Number, recording: Recording, words: list[TimedWord]) -> plt.Figure:
    """The spectrogram, and the weights of the best head over the same seconds."""
    best = alignment_heads(recording)[0]
    weights = recording.cross.maps[best.layer][0, best.head, : len(words)].float().numpy()
    figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5), sharex=True, layout="constrained")
    sound = heard([number])[0].numpy()
    above.imshow(sound, aspect="auto", origin="lower", cmap="Greys", vmin=0.5, extent=(0, SECONDS, 0, 80))
    above.set(title=f"What is dialled: {' '.join(number.digits)}", ylabel="mel band")
    below.imshow(weights, aspect="auto", cmap="Blues", extent=(0, SECONDS, len(words), 0))
    below.set(
        title=f"Where layer {best.layer}, head {best.head} listens before it writes each digit",
        xlabel="seconds",
        yticks=[row + 0.5 for row in range(len(words))],
        yticklabels=[word.text for word in words],
    )
    for row, (span, word) in enumerate(zip(number.spans, words, strict=True)):
        below.plot(span, [row + 0.5] * 2, color="tab:orange", linewidth=2, label=None if row else "the tone")
        label = None if row else "end of the digit, found"
        below.plot([word.stop] * 2, [row, row + 1], color="tab:red", linewidth=2, label=label)
    below.legend(loc="upper right")
    return figure


def main(steps: int = 1000, out: Path | None = None, heard_of_each: int = 700) -> Result:
    """Train, time the digits of numbers never heard, and draw one of them."""
    torch.manual_seed(0)
    rng = random.Random(0)
    model = train(steps, heard_of_each, rng).eval()
    numbers = [dialled("".join(rng.choices("0123456789", k=rng.randint(4, MOST))), rng) for _ in range(40)]
    labels = to_write(numbers)
    with torch.no_grad():
        written = model(input_features=heard(numbers), labels=labels).logits.argmax(-1)
    accuracy = (written == labels)[labels >= 0].float().mean().item()
    recordings = [recorded(model, number) for number in numbers]
    times = [(number, word_times(each)) for number, each in zip(numbers, recordings, strict=True)]
    result = Result(accuracy, *ends_off(times))
    print(f"digits written rightly: {result.accuracy:.1%}")
    print(
        f"the end of a tone is off by {1000 * result.off:.0f} ms, the median; a frame is {1000 * FRAME:.0f}"
    )
    print(f"in equal parts from the first tone to the last: {1000 * result.off_equal:.0f} ms")
    shown = max(range(len(numbers)), key=lambda i: len(numbers[i].digits))
    for word in times[shown][1]:
        print(f"  {word.text}  {word.start:.2f} to {word.stop:.2f} s")
    folder = out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    drawn(numbers[shown], recordings[shown], times[shown][1]).savefig(folder / "phone_number.png", dpi=110)
    print(f"figure: {folder / 'phone_number.png'}")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    main(**vars(parser.parse_args()))
