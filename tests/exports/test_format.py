"""The documented format: a reader in another language finds the numbers that regard finds."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
import transformers

from regard.models import Recording, bundled, from_attentions, record

READER = Path(__file__).parents[2] / "examples" / "javascript" / "recording.mjs"
SCRIPT = """
const { open } = await import(process.argv[1]);
const found = process.argv.slice(2).map((folder) => {
  const { tokens, layers, model } = open(folder);
  const late = (l) => Array.from({ length: l.heads }, (_, head) => l.row(head, l.queries - 2));
  const rows = [...layers].map(([name, layer]) => [name, late(layer)]);
  return { tokens, kind: model.kind, rows: Object.fromEntries(rows) };
});
console.log(JSON.stringify(found));
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_a_reader_in_javascript_finds_the_same_cells(tmp_path):
    ours = record(bundled(), "The badger lit the lamp.", layers=[0, 6], store=tmp_path / "ours.regard")
    even = torch.ones(1, 2, 9, 9)
    causal = even.tril() / torch.arange(1, 10)[:, None]
    theirs = from_attentions([causal, even / 9], list("attention"))
    theirs.save(tmp_path / "theirs.regard")
    folders = [str(tmp_path / name) for name in ("ours.regard", "theirs.regard")]
    command = ["node", "--input-type=module", "-e", SCRIPT, READER.as_uri(), *folders]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    read = json.loads(done.stdout)
    assert read[0]["tokens"] == [token.text for token in ours.tokens]
    assert read[0]["kind"] == "SmolLM3ForCausalLM"
    for name, found in read[0]["rows"].items():
        wanted = ours.maps[int(name.split("/")[1])][0, :, -2]
        torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-6, rtol=1e-4)
    assert read[1]["rows"]["decoder/0"] == [[pytest.approx(1 / 8, abs=1e-6)] * 8 + [0]] * 2
    assert read[1]["rows"]["decoder/1"] == [[pytest.approx(1 / 9, abs=1e-6)] * 9] * 2


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
@pytest.mark.parametrize("how", [{"keys": "bf16"}, {"keys": "fp8", "queries": "fp8"}])
def test_a_reader_in_javascript_finds_rounded_cells(tmp_path, how):
    record(bundled(), "The badger lit the lamp.", layers=[0, 6], store=tmp_path / "x.regard", **how)
    command = ["node", "--input-type=module", "-e", SCRIPT, READER.as_uri(), str(tmp_path / "x.regard")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours = Recording.open(tmp_path / "x.regard")
    for name, found in json.loads(done.stdout)[0]["rows"].items():
        wanted = ours.maps[int(name.split("/")[1])][0, :, -2]
        torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-6, rtol=1e-4)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_the_reader_reads_every_width(tmp_path, dtype):
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=9, hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
        initializer_range=0.5,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).eval()
    made = record(model, torch.arange(9), store=tmp_path / "x.regard")
    command = ["node", "--input-type=module", "-e", SCRIPT, READER.as_uri(), str(tmp_path / "x.regard")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)[0]["rows"]["decoder/0"]
    torch.testing.assert_close(torch.tensor(found), made.maps[0][0, :, -2].float(), atol=1e-5, rtol=1e-3)


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_the_reader_names_a_layer_that_is_missing_and_a_mask_that_was_not_written(tmp_path):
    record(bundled(), "A lamp.", layers=[0], store=tmp_path / "x.regard")
    manifest = tmp_path / "x.regard" / "manifest.json"
    for layer, written, says in ((5, False, "there is no layer decoder/5; there are decoder/0"),
                                 (0, True, "the mask was not written: it is a function")):  # fmt: skip
        if written:
            said = json.loads(manifest.read_text())
            said["layers"][0]["mask"] = "it is a function"
            manifest.write_text(json.dumps(said))
        command = ["node", str(READER), str(tmp_path / "x.regard"), str(layer), "0", "1"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert says in done.stderr


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node here")
def test_the_reader_refuses_a_damaged_file(tmp_path):
    folder = tmp_path / "x.regard"
    record(bundled(), "A lamp.", layers=[0], store=folder)
    layer = next(folder.glob("*.safetensors"))
    layer.write_bytes(layer.read_bytes()[:-1] + b"!")
    command = ["node", str(READER), str(folder), "0", "0", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "is damaged" in done.stderr
