"""Converts a model's config.json to a shape."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regard.cost.attention import Attention, LatentAttention
from regard.cost.count import cache_bytes, prefill
from regard.cost.families import FAMILIES, Family
from regard.cost.fields import Fields, read_fields
from regard.cost.known import config_of, model_class_of, whole_class_of
from regard.cost.parameters import parameters
from regard.cost.reach import FULL, Reach
from regard.cost.shape import Extra, FeedForward, Layer, ModelShape
from regard.errors import ModelError, NotCountedError

__all__ = ["by_formula", "from_config"]


def from_config(source: Any, *, name: str | None = None, remote: bool = False) -> ModelShape:
    """The shape of a model from its config: a dict, a config.json or its folder, or a transformers config.

    A name is looked up on the Hugging Face hub only with `remote=True`. The error for missing fields names
    all of them. The number of parameters is compared with the model that transformers builds for the config,
    without weights; if they differ, and for families without a formula here, the shape is measured on that
    model.

    >>> shape = from_config({"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2,
    ...                      "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 176,
    ...                      "vocab_size": 100})
    >>> shape.layers[0].attention
    Attention(heads=4, kv_heads=2, head_dim=16, qkv_bias=False, out_bias=False, qk_norm='', sinks=False)
    """
    fields, notes = read_fields(source, name=name, remote=remote)
    try:
        formula = by_formula(fields) if fields.get("model_type") in FAMILIES else None
    except NotCountedError:
        formula = None
    try:
        shape = _measured(fields)
    except NotCountedError:
        if formula is None:
            raise
        shape = formula
    if formula is not None and _agree(formula, shape):
        shape = formula
    return replace(shape, notes=notes)


def _agree(formula: ModelShape, measured: ModelShape) -> bool:
    """Whether the shape from a formula has the same counts as the model that transformers builds."""
    counts = (
        lambda shape: parameters(shape).total,
        lambda shape: shape.kinds,
        lambda shape: cache_bytes(shape, 9999),
        lambda shape: prefill(shape, 9999).flops,
    )
    return all(count(formula) == count(measured) for count in counts)


def by_formula(fields: Fields) -> ModelShape:
    """The shape of a model of one of `FAMILIES`, from its sizes alone."""
    kind = fields.get("model_type", "")
    family = FAMILIES[kind]
    return _encoder_decoder(fields, family) if kind == "t5" else _stack(fields, family, kind)


def _measured(fields: Fields) -> ModelShape:
    from regard.cost.measured import measured_shape
    from regard.cost.probe import probe

    config, _ = config_of(fields.values, fields.name, nested=fields.complete)
    model = model_class_of(config, fields.get("architectures"))
    if model is not None:
        return measured_shape(probe(config, model), fields.name)
    if fields.whole is not None:
        whole, _ = config_of(fields.whole, fields.name, nested=True)
        model = whole_class_of(whole)
        if model is not None:
            return measured_shape(probe(whole, model), fields.name)
    raise NotCountedError(
        f"transformers has no language model that is {config.model_type} by itself; "
        "give the config of the model that it is part of."
    )


def _stack(fields: Fields, family: Family, kind: str) -> ModelShape:
    d, count = fields.need("d_model"), fields.need("layers")
    attention = _attention(fields, family)
    feeds = [_feed_forward(fields, family, kind, index) for index in range(count)]
    vocab = fields.need("vocab")
    context = fields.need("context") if family.learned_positions else fields.get("context")
    fields.check()
    reaches = _reaches(fields, family, count)
    layers = tuple(
        Layer(attention, feed, reach, causal=family.causal, norms=family.norms)
        for feed, reach in zip(feeds, reaches, strict=True)
    )
    shape = ModelShape(
        fields.name,
        d,
        layers,
        vocab,
        context,
        tied=fields.get("tie_word_embeddings", family.tied),
        head_bias=family.head_bias,
        positions=(context or 0) + family.position_offset if family.learned_positions else 0,
        embedding_norm=family.embedding_norm,
        final_norms=family.final_norms,
        norm_parameters=family.norm_parameters,
    )
    return {"bert": _bert, "opt": _opt}.get(kind, lambda shape, _: shape)(shape, fields)


def _attention(fields: Fields, family: Family) -> Attention:
    d, heads = fields.need("d_model"), fields.need("heads")
    bias = fields.get(family.attention_bias_field, family.qkv_bias)
    qkv_bias = fields.get("qkv_bias", bias)
    out_bias = bias if family.attention_bias_field else family.out_bias
    if fields.get("kv_lora_rank") is not None:
        return LatentAttention(
            heads,
            heads,
            fields.need("qk_nope_head_dim"),
            qkv_bias=bool(qkv_bias),
            out_bias=bool(out_bias),
            rotary=fields.need("qk_rope_head_dim"),
            value_dim=fields.need("v_head_dim"),
            q_rank=fields.get("q_lora_rank", 0),
            kv_rank=fields.need("kv_lora_rank"),
        )
    size = fields.given("head_dim")
    if size is None and d % heads and not fields.missing:
        raise ModelError(
            f"the config of {fields.name} has hidden size {d} and {heads} heads, and no head_dim; "
            "the size must be a multiple of the heads, or head_dim be given."
        )
    kv_heads = fields.given("num_key_value_heads") or heads
    if fields.get("qk_layernorm"):
        raise NotCountedError(
            f"{fields.name} normalises queries and keys by qk_layernorm, which is not counted here."
        )
    return Attention(
        heads,
        kv_heads if heads % kv_heads == 0 or not fields.missing else heads,
        size or max(d // heads, 1),
        qkv_bias=bool(qkv_bias),
        out_bias=bool(out_bias),
        qk_norm=family.qk_norm,
        sinks=family.sinks,
    )


def _feed_forward(fields: Fields, family: Family, kind: str, index: int) -> FeedForward:
    d = fields.need("d_model")
    width = family.ffn_default * d if family.ffn_default and not fields.get("ffn") else fields.need("ffn")
    bias = bool(fields.get(family.ffn_bias_field, family.ffn_bias))
    plain = FeedForward(width, family.gated, bias)
    experts = fields.get("experts", 0)
    if not experts:
        return plain
    if not _has_experts(fields, index):
        return replace(plain, width=fields.get("intermediate_size_mlp", width))
    inner = fields.get("moe_intermediate_size", width)
    shared = fields.get("shared_expert_intermediate_size") or fields.get("n_shared_experts", 0) * inner
    active = fields.need("num_experts_per_tok")
    return FeedForward(
        inner,
        family.gated,
        bias,
        experts,
        active,
        shared=inner if kind == "llama4_text" else shared,
        router_bias=kind == "gpt_oss",
        shared_gate=kind == "qwen2_moe",
    )


def _has_experts(fields: Fields, index: int) -> bool:
    """Whether the layer of this index has experts; families use different fields for it."""
    listed = fields.get("moe_layers")
    if listed is not None:
        return index in listed
    step = fields.get("interleave_moe_layer_step") or fields.get("decoder_sparse_step", 1)
    if index in fields.get("mlp_only_layers", ()) or index < fields.get("first_k_dense_replace", 0):
        return False
    return (index + 1) % step == 0


def _reaches(fields: Fields, family: Family, count: int) -> list[Reach]:
    window, chunk = fields.get("sliding_window"), fields.get("attention_chunk_size")
    if family.window_switch and not fields.get(family.window_switch, False):
        window = None
    local = Reach("chunk", chunk) if chunk else Reach("window", window) if window else FULL
    types = fields.get("layer_types")
    if types is None:
        every = fields.get("sliding_window_pattern", family.full_every)
        return [FULL if every and (index + 1) % every == 0 else local for index in range(count)]
    known = {"full_attention": FULL, "sliding_attention": local, "chunked_attention": local}
    strange = sorted(set(types) - set(known))
    if strange:
        raise NotCountedError(
            f"the config of {fields.name} has layers of type {', '.join(strange)}; "
            f"what is counted here is {', '.join(known)}."
        )
    if len(types) != count:
        raise ModelError(f"the config of {fields.name} has {count} layers and {len(types)} layer_types.")
    return [known[kind] for kind in types]


def _bert(shape: ModelShape, fields: Fields) -> ModelShape:
    """Add the pre-training head if the config has it, else the pooler."""
    d, types = shape.d_model, fields.get("type_vocab_size", 2)
    if any("MaskedLM" in name for name in fields.get("architectures", ())):
        transform = Extra("head's transform", d * d + 3 * d, d * d, with_head=True)
        return replace(shape, types=types, head_bias=True, extras=(transform,))
    return replace(shape, types=types, head=False, extras=(Extra("pooler", d * d + d, d * d, once=True),))


def _opt(shape: ModelShape, fields: Fields) -> ModelShape:
    d, inner = shape.d_model, fields.get("word_embed_proj_dim", shape.d_model)
    before = fields.get("do_layer_norm_before", True) and not fields.get("_remove_final_layer_norm", False)
    shape = replace(shape, final_norms=int(before))
    if inner == d:
        return shape
    ends = (Extra("project in", d * inner, d * inner), Extra("project out", d * inner, d * inner))
    return replace(shape, embedding_dim=inner, extras=ends)


def _encoder_decoder(fields: Fields, family: Family) -> ModelShape:
    d, heads, size = fields.need("d_model"), fields.need("heads"), fields.need("d_kv")
    width, count, vocab = fields.need("ffn"), fields.need("layers"), fields.need("vocab")
    fields.check()
    feed = FeedForward(width, gated=str(fields.get("feed_forward_proj", "relu")).startswith("gated-"))
    encoder = Layer(Attention(heads, heads, size), feed, causal=False, encoder=True)
    decoder = replace(encoder, causal=True, encoder=False, cross=True, norms=3)
    table = fields.get("relative_attention_num_buckets", 32) * heads
    return ModelShape(
        fields.name,
        d,
        (encoder,) * count + (decoder,) * fields.get("num_decoder_layers", count),
        vocab,
        # Positions are relative, with a last bucket for all larger distances, so there is no maximum length.
        context=fields.get("context"),
        tied=fields.get("tie_word_embeddings", family.tied),
        final_norms=2,
        extras=(Extra("relative positions", 2 * table),),
    )
