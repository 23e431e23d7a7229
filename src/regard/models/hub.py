"""Checks with one short request whether the Hugging Face hub answers.

The hub's own library retries for half a minute before it gives up.
"""

from __future__ import annotations

from threading import Thread

from regard.errors import ModelError

__all__ = ["WAIT", "only_cached"]

# Seconds to wait for the hub's first answer.
WAIT = 5.0


def only_cached(name: str, file: str = "config.json") -> bool:
    """Whether a model must be read from the local cache, because the hub does not answer.

    Raises ModelError if the model is not in the cache either. With HF_HUB_OFFLINE no request is made, and
    transformers reads the cache by itself.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    trouble = _trouble(f"{constants.ENDPOINT}/api/models/{name}")
    if trouble is None:
        return False
    if _is_cached(name, file):
        return True
    raise ModelError(
        f"{name!r} is neither a folder here nor in the local cache of the Hugging Face hub, and "
        f"{constants.ENDPOINT} gives no answer ({trouble}). Check the spelling and the network; a folder or "
        "a .gguf file needs no network."
    )


def _trouble(address: str) -> str | None:
    """Why an address doesn't answer; None if it does, even with an error status."""
    found = [f"nothing within {WAIT:g} s"]

    def ask() -> None:
        from huggingface_hub import get_session

        try:
            get_session().head(address, timeout=WAIT)
            found[0] = ""
        except Exception as error:  # of whatever library the hub's client is made with
            found[0] = str(error).partition("\n")[0].rstrip(".") or type(error).__name__

    # In a thread, because DNS lookups have no time limit.
    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(WAIT)
    return found[0] or None


def _is_cached(name: str, file: str) -> bool:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        return isinstance(try_to_load_from_cache(name, file), str)
    except HFValidationError:
        return False
