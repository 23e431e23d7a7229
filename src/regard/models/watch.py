"""`watch`: record the attention of a transformers model while it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.engine import attention
from regard.errors import ModelError, RecordingError
from regard.maps import AttentionMap, Observation, observe
from regard.models.beside import attending_alone
from regard.models.call import AttentionCall
from regard.models.hook import watchers
from regard.models.layer import Layer
from regard.models.outside import observed_outside
from regard.models.padding import rows_of_text, without_padding
from regard.models.passes import Passes
from regard.models.recording import Recording
from regard.models.rounding import Rounding
from regard.models.segment import in_text, rows_only
from regard.models.sites import Site, index_of, role_of
from regard.models.sizes import spoken
from regard.models.switch import asks_registry, switched, unwrapped
from regard.models.writer import Writer
from regard.stats import Entropy, MaxScore, MeanDistance, SinkMass, Statistic, TopK, by_name

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

    from regard.models.sharded import ShardedSequence

__all__ = ["watch"]

ROWS: tuple[Statistic, ...] = (Entropy(), MaxScore(), MeanDistance(), SinkMass())
# Computed for every generated token: for one query it is cheap.
HEAVIEST = TopK(8)


@contextmanager
def watch(
    model: Any,
    *,
    layers: Sequence[int | str] | None = None,
    stats: Sequence[Statistic] = ROWS,
    keep_maps: bool = True,
    store: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    keys: str | None = None,
    queries: str | None = None,
    max_bytes: int | None = None,
    tokenizer: Any = None,
    text: str | None = None,
    progress: Callable[[int, int], None] | None = None,
    own_code: bool | None = None,
    mesh: ProcessGroup | DeviceMesh | None = None,
) -> Iterator[Recording]:
    """Record every forward pass and `generate()` of a model within the block.

    Within the block the model's outputs are the same, but regard computes its attention, in memory that grows
    linearly with the length. Leaving the block restores the model, also after an exception. `layers` selects
    layers by number or module name. The recording holds the last text: a pass that does not continue the
    previous one starts over. Tokens of `generate()` are appended, each with its row statistics and its
    heaviest keys (`layer.trace`).

    With `store`, each layer is written to disk while the next is computed, and its memory is freed. When the
    block ends, `store` holds the recording; if it ends early, a partial one, which `resume=True` completes.
    An existing recording is refused unless `overwrite=True` replaces it. `keys="bf16"` or `"fp8"` writes keys
    in 16 or 8 bits, and `queries` does so with queries; statistics stay exact, and `recording.rounded` says
    how far weights are from the exact ones, measured in a sample of rows. `max_bytes` refuses a recording
    that would grow larger, after the first layer. `progress(done, total)` is called after every layer of a
    pass; each generated token is a pass of its own.

    Layers that use transformers' attention registry run on regard's attention. Models whose layers compute
    attention themselves (BLOOM, DeBERTa, GPT-J, MPNet, XLNet and others, or your own `torch.nn.Module`) run
    their own code, and regard observes fused attention calls and softmaxes in modules named after attention;
    `own_code=True` does so with any model. Then all n × n scores are stored, and statistics that read values
    are refused.

    With `mesh`, a process group or a mesh of one dimension, the model's inputs are sharded along the
    sequence: rank r holds the tokens after those of rank r - 1, ranks exchange keys, and each rank writes its
    part to `store`. With a model loaded with `tp_plan="auto"`, each rank records its own heads.
    `Recording.open(store)` joins the parts to one recording. Without `store`, the recording of a rank of a
    tensor-parallel model has that rank's heads only.

    >>> import torch, regard
    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> config = LlamaConfig(
    ...     vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4
    ... )
    >>> model = LlamaForCausalLM(config)
    >>> with watch(model) as recording:
    ...     out = model(torch.arange(9)[None])
    >>> recording
    Recording(LlamaForCausalLM, 2 layers, 9 tokens, 8.7 KB)
    >>> recording.maps[1][0, 3].shape, recording.layers[1].entropy.shape
    (torch.Size([9, 9]), torch.Size([1, 4, 9]))
    """
    given, model = model, unwrapped(model)
    if any(id(module) in watchers for module in model.modules()):
        raise ModelError(f"{type(model).__name__} is being watched already; leave that block first.")
    spread = mesh is not None or (getattr(model, "_tp_size", None) or 1) > 1
    rounding = _rounding(keys, queries, store, spread)
    own_code = not asks_registry(model) if own_code is None else own_code
    watcher = _Watcher(model, given, layers, tuple(stats), keep_maps, max_bytes, progress)
    recording = watcher.recording
    if tokenizer is not None:
        recording.attach(tokenizer, text)
    with ExitStack() as stack:
        if spread:
            # Imported here, because most models run in one process and don't need it.
            from regard.models.spread import spread_of

            parts = spread_of(model, mesh, store, tuple(stats), resume)
            watcher.sequence = stack.enter_context(parts.sequence(model))
            if store is not None:
                store = stack.enter_context(parts.written(Path(store), overwrite))
        if store is not None:
            watcher.writer = stack.enter_context(
                Writer(store, recording, resume=resume, overwrite=overwrite, rounding=rounding)
            )
        if own_code:
            stack.enter_context(observed_outside(model, watcher, stats))
        else:
            stack.enter_context(switched(model))
            alone = attending_alone(model) if watcher.sequence is None else []
            if alone:
                stack.enter_context(observed_outside(model, watcher, stats, only=alone))
        stack.enter_context(watcher.passes.followed())
        stack.callback(watcher.leave)
        watchers.update(dict.fromkeys(watcher.modules, watcher))
        yield recording
        watcher.check_seen(own_code)


def _rounding(keys: str | None, queries: str | None, store: Any, spread: bool) -> Rounding:
    """How keys and queries are to be written."""
    rounding = Rounding(keys, queries)
    if rounding and store is None:
        raise RecordingError(
            "keys= and queries= say how they are written to disk; give store=, or leave them out."
        )
    if rounding and spread:
        raise RecordingError(
            "keys= and queries= are not for models on several processes: no process has the exact map to "
            "compare with. Leave them out."
        )
    return rounding


class _Watcher:
    """Observes every attention call of one model, and fills the recording."""

    def __init__(
        self,
        model: Any,
        given: Any,
        layers: Sequence[int | str] | None,
        stats: tuple[Statistic, ...],
        keep: bool,
        max_bytes: int | None,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        by_name(stats)
        self.row_stats = frozenset(statistic.name for statistic in (*rows_only(stats), HEAVIEST))
        self.stats, self.keep, self.max_bytes = stats, keep, max_bytes
        self.chosen = None if layers is None else set(layers)
        self.modules = {id(module): name for name, module in model.named_modules()}
        self.recording = Recording.of(model, given if isinstance(given, torch.nn.Module) else None)
        self.passes = Passes(model, self.recording, progress)
        self.writer: Writer | None = None
        self.sequence: ShardedSequence | None = None
        self.sites: dict[tuple[int, int], Site] = {}
        self.decoder_text: Tensor | None = None
        """Which queries of the decoder are text, (batch, q), if statistics of whole maps need it."""

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, AttentionMap | None]:
        if not self.passes.running:
            return attention(call.q, call.k, call.v, **call.options), None
        site = self._site(module, call.role)
        if self.sequence is not None:
            return self._attend_sharded(site, call, self.sequence), None
        if site.role == "decoder" and len(rows_only(self.stats)) < len(self.stats):
            self.decoder_text = self._real_queries(site, call)
        if self._wanted(site):
            out, seen = self._seen(site, call)
        else:
            out, seen = attention(call.q, call.k, call.v, **call.options), None
        self.passes.attended()
        return out, seen

    def _attend_sharded(self, site: Site, call: AttentionCall, sequence: ShardedSequence) -> Tensor:
        """Observe a call of a sharded sequence: this rank has some of its rows and keys."""
        if not self._wanted(site):
            out = sequence.attend(call)
        else:
            seen = sequence.observe(call, self.stats)
            layer = Layer(site)
            layer.row_stats = self.row_stats
            sequence.fill(layer, call, seen, self.keep)
            self._check_size(layer)
            self.recording.put(layer)
            if self.writer is not None:
                self.writer.write(layer)
            out = seen.out
        self.passes.attended()
        return out

    def leave(self) -> None:
        for module in self.modules:
            watchers.pop(module, None)
        for layer in self.recording.all_layers:
            layer.settle()

    def check_seen(self, own_code: bool) -> None:
        """Raise ModelError if no attention was observed, or if `layers` matched none of it."""
        if own_code and self.passes.ran and not self.sites:
            raise ModelError(
                f"no attention was seen: {self.recording.model.name} calls neither softmax nor "
                "scaled_dot_product_attention in a module that is named after attention, with as many heads "
                "as the module or its config says (num_heads). In code of your own, call "
                "regard.observe(q, k, v) there."
            )
        if self.sites and not self.recording.stacks:
            known = ", ".join(dict.fromkeys(f"{site.role} {site.index}" for site in self.sites.values()))
            chosen = ", ".join(sorted(map(str, self.chosen or ())))
            raise ModelError(f"no layer is called {chosen}; layers are: {known}.")

    def _seen(self, site: Site, call: AttentionCall) -> tuple[Tensor, AttentionMap]:
        """Observe a call and store the result."""
        layer = self.recording.find(site)
        later = layer is not None and self._later(layer, call)
        if layer is not None and later and self._waits(site, layer, call):
            return attention(call.q, call.k, call.v, **call.options), call.later_map
        stats = self._asked(call, later)
        seen = self._observed(site, call, stats)
        if layer is None or not later:
            layer = Layer(site)
            layer.row_stats = self.row_stats
            layer.begin(call, seen, self.keep)
            self._check_size(layer)
            self.recording.put(layer)
            if self.writer is not None:
                self.writer.write(layer)
        else:
            layer.whole = layer.whole and not (call.own and self.passes.moved)
            layer.extend(call, seen, self.keep)
        return seen.out, seen.map

    def _waits(self, site: Site, layer: Layer, call: AttentionCall) -> bool:
        """Whether the layer keeps the rows of a later call, to observe them with others."""
        return self.passes.only_appends and layer.defer(call, partial(self._observe_later, layer, site))

    def _observe_later(self, layer: Layer, site: Site, call: AttentionCall, keys: int) -> None:
        """Extend a layer by rows that have waited, none of which had more than so many keys."""
        layer.extend(call, self._observed(site, call, self._asked(call, True, keys)), self.keep)

    def _observed(self, site: Site, call: AttentionCall, stats: list[Statistic]) -> Observation:
        """The observation of a call, without padding queries in statistics of whole maps."""
        rows = rows_only(tuple(stats))
        whole = [statistic for statistic in stats if statistic not in rows]
        real = self._real_queries(site, call) if whole else None
        if real is None:
            return observe(call.q, call.k, call.v, stats=stats, **call.options)
        seen = observe(call.q, call.k, call.v, stats=rows, **call.options)
        found = seen.stats | without_padding(seen.map, real).stats(*whole)
        return replace(seen, stats={statistic.name: found[statistic.name] for statistic in stats})

    def _real_queries(self, site: Site, call: AttentionCall) -> Tensor | None:
        """Which queries are text, (batch, q); None if all are."""
        batch, q, k = call.q.shape[0], call.q.shape[2], call.k.shape[2]
        if site.role == "cross":
            # In cross-attention, the queries are those of the decoder's self-attention just before.
            return self.decoder_text
        mask = None if call.mask is None else call.mask.bind(batch, call.q.shape[1])
        real = rows_of_text(mask, batch, k)
        return None if real is None or q > k else real[:, k - q :]

    def _site(self, module: torch.nn.Module, role: str | None = None) -> Site:
        turn = self.passes.turn(id(module))
        key = id(module), turn
        if key not in self.sites:
            name = self.modules[id(module)]
            role, index = role or role_of(name, module), index_of(name, module)
            taken = {site.index for site in self.sites.values() if site.role == role}
            while index in taken:
                index += 1
            self.sites[key] = Site(name, role, index, turn)
        return self.sites[key]

    def _wanted(self, site: Site) -> bool:
        if self.chosen is not None and site.index not in self.chosen and site.name not in self.chosen:
            return False
        return self.writer is None or not self.writer.has(site)

    def _later(self, layer: Layer, call: AttentionCall) -> bool:
        """Whether a call continues the text of a layer; drops rows that the call replaces."""
        if not layer.batch or layer.batch != call.q.shape[0]:
            return False
        crossing = layer.role == "cross" or call.plan is None
        start = self.passes.past if crossing else call.frame.q_start - layer.frame.q_start
        if not 0 < start <= layer.rows:
            return False
        if start < layer.rows:
            layer.crop(start)
        return True

    def _asked(self, call: AttentionCall, later: bool, keys: int | None = None) -> list[Statistic]:
        stats = self.stats
        if later:
            stats = rows_only(stats)
            if HEAVIEST.name not in by_name(stats):
                stats = (*stats, HEAVIEST)
        frame = call.frame
        keys = frame.k if keys is None else keys
        return [in_text(statistic, frame.k_start, keys, later) for statistic in stats]

    def _check_size(self, layer: Layer) -> None:
        """Refuse a recording over `max_bytes`; after the first layer the size of all layers is known."""
        if self.max_bytes is None and self.writer is None:
            return
        held = self.recording.nbytes + layer.nbytes
        depth = self.passes.depth(layer.role)
        total = depth if self.chosen is None else min(depth, len(self.chosen))
        left = max(0, total - len(self.recording.stack(layer.role)) - 1)
        expected = held + left * layer.nbytes
        if self.writer is not None:
            self.writer.check_room((left + 1) * layer.nbytes)
        if self.max_bytes is not None and expected > self.max_bytes:
            raise RecordingError(
                f"the recording would take {spoken(expected)} ({spoken(layer.nbytes)} a layer), more than "
                f"max_bytes={spoken(self.max_bytes)}. Choose layers=[...], drop maps with keep_maps=False, "
                "or watch a shorter text."
            )
