"""Makes recordings for the viewer: of a text, or of a text and the model's continuation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard._version import __version__
from regard.errors import ModelError, RecordingError
from regard.models import LoadedModel, Recording, context_length, encode, record, sample_book, watch
from regard.models.bundled import DATA
from regard.models.identity import ModelIdentity
from regard.viewer.jobs import Job

__all__ = [
    "book_path",
    "book_recording",
    "cached_recording",
    "generate",
    "last_only",
    "likeliest",
    "record_text",
    "recorded",
    "story_path",
]

CANDIDATES = 8
ATTENDED = 8

Progress = Callable[[int, int], None]


def record_text(
    loaded: LoadedModel, text: str, store: Path, *, too_long: str = "extend", progress: Progress | None = None
) -> Recording:
    """Record a text to disk, layer by layer; replaces an unfinished recording at `store`."""
    return record(loaded, text, store=store, overwrite=True, too_long=too_long, progress=progress)


def story_path(text: str, cache: Path) -> Path:
    """Where the bundled model's recording of a text is cached; found without loading the model.

    The name depends on the model's files and on every version that has a say in what is recorded.
    """
    found = hashlib.sha256()
    for part in (str(DATA), text, __version__, _version_of("torch"), _version_of("transformers")):
        found.update(f"{part}\0".encode())
    for file in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        found.update((DATA / file).read_bytes())
    return cache / "recordings" / f"bundled-{found.hexdigest()[:24]}.regard"


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def recorded(path: Path) -> bool:
    """Whether a recording is complete, with every file of the size it should have."""
    try:
        return Recording.open(path).complete
    except RecordingError:
        return False


def cached_recording(
    loaded: LoadedModel, text: str, cache: Path, *, path: Path | None = None, progress: Progress | None = None
) -> Path:
    """The recording of a text, cached by model, text and version of regard, or at `path`."""
    if path is None:
        model = ModelIdentity.of(loaded.model).fingerprint
        key = hashlib.sha256("\0".join([model, text, "extend", __version__]).encode()).hexdigest()[:24]
        path = cache / "recordings" / f"{key}.regard"
    if not recorded(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        record_text(loaded, text, path, progress=progress)
    return path


def book_path(cache: Path) -> Path:
    """The cached recording of the bundled book, one per version of regard and of the model."""
    weights = (DATA / "model.safetensors").stat().st_size
    return cache / "recordings" / f"book-{__version__}-{weights}.regard"


def book_recording(loaded: LoadedModel, cache: Path, progress: Progress | None = None) -> Path:
    """The recording of the bundled book, made once."""
    path = book_path(cache)
    if not recorded(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        record_text(loaded, sample_book(), path, progress=progress)
    return path


def generate(
    loaded: LoadedModel, text: str, store: Path, job: Job, *, new_tokens: int, temperature: float
) -> Recording:
    """Continue a text token by token; report the alternatives of each token, and the keys it attended to."""
    model, tokenizer = loaded
    ids = encode(model, tokenizer, text)[0]
    read = 1 if model.config.is_encoder_decoder else ids.shape[1]
    room = (context_length(model) or read + new_tokens) - read
    if room < 1:
        raise ModelError(f"the text fills the model's context of {read} tokens. Shorten it.")
    new_tokens = min(new_tokens, room)
    random = torch.Generator().manual_seed(0)
    reader = _Reader(model)
    with torch.no_grad(), watch(model, tokenizer=tokenizer, text=text) as recording:
        for number in range(new_tokens):
            out = reader.read(ids) if number else reader.begin(ids)
            logits = out.logits[0, -1].float().cpu()
            chosen = _choice(logits, temperature, random)
            attended = _attended(recording, tokenizer) if number else []
            job.tell(
                {
                    "token": tokenizer.decode([chosen]),
                    "top": likeliest(logits, tokenizer),
                    "attended": attended,
                }
            )
            job.progress(number + 1, new_tokens)
            ids = torch.tensor([[chosen]], device=model.device)
            if chosen == tokenizer.eos_token_id and number:
                break
        # The last token is read too, so that its row is in the map.
        reader.read(ids)
    recording.save(store)
    return recording


class _Reader:
    """The model that continues the text; for an encoder-decoder, the decoder."""

    def __init__(self, model: Any) -> None:
        self.model, self.past = model, None
        self.given: dict[str, Any] = {}

    def begin(self, ids: Tensor) -> Any:
        """Read the text."""
        config = self.model.config
        if not config.is_encoder_decoder:
            return self.read(ids)
        self.given = {"input_ids": ids}
        out = self.read(ids.new_full((len(ids), 1), config.decoder_start_token_id or 0))
        self.given = {"encoder_outputs": (out.encoder_last_hidden_state,)}
        return out

    def read(self, ids: Tensor) -> Any:
        """Read the last token."""
        name = "decoder_input_ids" if self.model.config.is_encoder_decoder else "input_ids"
        options = {"past_key_values": self.past, "use_cache": True, **last_only(self.model)}
        out = self.model(**{name: ids}, **self.given, **options)
        self.past = out.past_key_values
        return out


def likeliest(logits: Tensor, tokenizer: Any, count: int = CANDIDATES) -> list[dict[str, Any]]:
    """The most probable next tokens."""
    found = logits.float().softmax(-1).topk(min(count, logits.shape[-1]))
    pairs = zip(found.values.tolist(), found.indices.tolist(), strict=True)
    return [{"token": tokenizer.decode([i]), "id": i, "probability": p} for p, i in pairs]


def last_only(model: Any) -> dict[str, int]:
    """Logits of the last token only, if the model can return them alone."""
    import inspect

    return {"logits_to_keep": 1} if "logits_to_keep" in inspect.signature(model.forward).parameters else {}


def _choice(logits: Tensor, temperature: float, random: torch.Generator) -> int:
    if temperature <= 0:
        return int(logits.argmax())
    return int(torch.multinomial((logits / temperature).softmax(-1), 1, generator=random))


def _attended(recording: Recording, tokenizer: Any) -> list[dict[str, Any]]:
    """The keys of the last row: the mean weight over all heads of keys that are among a head's heaviest."""
    mass: dict[int, float] = {}
    heads = 0
    for layer in recording.layers.values():
        top = layer.segments[-1].stats["top_k"]
        weight, key = top.weight[0, :, -1], top.key[0, :, -1]
        heads += len(weight)
        for i, w in zip(key.flatten().tolist(), weight.flatten().tolist(), strict=True):
            mass[i] = mass.get(i, 0.0) + w
    heaviest = sorted(((w / heads, i) for i, w in mass.items() if i >= 0), reverse=True)[:ATTENDED]
    read = recording.token_ids["decoder"][0].tolist()
    return [{"key": i, "token": tokenizer.decode([read[i]]), "weight": w} for w, i in heaviest]
