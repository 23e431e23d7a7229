"""Loads a model and its tokenizer from a local folder, a GGUF file, or the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch

from regard.errors import ModelError
from regard.models.bundled import bundled
from regard.models.gguf_files import read_once
from regard.models.hub import only_cached
from regard.places import located

__all__ = ["LoadedModel", "device_named", "dtype_named", "load_model"]


class LoadedModel(NamedTuple):
    """A model, ready to run, and its tokenizer; for a model that reads images or sounds, its processor."""

    model: Any
    tokenizer: Any


def load_model(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    device_map: str | dict[str, Any] | None = None,
    gguf_file: str | None = None,
    processor: bool = False,
) -> LoadedModel:
    """Load a transformers model and its tokenizer, in evaluation mode.

    A folder or a .gguf file is read without a network, "bundled" is the model that regard ships with, and any
    other name is looked up on the Hugging Face hub. `dtype` ("bfloat16" or torch.bfloat16) defaults to that
    of the saved weights. `device_map="auto"` spreads a large model over devices, `device` puts all of it on
    one, and `device="auto"` uses a GPU if there is one. With `processor`, the processor for images and sounds
    takes the place of the tokenizer.
    """
    if device is not None and device_map is not None:
        raise ModelError(f"load_model got device={device!r} and device_map={device_map!r}; give one of them.")
    place = device_named(device)
    if name_or_path == "bundled":
        model, tokenizer = cast("tuple[Any, Any]", bundled())
        kind = None if dtype in (None, "auto") else dtype_named(dtype)
        return LoadedModel(model if place is kind is None else model.to(device=place, dtype=kind), tokenizer)
    where, gguf_file = located(name_or_path, gguf_file)
    local = os.path.isdir(where) or only_cached(where, gguf_file or "config.json")
    options: dict[str, Any] = {"local_files_only": local}
    if gguf_file is not None:
        _check_gguf(where, gguf_file)
        options["gguf_file"] = gguf_file
    wanted: dict[str, Any] = {"dtype": _dtype(dtype), **options}
    if device_map is not None:
        wanted["device_map"] = device_map
    with read_once() if gguf_file is not None else nullcontext():
        config = _config(where, options)
        tokenizer = _tokenizer(where, options, processor)
        model = _model(where, config, wanted)
    if gguf_file is not None:
        # transformers names the model after the folder, which may hold several GGUF files.
        model.config.name_or_path = _spelled(where, gguf_file)
    return LoadedModel((model if place is None else model.to(place)).eval(), tokenizer)


def device_named(device: str | torch.device | None) -> torch.device | None:
    """A device by its name; "auto" is a GPU if there is one, otherwise the CPU.

    >>> device_named("cpu")
    device(type='cpu')
    """
    if device is None or isinstance(device, torch.device):
        return device
    if device == "auto":
        found = torch.accelerator.current_accelerator(check_available=True)
        return torch.device("cpu") if found is None else found
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ModelError(
            f"device {device!r} cannot be used here: {_first_line(error)}. Use 'cpu', or 'auto' for a GPU "
            "if there is one."
        ) from None
    return place


def dtype_named(dtype: str | torch.dtype) -> torch.dtype:
    """A float type by its name.

    >>> dtype_named("bfloat16")
    torch.bfloat16
    """
    found: object = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ModelError(
            f"dtype is {dtype!r}; wanted a float type such as 'float32', 'bfloat16' or 'float16'."
        )
    return found


def _dtype(dtype: str | torch.dtype | None) -> str | torch.dtype:
    return "auto" if dtype is None or dtype == "auto" else dtype_named(dtype)


def _check_gguf(where: str, gguf_file: str) -> None:
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(
            f"{_spelled(where, gguf_file)} needs the gguf package, which is not installed. Install it with: "
            "pip install 'regard[gguf]'"
        )


def _tokenizer(where: str, options: dict[str, Any], processor: bool) -> Any:
    from transformers import AutoTokenizer

    name = _spelled(where, options.get("gguf_file"))
    if processor:
        # Imported here, because it imports all image and audio processors.
        from transformers import AutoProcessor

        try:
            return AutoProcessor.from_pretrained(where, **options)
        except Exception as error:  # a missing file or library may raise any exception
            raise ModelError(f"the processor of {name} cannot be loaded: {_first_line(error)}.") from error
    try:
        return AutoTokenizer.from_pretrained(where, **options)
    except Exception as error:  # a missing tokenizer may raise any exception
        raise ModelError(
            f"{name} has a model but no tokenizer that can be loaded ({_first_line(error)}). Put its "
            "tokenizer.json and tokenizer_config.json beside it, or load the model with transformers and "
            "watch it without text."
        ) from error


def _config(where: str, options: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(where, **options)
    except Exception as error:  # a damaged file can raise anything
        raise ModelError(_unknown(where, _spelled(where, options.get("gguf_file")), error)) from error


def _model(where: str, config: Any, options: dict[str, Any]) -> Any:
    import transformers

    named = [getattr(transformers, name, None) for name in config.architectures or ()]
    kind = next((found for found in named if found is not None), None)
    if kind is None:
        causal = type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING
        kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    try:
        return kind.from_pretrained(where, config=config, **options)
    except Exception as error:  # a damaged file can raise anything
        name = _spelled(where, options.get("gguf_file"))
        raise ModelError(f"the model at {name} cannot be loaded: {_first_line(error)}.") from error


def _spelled(where: str, gguf_file: str | None) -> str:
    return where if gguf_file is None else os.path.join(where, gguf_file)


def _unknown(where: str, name: str, error: Exception) -> str:
    if os.path.isdir(where):
        return f"the model at {name} cannot be read: {_first_line(error)}."
    return (
        f"{where!r} is neither a folder here nor a model that the Hugging Face hub gave us "
        f"({_first_line(error)}). Check the spelling, the network and, for gated models, that you are logged "
        "in."
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
