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
