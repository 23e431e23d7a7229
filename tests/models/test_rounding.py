"""Keys and queries in fewer bits: what is read is what was written, and the stated error is the true one."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from regard.errors import RecordingError
from regard.models import Recording, record, watch
from regard.models.manifest import FIRST, FORMAT
from regard.models.rounding import LARGEST, restored, rounded

BOTH = {"keys": "fp8", "queries": "fp8"}


def weights64(layer) -> torch.Tensor:
    """The map from queries and keys, densely, in float64: causal, as all models here are."""
    segment = layer.segments[0]
    q, k = segment.q.double(), segment.k.double()
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q @ k.mT * layer.options["scale"]
    n = scores.shape[-1]
    seen = torch.ones(n, n, dtype=torch.bool).tril()
    return scores.masked_fill(~seen, -torch.inf).softmax(-1)


def manifest(path) -> dict:
    return json.loads((path / "manifest.json").read_text())


@pytest.fixture
def long():
    return torch.randint(3, 96, (2, 65), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def sharp(make_llama):
    """A model whose weights are far from even, so that rounding shows."""
    model = make_llama()
    for layer in model.model.layers:
        layer.self_attn.q_proj.weight.data *= 30
        layer.self_attn.k_proj.weight.data *= 30
    return model


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [1, 63])
def test_fp8_is_within_its_precision_and_rounds_nothing_twice(dtype, n):
    x = (torch.randn(2, 3, n, 8) * torch.tensor([1e-3, 1.0, 1e3])[:, None, None]).to(dtype)
    small, scale = rounded(x, "fp8")
    assert (small.dtype, scale.shape) == (torch.float8_e4m3fn, (2, 3))
    assert torch.equal(scale, 2 ** scale.log2().round())
    back = restored(small, scale, str(dtype).removeprefix("torch."))
    assert back.dtype == dtype
    # Four significant bits, or the smallest step of the head's scale.
    allowed = torch.maximum(x.double().abs() / 16, scale.double()[..., None, None] * 2**-10)
    assert ((back.double() - x.double()).abs() <= allowed).all()
    exact = small.double() * scale.double()[..., None, None]
    assert torch.equal(back.double(), exact)


def test_what_is_not_finite_does_not_decide_how_the_rest_is_rounded():
    x = torch.randn(1, 2, 9, 8)
    bad = x.clone()
    bad[0, 0, 3, 2], bad[0, 1, 4, 4] = torch.nan, torch.inf
    (small, scale), (expected, _) = rounded(bad, "fp8"), rounded(x, "fp8")
    same = bad.isfinite()
    assert torch.equal(small.float()[same], expected.float()[same])
    assert small.float()[0, 1, 4, 4] == LARGEST
    assert scale.isfinite().all()


def test_a_head_of_zeros_stays_zeros():
    small, scale = rounded(torch.zeros(1, 1, 3, 4), "fp8")
    assert (small.float().sum(), scale.item()) == (0, 1)


@pytest.mark.parametrize("how", [{"keys": "bf16"}, {"keys": "fp8"}, {"queries": "fp8"}, BOTH])
def test_the_stated_error_is_that_against_float64(sharp, long, tmp_path, how):
    with torch.no_grad(), watch(sharp) as exact:
        sharp(long)
    with torch.no_grad(), watch(sharp, store=tmp_path / "x.regard", **how) as live:
        sharp(long)
    read = Recording.open(tmp_path / "x.regard")
    for index, layer in read.layers.items():
        said = layer.rounded
        assert (said.keys, said.queries) == (how.get("keys"), how.get("queries"))
        assert said.rows[0] == 0
        assert said.rows[-1] == 64
        difference = (layer.map.dense().double() - weights64(exact.layers[index])).abs()
        assert said.largest == pytest.approx(float(difference[:, :, list(said.rows)].max()), abs=2e-6)
        assert said.largest > 1e-4
        torch.testing.assert_close(layer.map.dense().sum(-1), torch.ones(2, 4, 65), atol=1e-5, rtol=0)
        assert torch.equal(layer.entropy, exact.layers[index].entropy)
        assert layer.rounded == live.layers[index].rounded
    assert read.rounded.largest == max(layer.rounded.largest for layer in read.layers.values())
    assert f"{next(iter(how))} in {next(iter(how.values()))}" in repr(read)
    assert f"weights within {read.rounded.largest:.3g} of the exact ones in a sample" in repr(read)


def test_fp8_takes_a_quarter_of_float32_and_the_manifest_asks_for_a_newer_reader(sharp, long, tmp_path):
    sizes = {}
    for name, how in {"exact": {}, "keys": {"keys": "fp8"}, "both": BOTH}.items():
        path = tmp_path / name
        record(sharp, long, store=path, stats=(), **how)
        said = manifest(path)
        assert said["format"] == (FORMAT if how else FIRST)
        sizes[name] = sum(part["bytes"] for entry in said["layers"] for part in entry["segments"])
    with watch(sharp) as exact, torch.no_grad():
        sharp(long)
    saved = {
        name: sum(getattr(layer.segments[0], name).nbytes for layer in exact.all_layers) * 3 / 4
        for name in "kq"
    }
    # Headers differ by less than a kilobyte for each layer.
    assert sizes["exact"] - sizes["keys"] == pytest.approx(saved["k"], abs=1024)
    assert sizes["exact"] - sizes["both"] == pytest.approx(saved["k"] + saved["q"], abs=2048)


def test_keys_that_have_16_bits_are_written_as_they_are_in_bf16(sharp, long, tmp_path):
    model = sharp.bfloat16()
    record(model, long, store=tmp_path / "x.regard", keys="bf16")
    read = Recording.open(tmp_path / "x.regard")
    assert read.rounded is None
    assert manifest(tmp_path / "x.regard")["format"] == FIRST
    assert torch.equal(read.maps[1].dense(), record(model, long).maps[1].dense())


def test_a_recording_in_memory_is_rounded_when_it_is_saved(sharp, long, tmp_path):
    live = record(sharp, long)
    live.save(tmp_path / "x.regard", keys="fp8")
    record(sharp, long, store=tmp_path / "y.regard", keys="fp8")
    x, y = (Recording.open(tmp_path / name) for name in ("x.regard", "y.regard"))
    assert x.rounded == y.rounded
    assert torch.equal(x.maps[0].dense(), y.maps[0].dense())
    assert live.rounded is None


def test_generated_tokens_follow_rounded_keys(sharp, ids, tmp_path):
    with watch(sharp) as exact:
        sharp.generate(ids, max_new_tokens=4, do_sample=False)
    with watch(sharp, store=tmp_path / "x.regard", keys="fp8"):
        sharp.generate(ids, max_new_tokens=4, do_sample=False)
    read = Recording.open(tmp_path / "x.regard")
    assert read.maps[1].shape == exact.maps[1].shape
    assert read.layers[1].rounded.largest > 0
    torch.testing.assert_close(read.maps[1].dense().sum(-1), torch.ones(2, 4, 16), atol=1e-5, rtol=0)
    later = read.layers[1].segments[1].k
    assert torch.equal(later, torch.cat([s.k for s in exact.layers[1].segments[1:]], 2))


def test_an_interrupted_recording_keeps_what_it_says(sharp, long, tmp_path):
    path = tmp_path / "x.regard"
    hook = sharp.model.norm.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError), torch.no_grad(), watch(sharp, store=path, keys="fp8"):
        sharp(long)
    hook.remove()
    assert Recording.open(path).rounded.keys == "fp8"
    with torch.no_grad(), watch(sharp, store=path, keys="fp8", resume=True):
        sharp(long)
    record(sharp, long, store=tmp_path / "y.regard", keys="fp8")
    assert Recording.open(path).rounded == Recording.open(tmp_path / "y.regard").rounded


@pytest.mark.parametrize("name", ["keys", "queries"])
def test_a_wrong_word_is_refused_before_anything_runs(llama, ids, tmp_path, name):
    said = rf"{name} is 'int4'; wanted 'bf16' or 'fp8', or nothing to store them as they are\."
    for call in (
        lambda: record(llama, ids, store=tmp_path / "x", **{name: "int4"}),
        lambda: record(llama, ids).save(tmp_path / "x", **{name: "int4"}),
    ):
        with pytest.raises(RecordingError, match=said):
            call()
    assert list(tmp_path.iterdir()) == []


def test_without_a_place_on_disk_there_is_nothing_to_round(llama, ids):
    with pytest.raises(RecordingError, match="say how they are written to disk; give store="):
        record(llama, ids, keys="fp8")


def test_a_manifest_with_an_unknown_dtype_is_refused(sharp, long, tmp_path):
    from regard.models.manifest import write_manifest

    path = tmp_path / "x.regard"
    record(sharp, long, store=path, keys="fp8")
    about = manifest(path)
    about["layers"][0]["rounded"]["dtype"] = "float3"
    write_manifest(path / "manifest.json", {k: v for k, v in about.items() if k != "checksum"})
    with pytest.raises(RecordingError, match="dtype is 'float3', which no rounded tensor has"):
        Recording.open(path)


def test_the_program_writes_fp8_and_says_what_it_cost(tmp_path):
    from regard.cli import app

    path = tmp_path / "x.regard"
    run = CliRunner().invoke(
        app, ["record", "bundled", "The lamp.", "-o", str(path), "--layers", "0", "--keys", "fp8"]
    )
    assert run.exit_code == 0, run.output
    assert "keys in fp8, weights within" in " ".join(run.output.split())
    wrong = CliRunner().invoke(app, ["record", "bundled", "A", "-o", str(tmp_path / "y"), "--keys", "int4"])
    assert wrong.exit_code != 0
    assert not (tmp_path / "y").exists()
