"""What is recorded over and over: a small model, and recordings of random queries and keys."""

from __future__ import annotations

import hashlib
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard import Causal, observe
from regard.models import Layer, Recording
from regard.models.call import AttentionCall
from regard.models.identity import ModelIdentity
from regard.models.sites import Site
from regard.models.watch import ROWS

__all__ = ["digest", "digests", "model", "random_recording", "text"]


def model(layers: int = 3) -> Any:
    """A Llama with four query heads and two key heads, small enough to run a hundred times a second."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers and what it imports warn about themselves
        import transformers

    transformers.logging.set_verbosity_error()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=32, intermediate_size=32, num_hidden_layers=layers,
        num_attention_heads=4, num_key_value_heads=2, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return transformers.LlamaForCausalLM._from_config(config, attn_implementation="eager").eval()


def text(seed: int, length: int) -> Tensor:
    """Token ids for the model."""
    return torch.randint(3, 96, (1, length), generator=torch.Generator().manual_seed(seed))


def random_recording(path: Path, tokens: int, layers: int = 1) -> Path:
    """A recording on disk of random queries and keys under a causal mask."""
    made = Recording(ModelIdentity("random", "Random", f"{tokens:064d}"))
    for index in range(layers):
        generator = torch.Generator().manual_seed(index)
        q = 2 * torch.randn(1, 4, tokens, 8, generator=generator)
        k, v = torch.randn(2, 1, 2, tokens, 8, generator=generator)
        call = AttentionCall(q, k, v, Causal())
        layer = Layer(Site(f"model.layers.{index}.self_attn", "decoder", index))
        layer.begin(call, observe(q, k, v, stats=list(ROWS), **call.options), keep=True)
        made.put(layer)
    made.token_ids["decoder"] = torch.arange(tokens)[None] % 96
    made.save(path)
    return path


def digest(*tensors: Tensor) -> str:
    """A name for the bits of some tensors."""
    found = hashlib.sha256()
    for x in tensors:
        found.update(f"{x.dtype} {tuple(x.shape)}".encode())
        found.update(x.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def digests(recording: Recording) -> dict[int, str]:
    """Of every layer the bits of its map and of its entropy, read from disk where that is where they are."""
    return {i: digest(layer.map.dense(), layer.entropy) for i, layer in recording.layers.items()}
