"""Where the models, texts and recordings are that a user names; imports nothing that takes time.

So what is not there is refused before PyTorch is loaded.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from regard.errors import ModelError

__all__ = ["COMPLETE", "PARTIAL", "holds_recording", "load_text", "located"]

# The manifest of a recording, and of one that is not finished.
COMPLETE = "manifest.json"
PARTIAL = "partial.json"


def located(name: str | Path, gguf_file: str | None = None) -> tuple[str, str | None]:
    """The folder or hub name to load from, and the GGUF file in it; ModelError if there is no model."""
    path = Path(name).expanduser()
    if path.suffix == ".gguf" and gguf_file is None:
        if not path.is_file():
            raise ModelError(f"{path} does not exist; wanted a GGUF file. Check the name.")
        return str(path.parent), path.name
    if path.is_dir():
        if gguf_file is None and not (path / "config.json").is_file():
            raise ModelError(f"{path} holds no config.json, so it is not a model that transformers saved.")
        if gguf_file is not None and not (path / gguf_file).is_file():
            raise ModelError(f"{path / gguf_file} does not exist; wanted a GGUF file. Check the name.")
        return str(path), gguf_file
    if path.is_file():
        raise ModelError(f"{path} is no model; wanted a folder with one, a .gguf file or a name on the hub.")
    text = str(name)
    if isinstance(name, Path) or text.startswith((".", "~", os.sep)) or text.count("/") > 1:
        raise ModelError(f"{path} does not exist; wanted a folder with a model. Check the name.")
    return text, gguf_file


def load_text(source: str | Path) -> str:
    """A text from a file, from stdin (`"-"`), or the string itself.

    A string is a file name if that file exists. A string that looks like a file name, with a suffix and
    without spaces, must exist. A byte order mark is removed.

    >>> load_text("Alice was beginning to get very tired.")
    'Alice was beginning to get very tired.'
    """
    if source == "-":
        return sys.stdin.read().removeprefix("\ufeff")
    if isinstance(source, Path) or _is_file(source):
        try:
            return Path(source).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ModelError(f"{source} is not a UTF-8 text: {error}. Convert it first.") from None
        except OSError as error:
            raise ModelError(f"{source} cannot be read: {error.strerror}.") from None
    if _is_folder(source):
        raise ModelError(f"{source} is a folder; wanted a text file, '-' for stdin, or the text itself.")
    if " " not in source and "\n" not in source and Path(source).suffix in (".txt", ".md", ".json", ".html"):
        raise ModelError(f"{source} does not exist; wanted a text file, '-' for stdin, or the text itself.")
    return source


def holds_recording(path: Path) -> bool:
    """Whether a folder is a recording, or holds some, whose manifests are JSON."""
    try:
        found = [
            file for part in ("", "*/") for name in (COMPLETE, PARTIAL) for file in path.glob(part + name)
        ]
        return bool(found) and all(isinstance(json.loads(file.read_bytes()), dict) for file in found)
    except (OSError, ValueError):
        return False


def _is_file(source: str) -> bool:
    try:
        return Path(source).is_file()
    except (OSError, ValueError):
        # A long text is not a file name; some systems raise an error for it.
        return False


def _is_folder(source: str) -> bool:
    try:
        return bool(source) and Path(source).is_dir()
    except (OSError, ValueError):
        return False
