"""Every model type of transformers: is it counted rightly, refused with a reason, or counted wrongly?

Each type's default config is counted as a user would count it, and compared with the model itself: its
parameters, and the numbers in its cache after it has read some tokens on the meta device, every layer of it.
Where a config can be made tiny, a model with random weights reads the same tokens on the CPU as well, longer
than its window, and the cache that it returns is compared byte by byte.

    python benchmarks/cost_families.py --json rows.jsonl --write benchmarks/results/cost_families.md
    python benchmarks/cost_families.py jamba qwen3_next
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import transformers

from regard.cost import ModelShape, cache_bytes, from_config, parameters
from regard.cost.known import model_class_of, whole_class_of
from regard.cost.probe import numbers_in
from regard.errors import RegardError

TOKENS, WINDOW = 24, 8
SECONDS = 30
SMALL = {
    "hidden_size": 64,
    "n_embd": 64,
    "d_model": 64,
    "word_embed_proj_dim": 64,
    "embedding_size": 64,
    "intermediate_size": 96,
    "ffn_dim": 96,
    "d_ff": 96,
    "n_inner": 96,
    "ffn_hidden_size": 96,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 32,
    "num_hidden_layers": 4,
    "n_layer": 4,
    "num_layers": 4,
    "n_layers": 4,
    "num_attention_heads": 4,
    "n_head": 4,
    "n_heads": 4,
    "num_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 128,
    "vocab_size_per_layer_input": 128,
    "max_position_embeddings": 64,
    "n_positions": 64,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "moe_num_experts": 4,
    "num_experts_per_tok": 2,
    "num_experts_per_token": 2,
    "n_group": 1,
    "topk_group": 1,
    "q_lora_rank": 24,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "qk_head_dim": 16,
    "v_head_dim": 16,
    "index_head_dim": 16,
    "index_n_heads": 2,
    "index_topk": 6,
    "sliding_window": WINDOW,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "mamba_d_state": 8,
    "mamba_dt_rank": 8,
    "state_size": 8,
    "ssm_state_size": 8,
    "rotary_dim": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def built(config: Any) -> torch.nn.Module:
    """The model that a config is counted as, on the current device, with plain attention."""
    config = deepcopy(config)
    text = config.get_text_config()
    found = model_class_of(text, getattr(config, "architectures", None))
    if found is None:
        return whole_class_of(config)._from_config(config, attn_implementation="eager").eval()
    # The whole model says whether its head is the embedding.
    text.tie_word_embeddings = getattr(config, "tie_word_embeddings", None) or False
    for each in (config, text):
        each._experts_implementation = "batched_mm"
    return found._from_config(text, attn_implementation="eager").eval()


def read(model: torch.nn.Module, device: str) -> int:
    """The numbers in the cache of a model after it has read some tokens."""
    tokens = torch.arange(TOKENS, device=device)[None] % 100 + 3
    more = (
        {"use_cache": True}
        if type(model).__name__.endswith(("CausalLM", "LMHeadModel", "Generation"))
        else {}
    )
    with torch.no_grad(), torch.device(device):
        found = model(input_ids=tokens, **more)
    return numbers_in(getattr(found, "past_key_values", None))


def kept(shape: ModelShape) -> int:
    """The numbers that we count in the cache; transformers keeps one token less than a window is long."""
    found = cache_bytes(shape, TOKENS, dtype="float16") // 2
    for layer in shape.layers:
        size = layer.reach.size
        if shape.decodes and layer.reach.kind == "window" and size and size <= TOKENS:
            found -= layer.attention.cached
    return found


def tiny(config: Any) -> Any:
    """The same family with small sizes; an error where these do not fit together."""
    values = {k: v for k, v in config.to_dict().items() if not isinstance(v, list | dict)}
    given = {k: SMALL[k] for k, v in values.items() if k in SMALL and v is not None}
    if "num_key_value_heads" in values and values["num_key_value_heads"] is None:
        given["num_key_value_heads"] = 2
    return type(config)(**values | given)


def judged(kind: str) -> dict[str, Any]:
    """One model type: the verdict, and what it rests on."""
    config = transformers.CONFIG_MAPPING[kind]()
    try:
        shape = from_config(config)
    except RegardError as error:
        return {"verdict": "refused", "why": str(error)}
    with torch.device("meta"):
        model = built(config)
    row: dict[str, Any] = {"verdict": "right", "checked": ["parameters"], "kinds": shape.kinds}
    partial = shape.notes[:1] == ("only the text part of this model is counted",)
    ours, theirs = parameters(shape).total, sum(p.numel() for p in model.parameters())
    if ours != theirs and not (
        partial and ours < theirs and model_class_of(config.get_text_config()) is None
    ):
        return {"verdict": "wrong", "why": f"{ours:,} parameters, and the model has {theirs:,}"}
    try:
        cached = read(model, "meta")
    except Exception as error:
        row["not run"] = str(error).strip().splitlines()[:1]
    else:
        row["checked"].append("cache")
        if kept(shape) != cached:
            return {"verdict": "wrong", "why": f"a cache of {kept(shape):,} numbers, and it holds {cached:,}"}
    try:
        small = tiny(config.get_text_config())
        found = from_config(small)
        torch.manual_seed(0)
        cached = read(built(small), "cpu")
    except Exception as error:
        row["not tiny"] = f"{type(error).__name__}: {str(error).strip().splitlines()[:1]}"
        return row
    if kept(found) != cached:
        return {"verdict": "wrong", "why": f"tiny: {kept(found):,} numbers kept, and it holds {cached:,}"}
    row["checked"].append("tiny cache")
    return row


def tried(kind: str) -> dict[str, Any]:
    def late(*_: Any) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    # Of this process alone: how busy the machine is must not decide.
    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        return judged(kind)
    except Exception as error:
        reason = (str(error).strip().splitlines() or [""])[0]
        return {"verdict": "no default", "why": f"{type(error).__name__}: {reason[:160]}"}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def page(rows: list[dict[str, Any]]) -> str:
    """The table in Markdown: what is counted, and what is refused, by reason."""
    latest = {row["type"]: row for row in rows}
    by: dict[str, list[str]] = {}
    for kind, row in sorted(latest.items()):
        by.setdefault(row["verdict"], []).append(kind)
    lines = [
        "# Model types of transformers, and whether `regard cost` counts them",
        "",
        f"transformers {transformers.__version__}, {len(latest)} of {len(transformers.CONFIG_MAPPING)} model "
        "types, each with its default config. Command:",
        "`python benchmarks/cost_families.py --json rows.jsonl --write benchmarks/results/cost_families.md`.",
        "",
        "| verdict | types |",
        "| --- | --- |",
        *(f"| {verdict} | {len(kinds)} |" for verdict, kinds in sorted(by.items())),
        "",
        "*Right*: parameters equal those of the model; *cache*: so do the numbers in its cache after 24",
        "tokens, every layer run on the meta device; *tiny*: and in the cache of a small model with random",
        "weights, run on the CPU. *No default*: transformers' own default config cannot be built.",
        "",
        "| type | verdict | checked or reason | layers |",
        "| --- | --- | --- | --- |",
    ]
    for kind, row in sorted(latest.items()):
        kinds = ", ".join(f"{count} × {name}" for name, count in row.get("kinds", {}).items())
        said = ", ".join(row.get("checked", [])) or row.get("why", "").replace("|", "/")
        lines.append(f"| `{kind}` | {row['verdict']} | {said.replace('tiny cache', 'tiny')} | {kinds} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("types", nargs="*", help="model types; all unless given")
    options.add_argument("--json", type=Path, help="append a line of JSON for each type to this file")
    options.add_argument("--write", type=Path, help="write the table of all rows in the JSON file")
    given = options.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    counts: Counter[str] = Counter()
    for kind in given.types or sorted(transformers.CONFIG_MAPPING.keys()):
        row = tried(kind)
        counts[row["verdict"]] += 1
        print(kind, json.dumps(row), flush=True)
        if given.json:
            with given.json.open("a") as out:
                out.write(json.dumps({"type": kind, **row}) + "\n")
    print(dict(counts), file=sys.stderr)
    if given.write and given.json:
        rows = [json.loads(line) for line in given.json.read_text().splitlines()]
        given.write.write_text(page(rows), encoding="utf-8")
    sys.exit(counts["wrong"] > 0)


if __name__ == "__main__":
    main()
