"""Watching on a GPU: what the CPU tests say holds there too."""

from __future__ import annotations

import pytest
import torch

from regard import ColumnMass, Decay, Entropy, Pooled, TopK
from regard.models import Recording, record, watch

pytestmark = pytest.mark.gpu

STATS = [Entropy(), ColumnMass(), Decay(), Pooled(8, "both"), TopK(3)]


@pytest.fixture
def model(make_llama):
    return make_llama().cuda()


def eager(model, ids, **options):
    with torch.no_grad():
        return model(ids, output_attentions=True, **options)


@torch.no_grad()
def test_logits_maps_and_statistics_are_those_of_eager_attention(model, ids):
    ids = ids.cuda()
    expected = eager(model, ids)
    with watch(model, stats=STATS) as recording:
        out = model(ids)
    assert torch.allclose(out.logits, expected.logits, atol=1e-4)
    for layer, weights in enumerate(expected.attentions):
        assert torch.allclose(recording.maps[layer].dense(), weights, atol=1e-4)
        assert torch.allclose(recording.layers[layer].column_mass, weights.sum(2), atol=1e-3)


@torch.no_grad()
def test_padded_batches_hide_their_padding(model, ids):
    ids = ids.cuda()
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    expected = eager(model, ids, attention_mask=mask)
    with watch(model) as recording:
        model(ids, attention_mask=mask)
    real = mask.bool()
    ours = recording.maps[1].dense().movedim(2, 1)[real]
    assert torch.allclose(ours, expected.attentions[1].movedim(2, 1)[real], atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_recording_from_the_gpu_reads_on_the_cpu_with_the_same_numbers(model, ids, tmp_path, dtype):
    model = model.to(dtype)
    live = record(model, ids, stats=STATS)
    record(model, ids, stats=STATS, store=tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    for layer in live.layers:
        assert read.maps[layer].device.type == "cpu"
        assert torch.allclose(read.maps[layer].dense(), live.maps[layer].dense().cpu(), atol=1e-3)
        assert torch.equal(read.layers[layer].entropy, live.layers[layer].entropy.cpu())
        assert torch.equal(read.layers[layer].top_k.key, live.layers[layer].top_k.key.cpu())


def test_generated_tokens_are_appended_as_on_the_cpu(model, make_llama, ids):
    made = []
    for runner, prompt in ((model, ids.cuda()), (make_llama(), ids)):
        with watch(runner) as recording:
            runner.generate(prompt, max_new_tokens=4, do_sample=False)
        made.append(recording)
    assert made[0].maps[1].shape == made[1].maps[1].shape
    assert torch.equal(made[0].token_ids["decoder"], made[1].token_ids["decoder"])
    assert torch.allclose(made[0].maps[1].dense().cpu(), made[1].maps[1].dense(), atol=1e-4)


def test_windows_stand_alone_on_the_gpu(make_llama, ids):
    model = make_llama(max_position_embeddings=5).cuda()
    whole = record(model, ids, too_long="windows").maps[1].dense()
    alone = record(model, ids[:, 5:10]).maps[1].dense()
    assert torch.allclose(whole[:, :, 5:10, 5:10], alone, atol=1e-4)


def test_streaming_to_disk_holds_one_layer_on_the_gpu_at_a_time(make_llama, tmp_path):
    model = make_llama(num_hidden_layers=12, max_position_embeddings=4096).cuda()
    ids = torch.randint(3, 96, (1, 4096))
    peaks = []
    for options in ({}, {"store": tmp_path / "x.regard"}):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        recording = record(model, ids, **options)
        peaks.append(torch.cuda.max_memory_allocated() - before)
        del recording
    held = 11 * 4096 * (4 + 2 + 2) * 8 * 4
    assert peaks[1] < peaks[0] - held / 2


@torch.no_grad()
def test_what_the_model_writes_over_on_the_gpu_is_recorded_as_it_was(make_llama, tmp_path, monkeypatch):
    model = make_llama(num_hidden_layers=6, max_position_embeddings=8192).cuda()
    ids = torch.randint(3, 96, (1, 8000))
    expected, held, put = record(model, ids), [], Recording.put

    def hold(recording, layer):
        put(recording, layer)
        first = layer.segments[0]
        held[:] = [first.q, first.k, first.v]

    def overwrite(*unused):
        for x in held:
            x.zero_()

    for layer in model.model.layers:
        layer.mlp.register_forward_pre_hook(overwrite)
    monkeypatch.setattr(Recording, "put", hold)
    with torch.cuda.stream(torch.cuda.Stream()):
        record(model, ids, store=tmp_path / "x.regard")
    read = Recording.open(tmp_path / "x.regard")
    for index, layer in read.layers.items():
        for name in ("q", "k", "v", "lse"):
            live = getattr(expected.layers[index].segments[0], name)
            assert torch.equal(getattr(layer.segments[0], name), live.cpu())


@torch.no_grad()
def test_keys_in_fp8_are_as_far_from_the_exact_ones_as_they_say(make_llama, tmp_path):
    model = make_llama(max_position_embeddings=1024).cuda().bfloat16()
    ids = torch.randint(3, 96, (1, 1000))
    live = record(model, ids)
    record(model, ids, store=tmp_path / "x.regard", keys="fp8", queries="fp8")
    read = Recording.open(tmp_path / "x.regard")
    for index, layer in read.layers.items():
        rows = list(layer.rounded.rows)
        difference = (layer.map[0, :, rows] - live.maps[index][0, :, rows].cpu()).abs().max()
        assert layer.rounded.largest == pytest.approx(float(difference), abs=1e-5)
        assert layer.rounded.largest > 0
