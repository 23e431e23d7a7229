"""Recordings on disk: what was saved is what is read, or the reader is told why not."""

from __future__ import annotations

import json
import logging

import pytest
import torch
from safetensors.torch import load_file, save

from processes import python
from regard import Dense, Entropy, Pooled, TopK
from regard.errors import RegardError
from regard.models import Recording, backlog, storage, watch
from regard.models.manifest import FORMAT, read_manifest, write_manifest
from regard.models.manifest import entry_of as manifest_entry


@pytest.fixture
def recorded(llama, ids):
    with watch(llama, stats=[Entropy(), TopK(3), Pooled(4)]) as recording:
        llama.generate(ids, max_new_tokens=4, do_sample=False)
    return recording


def same(ours: Recording, theirs: Recording) -> bool:
    pairs = zip(ours.all_layers, theirs.all_layers, strict=True)
    return all(a.site == b.site and torch.equal(a.map.dense(), b.map.dense()) for a, b in pairs)


def layer_file(path, index=0):
    return sorted(path.glob("*.safetensors"))[index]


def test_a_saved_recording_reads_as_it_was(recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    assert read.complete
    assert same(read, recorded)
    assert read.model == recorded.model
    assert torch.equal(read.token_ids["decoder"], recorded.token_ids["decoder"])
    for index in recorded.layers:
        mine, theirs = recorded.layers[index], read.layers[index]
        assert mine.mask == theirs.mask
        assert mine.mask_text == theirs.mask_text == "Causal()"
        assert mine.site == theirs.site
        assert (theirs.prompt, theirs.rows) == (13, 16)
        assert torch.equal(mine.entropy, theirs.entropy)
        assert torch.equal(mine.top_k.key, theirs.top_k.key)
        assert torch.equal(mine.pooled, theirs.pooled)
        assert torch.equal(mine.trace["top_k"].weight, theirs.trace["top_k"].weight)


def test_an_encoder_decoder_with_position_bias_reads_as_it_was(t5, ids, tmp_path):
    with watch(t5) as recording:
        t5.generate(ids, max_new_tokens=4, do_sample=False)
    recording.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    assert list(read.stacks) == ["decoder", "encoder", "cross"]
    assert same(read, recording)


def test_half_precision_is_saved_as_it_is(make_llama, ids, tmp_path):
    model = make_llama().bfloat16()
    with watch(model) as recording:
        model(ids)
    recording.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    assert read.maps[0].problem.q.dtype == torch.bfloat16
    assert same(read, recording)


def test_a_mask_that_is_a_function_is_saved_as_its_matrix(llama, ids, tmp_path):
    with watch(llama, layers=[0]) as recording:
        llama(ids)
    layer = recording.layers[0]
    from regard.masks import Where

    layer.mask = layer.first_mask = Where(lambda b, h, q, k: (q - k).abs() < 3)
    layer.segments = layer.segments
    layer._map = None
    expected = layer.map.dense()
    recording.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    assert isinstance(read.layers[0].mask, Dense)
    assert torch.equal(read.layers[0].map.problem.mask.dense(13, 13), layer.mask.dense(13, 13))
    assert torch.allclose(read.maps[0].scores((0,)).isinf(), (expected[0] == 0))


def test_overwrite_replaces_a_recording(llama, ids, recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    before = set(tmp_path.glob("x.regard/*.safetensors"))
    with watch(llama) as other:
        llama(ids[:1, :5])
    other.save(tmp_path / "x.regard", overwrite=True)
    assert same(Recording.open(tmp_path / "x.regard"), other)
    assert not before & set(tmp_path.glob("x.regard/*"))


def test_a_recording_is_not_overwritten_unasked(llama, ids, recorded, tmp_path):
    path = tmp_path / "x.regard"
    recorded.save(path)
    message = r"x\.regard holds a recording already, and it is not overwritten\. Choose another name, or repl"
    with pytest.raises(RegardError, match=message):
        recorded.save(path)
    with pytest.raises(RegardError, match=message), watch(llama, store=path):
        raise AssertionError("the model must not run")
    assert same(Recording.open(path), recorded)


def test_resuming_a_complete_recording_says_that_nothing_is_missing(llama, recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    with pytest.raises(RegardError, match=r"x\.regard is complete: there is nothing to resume"):
        recorded.save(tmp_path / "x.regard", resume=True)


def test_a_recording_replaced_while_open_says_so(llama, ids, recorded, tmp_path):
    path = tmp_path / "x.regard"
    recorded.save(path)
    opened = Recording.open(path)
    with watch(llama) as other:
        llama(ids[:1, :5])
    other.save(path, overwrite=True)
    with pytest.raises(RegardError, match=r"was replaced by another recording after this one was opened"):
        opened.maps[0].dense()


def test_the_size_is_stated_before_it_is_written(recorded, tmp_path, caplog):
    with caplog.at_level(logging.INFO, logger="regard"):
        recorded.save(tmp_path / "x.regard")
    assert f"({len(recorded.layers)} layers) to {tmp_path / 'x.regard'}" in caplog.text
    written = sum(file.stat().st_size for file in tmp_path.glob("x.regard/*.safetensors"))
    assert recorded.nbytes <= written < recorded.nbytes + 16 * 1024


def test_streaming_writes_a_layer_while_the_next_is_computed_and_keeps_none_in_memory(
    llama, ids, tmp_path, monkeypatch
):
    path = tmp_path / "x.regard"
    monkeypatch.setattr(backlog, "WORKERS", 1)
    seen = []
    hook = llama.model.norm.register_forward_pre_hook(lambda *_: seen.append(Recording.open(path)))
    with watch(llama, store=path) as recording:
        llama(ids)
        assert not recording.layers[0].loaded
    hook.remove()
    assert not seen[0].complete
    assert 0 in seen[0].layers
    with watch(llama) as expected:
        llama(ids)
    assert same(recording, expected)
    assert same(Recording.open(path), expected)


def test_streaming_takes_generated_tokens_along(llama, ids, recorded, tmp_path):
    path = tmp_path / "x.regard"
    with watch(llama, stats=[Entropy(), TopK(3)], store=path):
        llama.generate(ids, max_new_tokens=4, do_sample=False)
    read = Recording.open(path)
    assert read.layers[0].rows == 16
    assert same(read, recorded)


def test_streaming_a_second_text_leaves_only_the_second(llama, ids, tmp_path):
    path = tmp_path / "x.regard"
    with watch(llama, store=path):
        llama(ids)
        llama(ids[:1, :5])
    assert Recording.open(path).maps[1].shape == (1, 4, 5, 5)
    assert len(list(path.glob("*.safetensors"))) == 2


def interrupted(model, ids, path, **options):
    """Record until Ctrl-C comes, in the second layer."""

    def press(*_):
        raise KeyboardInterrupt

    hook = model.model.layers[1].register_forward_pre_hook(press)
    with pytest.raises(KeyboardInterrupt), watch(model, store=path, **options):
        model(ids)
    hook.remove()


def test_an_interrupted_recording_opens_as_a_partial_one(llama, ids, tmp_path):
    interrupted(llama, ids, tmp_path / "x.regard")
    partial = Recording.open(tmp_path / "x.regard")
    assert not partial.complete
    assert "partial" in repr(partial)
    assert list(partial.layers) == [0]
    assert partial.maps[0].shape == (2, 4, 13, 13)
    with pytest.raises(RegardError, match="layer 1 of the decoder was not recorded; recorded are: 0"):
        partial.maps[1]


def test_a_copy_of_a_partial_recording_is_partial(llama, ids, tmp_path):
    interrupted(llama, ids, tmp_path / "x.regard")
    Recording.open(tmp_path / "x.regard").save(tmp_path / "copy.regard")
    assert not Recording.open(tmp_path / "copy.regard").complete


def test_an_interrupted_pass_does_not_confuse_the_next(llama, ids):
    def press(*_):
        raise KeyboardInterrupt

    with watch(llama) as recording:
        hook = llama.model.layers[1].register_forward_pre_hook(press)
        with pytest.raises(KeyboardInterrupt):
            llama(ids)
        hook.remove()
        llama(ids[:1, :5])
    assert recording.token_ids["decoder"].shape == (1, 5)
    assert [layer.rows for layer in recording.all_layers] == [5, 5]


def test_resuming_completes_a_partial_recording_without_writing_layers_again(llama, ids, tmp_path):
    path = tmp_path / "x.regard"
    interrupted(llama, ids, path)
    kept = layer_file(path)
    stamp = kept.stat().st_mtime_ns
    with watch(llama, store=path, resume=True):
        llama(ids)
    with watch(llama) as expected:
        llama(ids)
    read = Recording.open(path)
    assert read.complete
    assert torch.allclose(read.maps[1].dense(), expected.maps[1].dense(), atol=1e-6)
    assert kept.stat().st_mtime_ns == stamp


def test_resuming_with_another_text_or_model_is_refused(make_llama, llama, ids, tmp_path):
    path = tmp_path / "x.regard"
    interrupted(llama, ids, path)
    message = "the partial recording at .* is of another text; give the same tokens"
    with pytest.raises(RegardError, match=message), watch(llama, store=path, resume=True):
        llama(ids + 1)
    other = make_llama(hidden_size=16)
    message = "the partial recording at .* with another config or other weights"
    with pytest.raises(RegardError, match=message), watch(other, store=path, resume=True):
        other(ids)


def test_a_partial_recording_is_completed_or_replaced_but_not_by_accident(llama, ids, tmp_path):
    path = tmp_path / "x.regard"
    interrupted(llama, ids, path)
    message = r"holds a recording that was cut short\. Complete it with resume=True .*overwrite=True"
    with pytest.raises(RegardError, match=message), watch(llama, store=path):
        pass
    with watch(llama, store=path, overwrite=True):
        llama(ids)
    assert Recording.open(path).complete


def test_a_partial_recording_does_not_hide_the_complete_one_it_would_replace(llama, ids, recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    interrupted(llama, ids[:1, :5], tmp_path / "x.regard", overwrite=True)
    assert same(Recording.open(tmp_path / "x.regard"), recorded)


@pytest.mark.parametrize("place", [0, 100, -1])
def test_a_flipped_bit_is_noticed_and_the_file_named(recorded, tmp_path, place):
    recorded.save(tmp_path / "x.regard")
    file = layer_file(tmp_path / "x.regard")
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)
    read = Recording.open(tmp_path / "x.regard")
    with pytest.raises(RegardError, match=f"{file.name} is damaged: its checksum does not match"):
        _ = read.layers[0].map
    assert read.layers[1].map is not None


def test_a_cut_or_missing_file_is_named_on_opening(recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    file = layer_file(tmp_path / "x.regard")
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    message = f"{file.name} has {len(whole) - 1} bytes and should have {len(whole)}: it was cut"
    with pytest.raises(RegardError, match=message):
        Recording.open(tmp_path / "x.regard")
    file.unlink()
    with pytest.raises(RegardError, match=f"{file.name} is missing, and the recording needs it"):
        Recording.open(tmp_path / "x.regard")


def test_any_changed_byte_of_the_manifest_is_noticed(recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    manifest = tmp_path / "x.regard" / "manifest.json"
    whole = manifest.read_bytes()
    for place in range(1, len(whole), len(whole) // 40):
        changed = bytearray(whole)
        changed[place] ^= 4
        manifest.write_bytes(changed)
        try:
            same_meaning = json.loads(changed) == json.loads(whole)
        except ValueError:
            same_meaning = False
        if not same_meaning:
            with pytest.raises(RegardError, match=r"manifest.json is|has format"):
                Recording.open(tmp_path / "x.regard")


def test_a_recording_of_a_newer_format_is_refused(recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    manifest = tmp_path / "x.regard" / "manifest.json"
    about = read_manifest(manifest)
    write_manifest(manifest, about)
    newer = {**about, "format": FORMAT + 1, "regard": "99.0"}
    manifest.write_text(json.dumps(newer))
    message = rf"x.regard has format {FORMAT + 1}, written by regard 99.0; this regard .* Upgrade regard"
    with pytest.raises(RegardError, match=message):
        Recording.open(tmp_path / "x.regard")


def test_what_is_no_recording_is_refused(tmp_path):
    with pytest.raises(RegardError, match="is not a recording: there is no such folder"):
        Recording.open(tmp_path / "nowhere.regard")
    with pytest.raises(RegardError, match=r"holds neither manifest.json nor partial.json"):
        Recording.open(tmp_path)


def test_saving_never_overwrites_what_is_no_recording(recorded, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    with pytest.raises(
        RegardError, match="holds something other than a recording; nothing in it is overwritten"
    ):
        recorded.save(tmp_path / "notes")
    with pytest.raises(RegardError, match=r"mine.txt is a file; a recording is a folder"):
        recorded.save(tmp_path / "notes" / "mine.txt")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "keep"


def test_an_empty_recording_has_nothing_to_save(llama, tmp_path):
    with pytest.raises(RegardError, match="there is nothing to save: no layer was recorded"):
        Recording.of(llama).save(tmp_path / "x.regard")


def test_a_model_that_changed_since_is_noticed(llama, recorded, tmp_path):
    recorded.save(tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    read.check_model(llama)
    with torch.no_grad():
        llama.model.layers[1].self_attn.q_proj.weight.mul_(1.001)
    with pytest.raises(
        RegardError, match="with another config or other weights; what it computes now is not"
    ):
        read.check_model(llama)


def test_opening_costs_no_reading_of_tensors(make_llama, tmp_path, monkeypatch):
    model = make_llama(num_hidden_layers=3)
    with torch.no_grad(), watch(model) as recording:
        model(torch.randint(3, 96, (1, 4001)))
    recording.save(tmp_path / "x.regard")
    monkeypatch.setattr(storage, "_read_segment", lambda *args: pytest.fail("a tensor was read"))
    read = Recording.open(tmp_path / "x.regard")
    monkeypatch.undo()
    assert not any(layer.loaded for layer in read.all_layers)
    assert read.maps[1][0, 0, 4000, 3990:].shape == (11,)
    assert [layer.loaded for layer in read.all_layers] == [False, True, False]


def test_a_recording_opens_without_transformers_and_without_the_compiler(llama, ids, tmp_path):
    with watch(llama, store=tmp_path / "x.regard"):
        llama(ids)
    script = (
        "import sys; from regard.models import Recording; r = Recording.open(sys.argv[1]); r.maps[0].dense();"
        "print([name for name in ('transformers', 'torch._dynamo', 'rich') if name in sys.modules])"
    )
    done = python("-c", script, tmp_path / "x.regard", check=True)
    assert done.stdout.strip() == "[]"


def edited(path, change) -> None:
    """Change what the manifest says, with a checksum that fits."""
    about = read_manifest(path / "manifest.json")
    change(about)
    write_manifest(path / "manifest.json", {key: value for key, value in about.items() if key != "checksum"})


MANIFESTS = {
    "no layers": (lambda about: about.pop("layers"), r"manifest\.json is damaged .*\(KeyError: 'layers'\)"),
    "no model": (lambda about: about.update(model=7), r"manifest\.json is damaged .*\(TypeError: "),
    "no digest": (
        lambda about: about["layers"][0]["segments"][0].pop("sha256"),
        r"manifest\.json is damaged .*\(KeyError: 'sha256'\)",
    ),
    "a frame of another type": (
        lambda about: about["layers"][0]["frame"].update(q="x"),
        r"q is 'x'; a Frame of a recording has int there\. Record again\.",
    ),
    "a mask of another kind": (
        lambda about: about["layers"][0].update(mask={"type": "Wndow"}),
        r"manifest\.json is damaged .*no mask is called 'Wndow'",
    ),
    "a file elsewhere": (
        lambda about: about["layers"][0]["segments"][0].update(file="../x.safetensors"),
        r"names '\.\./x\.safetensors', which is no file of that folder\. Record again\.",
    ),
}


@pytest.mark.parametrize("name", MANIFESTS)
def test_a_manifest_that_says_what_cannot_be_is_refused_with_the_reason(recorded, tmp_path, name):
    path = tmp_path / "x.regard"
    recorded.save(path)
    change, message = MANIFESTS[name]
    edited(path, change)
    with pytest.raises(RegardError, match=message):
        Recording.open(path)


def rewritten(path, entry_of, data: bytes) -> None:
    """Replace a file of a recording, with a size and a checksum that fit."""
    about = read_manifest(path / "manifest.json")
    entry = entry_of(about)
    (path / entry["file"]).write_bytes(data)
    edited(path, lambda said: entry_of(said).update(manifest_entry(path / entry["file"])))


@pytest.mark.parametrize(
    "data", [b"\xff", b"[", b"{}", b'{"decoder": ["x"]}', b'{"decoder": [[1]], "tokens": 1}']
)
def test_tokens_that_cannot_be_read_are_refused_with_the_name_of_their_file(recorded, tmp_path, data):
    path = tmp_path / "x.regard"
    recorded.save(path)
    rewritten(path, lambda about: about["tokens"], data)
    if data == b"{}":
        assert Recording.open(path).token_ids == {}
        return
    with pytest.raises(
        RegardError, match=r"-tokens-1\.json is damaged and cannot be read \(.*Record again\.$"
    ):
        Recording.open(path)


@pytest.mark.parametrize("change", ["header", "shape", "missing"])
def test_a_layer_that_is_no_layer_is_refused_with_the_name_of_its_file(recorded, tmp_path, change):
    path = tmp_path / "x.regard"
    recorded.save(path)
    file = layer_file(path)
    tensors = load_file(file)
    if change == "shape":
        tensors["q"] = tensors["q"][:, :, :3].contiguous()
    if change == "missing":
        del tensors["lse"]
    data = b"\xff" * 100 if change == "header" else save(tensors)
    rewritten(
        path,
        lambda about: next(
            part for entry in about["layers"] for part in entry["segments"] if part["file"] == file.name
        ),
        data,
    )
    read = Recording.open(path)
    with pytest.raises(RegardError, match=rf"{file.name} is damaged and cannot be read \(.*Record again\.$"):
        read.maps[0].dense()
