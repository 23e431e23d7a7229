"""Cases about recording a model that runs on many processes; they run in the ranks."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers as hf
from torch.distributed.device_mesh import init_device_mesh

import regard
from distributed.faults import raised
from regard.errors import RegardError
from regard.stats import ColumnMass, Decay, Entropy, HeadDivergence, Pooled, TopK, WindowedMass

STATS = (Entropy(), ColumnMass(), WindowedMass(5), TopK(3), Decay(), Pooled(4, "both"))
IDS = torch.arange(3, 26)[None]


def config(**changes: Any) -> hf.LlamaConfig:
    sizes: dict[str, Any] = {
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 4, "tie_word_embeddings": False,
    }  # fmt: skip
    return hf.LlamaConfig(**{**sizes, **changes})


def model() -> Any:
    torch.manual_seed(0)
    return hf.LlamaForCausalLM(config()).eval()


def windowed() -> Any:
    """A model whose layers see windows, and share key heads."""
    torch.manual_seed(0)
    sizes = {name: getattr(config(), name) for name in ("vocab_size", "hidden_size", "intermediate_size")}
    made = hf.Qwen2Config(
        **sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, use_sliding_window=True,
        sliding_window=6, max_window_layers=0,
    )  # fmt: skip
    return hf.Qwen2ForCausalLM(made).eval()


def cut(lengths: list[int], group: Any) -> torch.Tensor:
    """This rank's tokens."""
    return IDS.split(lengths, 1)[dist.get_rank(group)]


@torch.no_grad()
def sequence(group: Any, folder: str, make: str, lengths: list[int]) -> None:
    """A sequence that is cut over ranks is recorded as in one process."""
    whole = globals()[make]()
    path = Path(folder) / "sequence.regard"
    with regard.watch(whole, mesh=group, store=path, stats=STATS):
        out = whole(cut(lengths, group)).logits
    with regard.watch(whole, stats=STATS) as one:
        expected = whole(IDS).logits
    torch.testing.assert_close(out, expected.split(lengths, 1)[dist.get_rank(group)], atol=1e-5, rtol=1e-4)
    dist.barrier(group)
    alike(regard.Recording.open(path), one)


@torch.no_grad()
def heads(group: Any, folder: str) -> None:
    """A tensor-parallel model is recorded as in one process, generated tokens too."""
    os.environ |= {"RANK": str(dist.get_rank()), "LOCAL_RANK": str(dist.get_rank()), "WORLD_SIZE": "4"}
    path, saved = Path(folder) / "heads.regard", Path(folder) / "model"
    whole = model()
    if dist.get_rank(group) == 0:
        whole.save_pretrained(saved)
    dist.barrier(group)
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("tp",))
    spread = hf.AutoModelForCausalLM.from_pretrained(saved, tp_plan="auto", device_mesh=mesh)
    with regard.watch(spread, store=path, stats=STATS):
        ours = spread.generate(IDS, max_new_tokens=3, do_sample=False)
    with regard.watch(whole, stats=STATS) as one:
        assert torch.equal(ours, whole.generate(IDS, max_new_tokens=3, do_sample=False))
    dist.barrier(group)
    opened = regard.Recording.open(path)
    alike(opened, one)
    with regard.watch(spread) as own:
        spread(IDS)
    assert own.maps[0].shape[1] == 1
    opened.check_model(hf.AutoModelForCausalLM.from_pretrained(saved))
    refusal = raised(lambda: regard.watch(spread, stats=[HeadDivergence()]).__enter__())
    assert "head_divergence compares heads" in refusal


def alike(many: regard.Recording, one: regard.Recording) -> None:
    """Every map and statistic of two recordings."""
    assert many.complete
    assert [layer.site for layer in many.all_layers] == [layer.site for layer in one.all_layers]
    assert torch.equal(many.token_ids["decoder"], one.token_ids["decoder"])
    for ours, theirs in zip(many.all_layers, one.all_layers, strict=True):
        torch.testing.assert_close(ours.map.dense(), theirs.map.dense(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(ours.lse, theirs.lse, atol=1e-5, rtol=1e-4)
        assert ours.stats.keys() == theirs.stats.keys()
        for name, value in ours.stats.items():
            torch.testing.assert_close(value, theirs.stats[name], atol=1e-5, rtol=1e-4)


@torch.no_grad()
def refusals(group: Any, folder: str) -> list[str]:
    """What cannot be recorded in parts, in words, the same on all ranks."""
    path, llama = Path(folder) / "refused.regard", model()
    own = cut([10, 13], group)

    def run(made: Any = llama, store: Path | None = path, stats: Any = STATS, **given: Any) -> str:
        def record() -> None:
            with regard.watch(made, mesh=group, store=store, stats=stats, overwrite=True):
                made(own, **given)

        return raised(record)

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4}
    biased = hf.T5EncoderModel(hf.T5Config(vocab_size=96, **sizes)).eval()
    return [
        run(store=None),
        run(attention_mask=torch.ones_like(own)),
        run(made=biased),
    ]


@torch.no_grad()
def one_fails(group: Any, folder: str) -> str:
    """A rank that raises after the pass: the others hear of it, and nothing can be opened."""
    path, llama = Path(folder) / "failed.regard", model()

    def record() -> None:
        with regard.watch(llama, mesh=group, store=path):
            llama(cut([10, 13], group))
            if dist.get_rank(group) == 1:
                raise RegardError("the disk is full")

    said = raised(record)
    dist.barrier(group)
    return said + " | " + raised(lambda: regard.Recording.open(path))
