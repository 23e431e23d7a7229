"""Hostile files: recordings, observations, safetensors headers and GGUF files, damaged at random.

Reading them ends well or with one of our errors: no crash, no hang, no memory without end.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path

import torch

from choice import Choice, Seeded
from fuzzing.child import survives
from fuzzing.mutation import damaged_bytes, damaged_header, damaged_json
from fuzzing.target import Target
from regard import observe
from regard.maps import Observation
from regard.masks import Causal, Documents, Window
from regard.models import Recording
from regard.models.manifest import COMPLETE, entry_of, read_manifest, write_manifest
from regard.stats import ColumnMass, Entropy, TopK

__all__ = ["GGUF", "OBSERVATIONS", "RECORDED"]


@cache
def good() -> Path:
    """A folder with one good file of every kind, made once a process."""
    from viewer.samples import layer, recording

    folder = Path(tempfile.mkdtemp(prefix="fuzzing-"))
    documents = Causal() & Documents(lengths=[3, 4])
    recording(
        layer(0, 7, 7, Causal() & Window(3)),
        layer(1, 7, 7, documents, softcap=3.0),
        layer(0, 5, 7, None, role="cross", kv_heads=4),
    ).save(folder / "good.regard")
    q, k, v = torch.randn(3, 1, 2, 9, 4, generator=torch.Generator().manual_seed(0)).unbind()
    observe(q, k, v, Causal(), stats=[Entropy(), ColumnMass(), TopK(2)]).save(folder / "good.safetensors")
    return folder


def damage_recording(choice: Choice, path: Path) -> None:
    """Damage any part of a recording; often with checksums that fit, as an attacker would write them."""
    manifest = path / COMPLETE
    about = read_manifest(manifest)
    kind = choice.integer(0, 4)
    if kind == 0:
        file = choice.pick(sorted(path.iterdir()))
        file.write_bytes(damaged_bytes(choice, file.read_bytes()))
        return
    if kind == 1:
        said = {key: value for key, value in about.items() if key != "checksum"}
        said = damaged_json(choice, said)
        if isinstance(said, dict):
            write_manifest(manifest, said)
        else:
            manifest.write_text(json.dumps(said))
        return
    if kind == 2:
        entry = about["tokens"]
        file = path / entry["file"]
        if choice.flag():
            file.write_text(json.dumps(damaged_json(choice, json.loads(file.read_text()))))
        else:
            file.write_bytes(damaged_bytes(choice, file.read_bytes()))
    else:
        entry = choice.pick(choice.pick(about["layers"])["segments"])
        file = path / entry["file"]
        damage = damaged_header if kind == 3 else damaged_bytes
        file.write_bytes(damage(choice, file.read_bytes()))
    entry |= entry_of(file)
    write_manifest(manifest, about)


def read_recording(path: Path) -> None:
    """Everything a recording can be asked."""
    from regard.viewer.shapes import shapes_on_disk

    read = Recording.open(path)
    repr(read), read.text, read.tokens, read.nbytes
    shapes_on_disk(read, read_manifest(path / COMPLETE), path)
    for layer in read.all_layers:
        layer.mask_text, layer.map.dense(), layer.stats, layer.rows, layer.keys
    read.save(path.with_name("copy.regard"))


def check_recording(seed: int) -> int:
    choice = Seeded(seed)
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        path = Path(folder) / "bad.regard"
        shutil.copytree(good() / "good.regard", path)
        damage_recording(choice, path)
        survives(lambda: read_recording(path))
    return 1


def check_observation(seed: int) -> int:
    choice = Seeded(seed)
    data = (good() / "good.safetensors").read_bytes()
    damage = choice.pick((damaged_header, damaged_header, damaged_bytes))
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        path = Path(folder) / "bad.safetensors"
        path.write_bytes(damage(choice, data))

        def read() -> None:
            seen = Observation.load(path)
            repr(seen)
            seen.map.dense()

        survives(read)
    return 1


@cache
def good_gguf() -> bytes:
    """A Llama of two layers, as llama.cpp writes it."""
    from models.conftest import tiny_llama
    from models.test_gguf import write_gguf

    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        path = Path(folder) / "tiny.gguf"
        write_gguf(tiny_llama(), path)
        return path.read_bytes()


def check_gguf(seed: int) -> int:
    choice = Seeded(seed)
    data = good_gguf()
    # All but the weights: a damaged weight is a weight.
    end = 8192 if choice.integer(0, 3) else len(data)
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        path = Path(folder) / "bad.gguf"
        path.write_bytes(damaged_bytes(choice, data[:end]) + data[end:])

        def read() -> None:
            from regard.models import load_model

            load_model(path)

        survives(read)
    return 1


RECORDED = Target("recorded", "one damaged recording, read in full", check_recording, tested=25)
OBSERVATIONS = Target("observations", "one damaged file of an observation", check_observation, tested=25)
GGUF = Target("gguf", "one damaged GGUF file", check_gguf, tested=1)
