"""Evaluates eviction: evicts keys of a prompt, and measures the model's predictions of the continuation.

The model reads the prompt once, with its own cache. Then it reads the continuation from that cache, once as
it is and once for every policy and share of keys, with a mask that hides the evicted keys. This equals
removing rows from the cache while the other keys keep their positions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.atlas.anatomy import Anatomy, Callers
from regard.atlas.haystack import AFTER_HAY, Haystack, Needle
from regard.atlas.knockout import divergence
from regard.atlas.needle import NEEDLE, QUESTION
from regard.atlas.reading import Tokens, ids_of
from regard.atlas.running import attending
from regard.engine import attention
from regard.errors import ModelError, StatisticError
from regard.eviction.loss import HeadLoss, Loss
from regard.eviction.policies import POLICIES, Policy, Room, kept_keys, names_of
from regard.eviction.result import Eviction
from regard.maps import AttentionMap
from regard.masks import Dense
from regard.models.bundled import sample_text
from regard.models.call import AttentionCall
from regard.models.text import context_length

__all__ = ["evaluate", "evaluate_needle"]

KEEP = (0.1, 0.25, 0.5)
# Tokens of the continuation by default: enough for a mean, few enough to be fast.
CONTINUATION = 128

Progress = Callable[[int, int], None]


def evaluate(
    model: Any,
    tokens: Tokens,
    *,
    tokenizer: Any = None,
    keep: Sequence[float] = KEEP,
    policies: Sequence[Policy] = POLICIES,
    prompt: int | None = None,
    heads: int = 0,
    progress: Progress | None = None,
) -> Eviction:
    """Measure each policy's loss on a text's continuation when it keeps a share of the prompt's keys.

    `prompt` is the number of tokens of the prompt; by default all but the last 128 (or a quarter of a short
    text). `tokens` are the ids of one text, or the text itself with a `tokenizer`.

    With `heads`, each policy's heads that lose most attention at the smallest share, that many, are also
    measured alone: only that head loses its keys (`Loss.heads`).

    >>> from regard.eviction import SnapKV
    >>> from regard.models import bundled, sample_text
    >>> model, tokenizer = bundled()
    >>> lost = evaluate(model, sample_text()[:1500], tokenizer=tokenizer, keep=[0.25], policies=[SnapKV()])
    >>> lost.policies, 0 <= lost.of("snapkv", 0.25).kl
    (('snapkv',), True)
    """
    ids, shares = ids_of(model, tokens, tokenizer), _shares(keep)
    n = ids.shape[1]
    prompt = n - min(CONTINUATION, max(1, n // 4)) if prompt is None else prompt
    if not 1 <= prompt < n:
        raise ModelError(f"prompt is {prompt}; the text has {n} tokens, so wanted 1 to {n - 1}.")
    bench = _Evaluator(model, Anatomy.of_text(model, ids), heads)
    step = _Steps(progress, bench.runs(shares, policies))
    losses, _ = bench.losses(_Text(ids, prompt), shares, policies, step)
    return Eviction(prompt, n - prompt, bench.layers, tuple(losses))


def evaluate_needle(
    model: Any,
    tokenizer: Any,
    *,
    haystack: str | None = None,
    needle: str = NEEDLE,
    question: str = QUESTION,
    answer: str | None = None,
    depths: int = 3,
    length: int | None = None,
    keep: Sequence[float] = KEEP,
    policies: Sequence[Policy] = POLICIES,
    heads: int = 0,
    progress: Progress | None = None,
) -> Eviction:
    """Measure each policy's loss when a sentence is hidden in the prompt and asked for after eviction.

    Policies don't see the question, which is part of the continuation. Results are means over the depths.
    With `heads`, the heads that lose most at the first depth are also measured alone.
    """
    hidden, shares = Needle.of(needle, question, answer), _shares(keep)
    hay = Haystack(model, tokenizer, sample_text() if haystack is None else haystack, hidden, length)
    if depths < 1:
        raise ModelError(f"depths is {depths}; wanted at least 1.")
    asked = len(tokenizer(AFTER_HAY + hidden.question, add_special_tokens=False)["input_ids"])
    texts = []
    for depth in torch.linspace(0, 1, depths, dtype=torch.float64).tolist() if depths > 1 else [0.5]:
        found = hay.at(depth)
        texts.append(_Text(found.ids, found.reply.start - asked, found.reply))
    bench = _Evaluator(model, Anatomy.of_text(model, texts[0].ids), heads)
    step = _Steps(progress, len(texts) * bench.runs(shares, policies))
    runs = [bench.losses(text, shares, policies, step) for text in texts]
    losses = tuple(_mean(alike) for alike in zip(*(losses for losses, _ in runs), strict=True))
    found = sum(found for _, found in runs) / len(runs)
    first = texts[0]
    return Eviction(first.prompt, first.ids.shape[1] - first.prompt, bench.layers, losses, found=found)


@dataclass(frozen=True)
class _Text:
    """Token ids, the number of prompt tokens, and the span of the answer for needle tests."""

    ids: Int[Tensor, "1 n"]
    prompt: int
    reply: range | None = None


class _Steps:
    """Counts finished steps, and reports progress."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(self.done, self.total)


class _Evaluator:
    """Runs a model with full and with cut caches."""

    def __init__(self, model: Any, anatomy: Anatomy, heads: int) -> None:
        if heads < 0:
            raise StatisticError(f"heads is {heads}; wanted how many heads to measure alone, 0 or more.")
        self.model, self.anatomy = model, anatomy
        self.layers = tuple(anatomy.heads)
        self._callers = Callers(model, anatomy)
        self._count = min(heads, sum(anatomy.heads.values()))
        # Which heads are measured alone, by policy; the same for all texts.
        self._chosen: dict[str, list[tuple[int, int]]] = {}

    def runs(self, shares: Sequence[float], policies: Sequence[Policy]) -> int:
        """How often the model reads a text."""
        return 1 + len(policies) * (len(shares) + self._count)

    def losses(
        self, text: _Text, shares: Sequence[float], policies: Sequence[Policy], step: _Steps
    ) -> tuple[list[Loss], float]:
        """The loss of every policy at every share, and whether the full cache finds the answer."""
        scorer, names = _Scorer(policies), names_of(policies)
        cache = self._read_prompt(text, scorer, policies)
        judge = _Judge(self.anatomy, text)
        whole = self._continue(cache, text, judge)
        step()
        losses = []
        for share in shares:
            keep = max(1, round(share * text.prompt))
            for policy, name in zip(policies, names, strict=True):
                kept = {layer: scorer.kept(policy, layer, text.prompt, keep) for layer in self.layers}
                cut = self._continue(cache, text, _Blinder(kept, text))
                loss = judge.loss(name, share, keep, kept, whole, cut)
                step()
                if self._count and share == min(shares):
                    loss = replace(loss, heads=self._alone(cache, text, kept, loss, whole, step))
                losses.append(loss)
        return losses, _finds(whole, text)

    def _alone(
        self, cache: Any, text: _Text, kept: Mapping[int, Tensor], loss: Loss, whole: Tensor, step: _Steps
    ) -> tuple[HeadLoss, ...]:
        """What changes if a single head loses its keys, for the heads that lose most attention."""
        lost = loss.mass_lost
        chosen = self._chosen.setdefault(loss.policy, loss.most(self._count))
        measured = []
        for row, head in chosen:
            layer = self.layers[row]
            cut = self._continue(cache, text, _Blinder({layer: kept[layer]}, text, head))
            found = None if text.reply is None else _finds(cut, text)
            kl = float(divergence(whole, cut).mean())
            measured.append(HeadLoss(layer, head, float(lost[row, head]), kl, found))
            step()
        return tuple(measured)

    def _read_prompt(self, text: _Text, scorer: _Scorer, policies: Sequence[Policy]) -> Any:
        """The model's cache after the prompt, and the statistics of the prompt's maps for the policies."""
        prompt = text.ids[:, : text.prompt]
        if any(policy.reads_twice for policy in policies):
            context = context_length(self.model)
            if context is not None and 2 * text.prompt > context:
                raise ModelError(
                    f"kvzip reads the prompt twice, 2 × {text.prompt} tokens, and the model reads at most "
                    f"{context}; give a shorter prompt, or leave kvzip out."
                )
            scorer.begin(text.prompt, twice=True)
            self._run(scorer, torch.cat([prompt, prompt], 1), use_cache=False)
        scorer.begin(text.prompt)
        output = self._run(scorer, prompt, use_cache=True)
        cache = getattr(output, "past_key_values", None)
        if cache is None:
            raise ModelError(
                f"{type(self.model).__name__} keeps no cache of keys and values, so there is nothing to "
                "evict; use a model that writes text, such as LlamaForCausalLM."
            )
        return cache

    def _continue(self, cache: Any, text: _Text, watcher: Any) -> Float[Tensor, "continuation vocabulary"]:
        """The logits of the continuation, which the model reads from the cache, with a watcher."""
        given = text.ids[:, text.prompt :]
        output = self._run(watcher, given, use_cache=True, past_key_values=deepcopy(cache))
        return output.logits[0].double().cpu()

    def _run(self, watcher: Any, ids: Tensor, **options: Any) -> Any:
        wanted = inspect.signature(self.model.forward).parameters
        if "past_key_values" not in options and "logits_to_keep" in wanted:
            options["logits_to_keep"] = 1
        self._callers.begin()
        options = {name: value for name, value in options.items() if name in wanted}
        with attending(self.model, _LayerWatcher(self._callers, watcher)):
            return self.model(input_ids=ids, **options)


@dataclass(frozen=True)
class _LayerWatcher:
    """A watcher that knows which layer a call comes from."""

    callers: Callers
    watcher: Any

    def attend(self, module: torch.nn.Module, call: AttentionCall) -> tuple[Tensor, None]:
        layer = self.callers.layer(module)
        if layer is not None:
            call = self.watcher.look(layer, call)
        return attention(call.q, call.k, call.v, **call.options), None


class _Scorer:
    """Computes the statistics that policies need from every layer's map of the prompt."""

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.policies = policies
        self._prompt, self._twice = 0, False
        self._seen: dict[tuple[int, bool], dict[str, Any]] = {}
        self._kv_heads: dict[int, int] = {}

    def begin(self, prompt: int, twice: bool = False) -> None:
        """Call before the prompt is read; `twice` if the text repeats it."""
        self._prompt, self._twice = prompt, twice

    def look(self, layer: int, call: AttentionCall) -> AttentionCall:
        """Compute statistics of the prompt's rows, or of the rows of its repetition."""
        asked = {
            f"policy{number}_{statistic.name}": statistic
            for number, policy in enumerate(self.policies)
            if policy.reads_twice is self._twice
            for statistic in policy.statistics
        }
        seen = call.map
        if self._twice:
            rows = range(call.q.shape[2] - self._prompt, call.q.shape[2])
            seen = AttentionMap(seen.problem.block(rows))
        found = seen.stats(*(statistic.named(name) for name, statistic in asked.items())) if asked else {}
        self._seen[layer, self._twice] = found
        self._kv_heads[layer] = call.k.shape[1]
        return call

    def kept(self, policy: Policy, layer: int, keys: int, keep: int) -> Bool[Tensor, "kv_heads keys"]:
        """The keys a policy keeps in one layer."""
        own = self._seen[layer, policy.reads_twice]
        number = self.policies.index(policy)
        seen = {s.name: own[f"policy{number}_{s.name}"] for s in policy.statistics}
        return kept_keys(policy, seen, Room(layer, self._kv_heads[layer], keys, keep)).cpu()


class _Blinder:
    """Masks the evicted keys for the queries of the continuation: in all heads of the layers, or in one."""

    def __init__(
        self, kept: Mapping[int, Bool[Tensor, "kv_heads keys"]], text: _Text, head: int | None = None
    ) -> None:
        self._kept, self._n, self._head = kept, text.ids.shape[1], head

    def look(self, layer: int, call: AttentionCall) -> AttentionCall:
        if layer not in self._kept:
            return call
        kept, queries, keys = self._kept[layer].to(call.q.device), call.q.shape[2], call.k.shape[2]
        # The cache of a layer with a window holds its last keys only.
        kept = kept[:, self._n - keys :].repeat_interleave(call.q.shape[1] // call.k.shape[1], 0)
        if self._head is not None:
            kept = kept | (torch.arange(len(kept), device=kept.device) != self._head)[:, None]
        seen = torch.nn.functional.pad(kept, (0, keys - kept.shape[1]), value=True)
        mask = Dense(seen[None, :, None].expand(1, -1, queries, -1))
        return replace(call, mask=mask if call.mask is None else call.mask & mask)


class _Judge:
    """Measures the attention that each key of the prompt gets from the continuation, with the full cache."""

    def __init__(self, anatomy: Anatomy, text: _Text) -> None:
        self._heads, self._text = anatomy.heads, text
        self._mass: dict[int, Float[Tensor, "heads keys"]] = {}

    def look(self, layer: int, call: AttentionCall) -> AttentionCall:
        mass = call.map.left(call.q.new_ones(call.q.shape[2]).float())[0]
        prompt, n = self._text.prompt, self._text.ids.shape[1]
        before = mass[:, : mass.shape[1] - (n - prompt)] / (n - prompt)
        self._mass[layer] = torch.nn.functional.pad(before, (prompt - before.shape[1], 0)).cpu()
        return call

    def loss(
        self, policy: str, share: float, keep: int, kept: Mapping[int, Tensor], whole: Tensor, cut: Tensor
    ) -> Loss:
        """The loss of a policy, from the logits with the full and with the cut cache."""
        most = max(self._heads.values())
        rows = []
        for layer, mass in self._mass.items():
            lost = mass.masked_fill(kept[layer].repeat_interleave(len(mass) // len(kept[layer]), 0), 0.0)
            rows.append(torch.nn.functional.pad(lost.sum(-1), (0, most - len(mass)), value=torch.nan))
        targets = self._text.ids[0, self._text.prompt + 1 :].cpu()
        change = None
        if len(targets):
            before, after = (
                torch.nn.functional.cross_entropy(logits[: len(targets)], targets) for logits in (whole, cut)
            )
            change = float(after - before)
        loss = Loss(policy, share, keep, float(divergence(whole, cut).mean()), change, torch.stack(rows))
        if self._text.reply is None:
            return loss
        return replace(loss, found=_finds(cut, self._text), answer=_log_probability(cut, self._text))


def _finds(logits: Tensor, text: _Text) -> float:
    """1 if each token of the answer is the model's most likely next token."""
    if text.reply is None:
        return 0.0
    guesses, answer = _guesses(logits, text)
    return float((guesses.argmax(-1) == answer).all())


def _log_probability(logits: Tensor, text: _Text) -> float:
    guesses, answer = _guesses(logits, text)
    return float(guesses.log_softmax(-1).gather(1, answer[:, None]).sum())


def _guesses(logits: Tensor, text: _Text) -> tuple[Tensor, Tensor]:
    """The logits that predict the answer's tokens, and these tokens."""
    reply = text.reply or range(0)
    first = reply.start - 1 - text.prompt
    return logits[first : first + len(reply)], text.ids[0, reply.start : reply.stop].cpu()


def _mean(losses: Sequence[Loss]) -> Loss:
    """The mean of losses over several texts."""

    def mean(name: str) -> Any:
        values = [getattr(loss, name) for loss in losses]
        return None if values[0] is None else sum(values) / len(values)

    names = ("kl", "loss_change", "found", "answer")
    mass = torch.stack([loss.mass_lost for loss in losses]).mean(0)
    heads = tuple(_mean_head(alike) for alike in zip(*(loss.heads for loss in losses), strict=True))
    return replace(losses[0], mass_lost=mass, heads=heads, **{name: mean(name) for name in names})


def _mean_head(measured: Sequence[HeadLoss]) -> HeadLoss:
    """The mean over several texts of one head alone."""

    def mean(name: str) -> float:
        return sum(getattr(one, name) for one in measured) / len(measured)

    found = None if measured[0].found is None else mean("found")
    return replace(measured[0], mass_lost=mean("mass_lost"), kl=mean("kl"), found=found)


def _shares(keep: Sequence[float]) -> tuple[float, ...]:
    found = tuple(float(share) for share in keep)
    if not found or not all(0.0 < share <= 1.0 for share in found):
        raise StatisticError(f"keep is {list(keep)}; wanted shares of the keys, above 0 and at most 1.")
    return found
