"""The small model that regard ships with; it loads without a network."""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard._loading import uncollected
from regard.errors import RegardError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM

__all__ = ["bundled", "sample_book", "sample_text"]

DATA = Path(__file__).parent / "data"
STORY = DATA / "story.txt"
# The note in MODEL_CARD.md about texts longer than the context.
BEYOND = "is on its card (3.29 nats a token from 65,536 to 131,072; in rows of 2,048 tokens 3.31)"


def bundled() -> tuple[SmolLM3ForCausalLM, PreTrainedTokenizerFast]:
    """Load the bundled model and its tokenizer: small, trained on children's books and adventure stories.

    A Llama whose layers differ (SmolLM3): layers 2, 5 and 8 of 9 attend to everything and know no positions,
    the others to a window of 512 tokens, with rotary positions. Grouped-query (6 query and 2 key heads),
    context 65,536, vocabulary 4096. The weights are stored in bfloat16 and come as float32, in evaluation
    mode, on the CPU. The tokenizer puts `<|endoftext|>` in front of a text, as in training; `MODEL_CARD.md`
    beside the weights says how the model was made and what it can do.

    >>> model, tokenizer = bundled()
    >>> ids = tokenizer("Once upon a", return_tensors="pt")
    >>> tokenizer.decode(model.generate(**ids, max_new_tokens=1)[0], skip_special_tokens=True)
    'Once upon a time'
    """
    try:
        with uncollected():
            from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM
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
    with uncollected():
        return _model(SmolLM3ForCausalLM), PreTrainedTokenizerFast.from_pretrained(
            DATA, local_files_only=True
        )


def _model(kind: type[SmolLM3ForCausalLM]) -> SmolLM3ForCausalLM:
    """The same model as `from_pretrained` loads, in a fraction of the time.

    `from_pretrained` first compiles a thousand patterns that rename weights of old checkpoints.
    """
    import torch
    from safetensors.torch import load_file
    from torch.overrides import TorchFunctionMode
    from transformers import GenerationConfig, SmolLM3Config

    class Undrawn(TorchFunctionMode):
        """Skips the initialisation of random weights, because stored weights replace all of them."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            given = kwargs or {}
            if getattr(func, "__module__", None) in drawing or func in draws:
                return given["tensor"] if "tensor" in given else args[0]
            return func(*args, **given)

    # While it makes a model, transformers puts functions of its own in place of PyTorch's.
    drawing = ("torch.nn.init", "transformers.initialization")
    draws = (torch.Tensor.normal_, torch.Tensor.uniform_)
    config = SmolLM3Config.from_pretrained(DATA, local_files_only=True)
    config.name_or_path = str(DATA)
    # Random numbers that transformers draws in other ways must not change the caller's random state.
    with torch.random.fork_rng(devices=[]), Undrawn():
        model = kind._from_config(config, dtype=torch.float32)
    weights = load_file(DATA / "model.safetensors")
    # Tied weights: one tensor under two names, stored once.
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    model.load_state_dict(weights)
    model.generation_config = GenerationConfig.from_pretrained(DATA, local_files_only=True)
    return model.eval()


def sample_text() -> str:
    """Return a story of two thousand tokens, written for this project.

    Names, a list and a refrain recur in it, so that induction and duplicate-token heads have something to
    find.

    >>> print(sample_text().splitlines()[0])
    The Lamp on Gullstone Hill
    """
    return STORY.read_text(encoding="utf-8")


def sample_book() -> str:
    """Return a whole book: Alice's Adventures in Wonderland, 39,659 tokens for the bundled model.

    Lewis Carroll, 1865, in the public domain; the text of Project Gutenberg's ebook 11, with typographic
    marks converted to ASCII. The bundled model was not trained on it.

    >>> sample_book().splitlines()[0]
    "Alice's Adventures in Wonderland"
    """
    return lzma.decompress((DATA / "book.txt.xz").read_bytes()).decode("utf-8")
