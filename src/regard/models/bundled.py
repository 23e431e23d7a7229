"""The model that comes with regard: small, ours, and loaded without a network."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from regard.errors import RegardError

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

__all__ = ["bundled", "sample_text"]

DATA = Path(__file__).parent / "data"


def bundled() -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """A model to look at and its tokenizer: a small Llama that read children's books and adventure stories.

    8 layers, grouped-query (8 query and 4 key heads), rotary positions, context 2048, vocabulary 4096. The
    weights are stored in bfloat16 and come as float32, in evaluation mode, on the CPU. The tokenizer puts
    `<|endoftext|>` in front of a text, as in training; `MODEL_CARD.md` beside the weights says how the model
    was made and what it can do.

    >>> model, tokenizer = bundled()
    >>> ids = tokenizer("Once upon a", return_tensors="pt")
    >>> tokenizer.decode(model.generate(**ids, max_new_tokens=1)[0], skip_special_tokens=True)
    'Once upon a time'
    """
    try:
        with _uncollected():
            from transformers import LlamaForCausalLM, PreTrainedTokenizerFast
    except ImportError as error:
        raise RegardError(
            f"the bundled model needs transformers, which cannot be imported here ({error}). "
            "Install it with: pip install transformers"
        ) from error
    missing = [
        name for name in ("config.json", "model.safetensors", "tokenizer.json") if not (DATA / name).exists()
    ]
    if missing:
        raise RegardError(
            f"the bundled model lacks {' and '.join(missing)} in {DATA}; this copy of regard is incomplete. "
            "Reinstall regard, or in a checkout make them as training/README.md says."
        )
    with _uncollected():
        return _model(LlamaForCausalLM), PreTrainedTokenizerFast.from_pretrained(DATA, local_files_only=True)


def _model(kind: type[LlamaForCausalLM]) -> LlamaForCausalLM:
    """The model as `from_pretrained` gives it, in a fifth of the time.

    That function first compiles a thousand patterns with which old checkpoints are renamed; ours is not old.
    """
    import torch
    from safetensors.torch import load_file
    from transformers import GenerationConfig, LlamaConfig

    config = LlamaConfig.from_pretrained(DATA, local_files_only=True)
    config.name_or_path = str(DATA)
    # Random weights are drawn and then overwritten: that must not change what is drawn next.
    with torch.random.fork_rng(devices=[]):
        model = kind._from_config(config, dtype=torch.float32)
    weights = load_file(DATA / "model.safetensors")
    # One tensor under two names, and stored once.
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    model.generation_config = GenerationConfig.from_pretrained(DATA, local_files_only=True)
    return model.eval()


def sample_text() -> str:
    """A story to look at, written for this project; it fills the bundled model's context almost exactly.

    Names, a list and a refrain come back in it again and again, so that heads which look for what was seen
    before have something to find.

    >>> print(sample_text().splitlines()[0])
    The Lamp on Gullstone Hill
    """
    return (DATA / "story.txt").read_text(encoding="utf-8")


@contextmanager
def _uncollected() -> Iterator[None]:
    """Collect no garbage meanwhile: transformers brings 1,500 modules, and none of it is garbage."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
