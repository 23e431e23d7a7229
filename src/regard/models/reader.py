"""Opens a recording and checks all of its contents."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import torch

from regard.errors import RecordingError
from regard.extension import implements
from regard.maps.damage import believing
from regard.models.identity import ModelIdentity
from regard.models.manifest import COMPLETE, PARTIAL, read_manifest
from regard.models.parts import PARTS, joined_parts
from regard.models.passages import Passage
from regard.models.pictures import Picture
from regard.models.recording import Recording
from regard.models.storage import check_file, layer_from
from regard.models.tokens import Token

__all__ = ["read_recording"]


@implements(Recording.open)
def read_recording(path: str | Path) -> Recording:
    """Read the manifest and check file sizes; the contents of files are checked when they are first read."""
    path = Path(path)
    if path.is_file():
        raise RecordingError(f"{path} is a file; a recording is a folder. Make one with regard record.")
    if not path.is_dir():
        raise RecordingError(f"{path} is not a recording: there is no such folder. Check the name.")
    if (path / PARTS).exists():
        return joined_parts(path, read_recording)
    manifest = next((path / name for name in (COMPLETE, PARTIAL) if (path / name).exists()), None)
    if manifest is None and any(path.glob("part-*")):
        raise RecordingError(
            f"{path} holds parts of a recording and no {PARTS}: some process did not finish. Record again."
        )
    if manifest is None:
        raise RecordingError(f"{path} is not a recording: it holds neither {COMPLETE} nor {PARTIAL}.")
    about = read_manifest(manifest)
    with believing(manifest, RecordingError, "Record again."):
        recording = Recording(ModelIdentity(**about["model"]))
        recording.path, recording.complete = path, about["complete"]
        recording.tokenizer = about["tokenizer"]
        for entry in about["layers"]:
            for part in entry["segments"]:
                check_file(part, path, content=False)
            recording.put(layer_from(entry, path))
        if about["tokens"] is not None:
            _read_tokens(recording, check_file(about["tokens"], path, content=True))
    return recording


def _read_tokens(recording: Recording, file: Path) -> None:
    with believing(file, RecordingError, "Record again."):
        _take_tokens(recording, json.loads(file.read_text(encoding="utf-8")))


def _take_tokens(recording: Recording, said: dict[str, Any]) -> None:
    recording.text = said.pop("text", None)
    recording.texts = said.pop("texts", None) or recording.texts
    for role, rows in said.pop("passages", {}).items():
        recording.note_passages(role, [[Passage(*each) for each in row] for row in rows])
    pictures = said.pop("pictures", [])
    recording.pictures = [Picture(**{**each, "png": b64decode(each["png"])}) for each in pictures]
    tokens = {"encoder": said.pop("encoder_tokens", None)}
    tokens |= {"decoder" if "decoder" in said else "encoder": said.pop("tokens", None)}
    recording.token_ids = {role: torch.tensor(rows) for role, rows in said.items()}
    for role, rows in tokens.items():
        if rows is not None:
            whole = [
                [Token(i, *rest) for i, rest in zip(row, found, strict=True)]
                for row, found in zip(said[role], rows, strict=True)
            ]
            recording.restore_tokens(whole, role)
