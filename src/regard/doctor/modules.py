"""Adapts a user's attention module, which takes tokens as vectors, `(batch, length, d_model)`."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from regard.doctor.adapter import signature_of
from regard.doctor.anatomy import Anatomy, Column, at_length, dissect
from regard.doctor.arguments import Parameters, Sizes, fill, fillers
from regard.doctor.axes import AXES, NO_VECTORS, arranged, token_vectors
from regard.doctor.influence import influence
from regard.doctor.masks import MaskForm, find_form, forms, holed
from regard.doctor.readings import Reading, meant_for, odd, readings
from regard.doctor.recipe import Recipe, pattern
from regard.doctor.settings import head_width, heads_of, lengths_of, widths_of
from regard.doctor.subject import (
    BATCH,
    LENGTH,
    Options,
    Scenario,
    Subject,
    declares_causal,
    library_of,
    not_callable,
    raised_by,
)
from regard.doctor.watch import Product, Watch
from regard.doctor.weights import randomised, sizeless
from regard.errors import SubjectError

__all__ = ["ModuleSubject"]


class ModuleSubject(Subject):
    """A module; a copy with random weights, in evaluation mode, is examined.

    >>> subject = ModuleSubject(nn.MultiheadAttention(8, 2, batch_first=True))
    >>> subject.reading()["padding"]
    'key_padding_mask: added to the scores, by key'
    """

    kind = "module"
    seeable = False

    def __init__(
        self, module: nn.Module, options: Options | None = None, fixed: Mapping[str, Any] | None = None
    ) -> None:
        self.options, self.fixed = options or Options(), dict(fixed or {})
        # A function stored in the module may close over the original module.
        self.original, self.name = module.eval(), type(module).__name__
        self.module = module if sizeless(module) else randomised(module)
        # A library's module follows that library's rules: masks are made elsewhere, flags are hints.
        self.library = library_of(module)
        self.own = self.library in ("torch", "transformers")
        self.parameters = signature_of(module)
        if self.options.mask is None:
            self.parameters = self.parameters.without_unread()
        self.batch, self.length, self.shape = BATCH, LENGTH, "bnd"
        self.heads = self.options.heads or heads_of(module)
        self.head_width = self.options.dim or head_width(module)
        self.flag, self.cache_name = self.parameters.of("flag"), _cache_name(self.parameters)
        self.inputs = _inputs(self.parameters)
        self.plan: dict[str, str] = {}
        self.runnable: list[dict[str, str]] = []
        # The number of tensors if its argument is a list; 0 if it is a tensor.
        self.listed = 0
        # Weights set to the identity; their products are not projections.
        self.unwatched: frozenset[str] = frozenset()
        # Masks that can be passed but have the wrong effect.
        self.uncertain: list[MaskForm] = []
        # If a mask is required: the forms to try for a mask that allows everything.
        self.meanings: list[MaskForm] = []
        self._find_call()
        self._find_masks()
        self.token_width = self.width
        self.anatomy = self._dissect()
        if odd(self.anatomy, self.heads):
            # Use small inputs: after softmax of large scores, the effect of keys vanishes.
            calm = self._dissect(size=0.25)
            self.anatomy = self.anatomy if odd(calm, self.heads) else calm
        self.levelled = self._level()
        self.heads = self.heads or self.anatomy.heads
        self.readings = readings(self.anatomy, self.heads)
        self.causal = self.options.causal
        if self.causal is None and not self.flag and not self.own and declares_causal(module):
            self.causal = True

    def reading(self) -> dict[str, Any]:
        """The sizes, the projections by the module's own names, and the meaning of its masks."""
        found: dict[str, Any] = {"d_model": self.width, "heads": self.heads or "unknown"}
        if self.shape != "bnd":
            found["layout"] = self.shape
        for role in ("query", "key", "value"):
            found[role] = self.names().get(role[0], "not recognised")
        for key, form in (("mask", self.mask), ("padding", self.padding)):
            if form:
                found[key] = form.words
        return found

    def names(self) -> dict[str, str]:
        """The module's own names for its projections and arguments."""
        found = {"name": self.name, "x": self.inputs[0] if self.inputs else "x"}
        certain = next((r for r in self.readings if r.certain), None) or next(iter(self.readings), None)
        for role in ("query", "key", "value") if certain else ():
            columns = getattr(certain, role)
            indices = dict.fromkeys(index for index, _ in columns or ())
            words = [_attribute(self.anatomy.products[index].names) for index in indices]
            if words:
                found[role[0]] = ", ".join(dict.fromkeys(words))
        outs = [_attribute(self.anatomy.products[index].names) for index in self.anatomy.after]
        found |= {"out": outs[0]} if outs else {}
        named = (("mask", self.mask), ("padding", self.padding))
        found |= {key: form.name for key, form in named if form}
        return found | ({"flag": self.flag} if self.flag else {})

    # Finding out how to call it

    def _find_call(self) -> None:
        """Find the width, the length, the axes and the extra arguments with which it runs."""
        failures: list[str] = []
        given = self.parameters
        if self._runs_with(given, failures):
            return
        if given.with_rotary() != given and self._runs_with(given.with_rotary(), failures):
            return
        self._refuse(failures)

    def _runs_with(self, parameters: Parameters, failures: list[str]) -> bool:
        """Whether it runs with the required arguments; stores the arguments, or the reason for the
        failure."""
        known = [name for name in (*self.inputs, self.flag, *self.fixed) if name]
        choices = fillers(parameters, known)
        unmixed: tuple[Any, ...] | None = None
        calls = [(0, call) for call in self._calls()]
        if len(self.inputs) == 1:
            # A list of q, k and v, or of x and a context.
            calls += [(count, call) for count in (3, 2) for call in self._calls() if call[2] == "bnd"]
        for listed, call in calls:
            if listed and unmixed is not None:
                break
            self.listed = listed
            self.length, self.width, self.shape = call
            self.batch = 1 if self.shape == "nd" else BATCH
            for self.plan in choices:
                failed = self._fails()
                if failed is not None:
                    failures.append(failed)
                elif self._mixes():
                    self.runnable = [self.plan, *self._others(choices)]
                    return True
                else:
                    found = (self.length, self.width, self.shape, self.plan, self.batch, self.listed)
                    unmixed = unmixed or found
        if unmixed is not None:
            self.length, self.width, self.shape, self.plan, self.batch, self.listed = unmixed
            self.runnable = [self.plan]
        return unmixed is not None

    def _refuse(self, failures: list[str]) -> None:
        """Raise the error that says why it could not be called."""
        self.width = next(widths_of(self.module))
        weights = any(True for _ in self.module.parameters())
        if weights and failures and NO_VECTORS in failures[0]:
            raise not_callable(
                f"{self.name} was called on a ({BATCH}, {LENGTH}, {self.width}) tensor, and "
                f"{failures[0].partition(': ')[2]}: its queries are not its tokens, but learnt or pooled, "
                "and such modules are not read. Move the attention into a function of q, k and v that the "
                "module calls, and examine that function.",
                failures,
            )
        raise not_callable(
            f"{self.name} could not be called on a ({BATCH}, {LENGTH}, {self.width}) tensor "
            f"({failures[0] if failures else 'no width was found'}). "
            "Wrap it in a module whose forward takes x, with the other arguments filled in.",
            failures,
        )

    def _calls(self) -> Iterator[tuple[int, int, str]]:
        """Lengths, widths and axes to try; unusual lengths and axes only with the likeliest widths."""
        lengths, widths = list(lengths_of(self.module, LENGTH)), list(widths_of(self.module))
        yield from ((LENGTH, width, shape) for width in widths for shape in AXES[:2])
        yield from ((LENGTH, width, shape) for width in widths for shape in AXES[2:])
        yield from ((n, width, "bnd") for n in lengths[1:] for width in widths[:3])

    def _fails(self) -> str | None:
        if sizeless(self.original):
            # Lazy layers take their sizes from the first input, even if the call then fails.
            self.module = copy.deepcopy(self.original)
        try:
            self.run(self.sample())
        except Exception as error:
            return str(error) if isinstance(error, SubjectError) else f"{type(error).__name__}: {error}"
        if sizeless(self.original):
            self.module = randomised(self.module)
        return None

    def _mixes(self) -> bool:
        """Whether tokens affect other tokens of their sequence, but no other sequence."""
        state = self.sample()
        before, other = self.run(state), state.clone()
        other[0, 1] += 1.0
        moved = (self.run(other) - before).abs().amax(-1) > 1e-6
        return bool(moved[0, 2:].any() or moved[0, 0]) and not bool(moved[1:].any())

    def _others(self, choices: list[dict[str, str]]) -> list[dict[str, str]]:
        first, found = self.plan, []
        for self.plan in choices[choices.index(first) + 1 :]:
            if len(found) < 5 and self._fails() is None:
                found.append(self.plan)
        self.plan = first
        return found

    def _find_masks(self) -> None:
        """Find the mask forms, per row and per key, under which exactly the allowed tokens affect each
        other."""
        state = self.sample()
        for name in (*self.parameters.all("mask"), *self.parameters.all("lengths")):
            if name in self.fixed:
                continue
            candidates = forms(name, self.parameters.roles[name], self.options.mask)

            def sees(form: MaskForm, allowed: Tensor, tolerance: float) -> Tensor:
                run = lambda s: self.run(s, allowed=allowed, form=form)  # noqa: E731
                return influence(run, state, self.change, self.length, tolerance)

            exact, possible = find_form(candidates, sees, self.batch, self.length, own=False)
            form = exact or (possible[0] if possible else None)
            if exact is None:
                self.uncertain += possible
                if name in self.parameters.required:
                    self.meanings = list({one.meaning: one for one in reversed(possible)}.values())[::-1]
            if form is not None and form.by_key:
                self.padding = self.padding or form
            elif form is not None:
                self.mask = self.mask or form
                if exact is not None and self.padding is None and len(self.parameters.all("mask")) == 1:
                    self.padding = form

    def _level(self) -> list[str]:
        """Set weights that mix heads before or after softmax (talking heads) to the identity."""
        held, found = dict(self.module.named_parameters()), []
        for index, product in enumerate(self.anatomy.products if self.heads else ()):
            for name in product.names - set(found) if index not in self.anatomy.places else ():
                weight = held[name]
                if weight.squeeze().shape == (self.heads, self.heads) and self.heads != self.width:
                    found.append(name)
                    with torch.no_grad():
                        weight.copy_(torch.eye(len(weight)).reshape(weight.shape))
                        bias = held.get(f"{name.removesuffix('weight')}bias")
                        if bias is not None and name.endswith("weight"):
                            bias.zero_()
        if found:
            self.unwatched = frozenset(found)
            self.anatomy = self._dissect()
        return found

    def shorter(self, n: int) -> ModuleSubject:
        """The same module on fewer tokens, with the reading found at the usual length."""
        small = copy.copy(self)
        small.length = n
        found = small._dissect(classify=False)
        small.anatomy = replace(self.anatomy, products=found.products, places=found.places)
        return small

    def longer(self, n: int) -> ModuleSubject | None:
        """The same module on more tokens, if its products have the same layout as at the usual length."""
        large = copy.copy(self)
        large.length = n
        places = {index: at_length(found, n) for index, found in self.anatomy.places.items()}
        if any(found is None for found in places.values()):
            return None
        _, seen = self.watched(self.sample(n), {})
        if len(seen.products) != len(self.anatomy.products):
            return None
        kept = {index: found for index, found in places.items() if found is not None}
        large.anatomy = replace(self.anatomy, products=seen.products, places=kept)
        return large

    def _dissect(self, classify: bool = True, size: float = 1.0) -> Anatomy:
        def change(state: Tensor, b: int, j: int) -> Tensor:
            state = state.clone()
            state[b, j] = state[b, j].roll(1, -1) * -1.5 + 0.5 * state.abs().max()
            return state

        return dissect(self.watched, size * self.sample(), change, self.length, classify)

    # Calling it

    def watched(self, state: Tensor, changes: dict[int, Tensor], **how: Any) -> tuple[Tensor, Watch]:
        """The output, and the products with weights that were computed."""
        state = state.clone()
        held = {n: x for n, x in self.module.named_parameters() if n not in self.unwatched}
        with Watch([state], held, changes) as seen:
            out = self.run(state, **how)
        return out, seen

    def run(
        self,
        state: Any,
        *,
        keep: Tensor | None = None,
        allowed: Tensor | None = None,
        form: MaskForm | None = None,
        causal: bool | None = None,
        raw: bool = False,
        **more: Any,
    ) -> Any:
        """The output, without other values that the module returns."""
        batch, n = state.shape[:2]
        extra: dict[str, Any] = {**self.fixed, **self._filled(state), **more}
        if self.flag and (causal is not None or self.flag in self.parameters.required):
            extra[self.flag] = bool(causal)
            hint = next((name for name in ("attn_mask", "src_mask") if name in self.parameters.names), None)
            if causal and self.own and hint:
                extra[hint] = ~pattern("causal", n, n)
        if keep is not None:
            form, allowed = self.padding, keep[:, None, None].expand(batch, 1, n, n)
        needed = form or self.mask or self.padding
        if allowed is None and needed and needed.name in self.parameters.required:
            form, allowed = needed, torch.ones(batch, 1, n, n, dtype=torch.bool)
        form = form or self.mask
        if allowed is not None and form is not None:
            extra[form.name] = form.build(allowed, self.heads or 1, state.dtype)
        # A slice of a longer input is not contiguous, and view() would fail on it.
        x = self.shaped(state)
        positional = [x] if self.parameters.loose or not self.inputs else []
        try:
            given = dict.fromkeys(self.inputs, [x] * self.listed if self.listed else x)
            found = self.module(*positional, **{**given, **extra})
        except Exception as error:
            raise raised_by(error) from error
        return found if raw else token_vectors(found, x, self.shape)

    def shaped(self, state: Tensor) -> Tensor:
        """The tokens in the axes that the module takes."""
        return arranged(state, self.shape).contiguous()

    def _filled(self, state: Tensor) -> dict[str, Any]:
        heads = self.heads or 1
        width = self.head_width or max(self.width // heads, 1)
        sizes = Sizes(len(state), state.shape[1], heads, width, state.dtype)
        x = arranged(state, self.shape)
        return {name: fill(choice, sizes, x) for name, choice in self.plan.items()}

    # What the probes ask

    def sample(self, n: int | None = None, seed: int = 0, dtype: torch.dtype = torch.float32) -> Any:
        """Random tokens."""
        draw = torch.Generator().manual_seed(seed)
        return torch.randn(self.batch, n or self.length, self.width, generator=draw).to(dtype)

    def change(self, state: Any, j: int, part: str = "all") -> Any:
        """Another vector at token j."""
        state = state.clone()
        state[:, j] = state[:, j].roll(1, -1) * -1.5 + 0.5 * state.abs().max()
        return state

    def scenarios(self, n: int | None = None) -> Sequence[Scenario]:
        """A plain call; a call with the causal flag; a call with the mask."""
        n = n or self.length
        exempt = bool(self.options.causal and (self.flag or (self.mask and not self.mask.by_key)))
        found = [Scenario("plain", {}, causal=self.causal is True and not exempt)]
        if self.flag:
            label = f"{self.flag}=True"
            found.append(Scenario(label, {"causal": True}, pattern("causal", n, n), causal=True))
        if self.mask and not self.own:
            allowed = holed(self.mask, self.batch, n, n)
            found.append(Scenario(f"{self.mask.name}=…", {"allowed": allowed}, allowed))
        return found

    def plans(self) -> int:
        """The number of ways to fill in unknown arguments with which it can be called."""
        return len(self.runnable) * max(len(self.meanings), 1)

    def use_plan(self, index: int) -> None:
        """Fill in unknown arguments in another way."""
        self.plan = self.runnable[index % len(self.runnable)]
        if self.meanings:
            form = self.meanings[index // len(self.runnable)]
            self.mask, self.padding = (None, form) if form.by_key else (form, None)

    def conventions(self) -> Sequence[Reading]:
        """Every reading of the projections."""
        return self.readings

    def core(self, state: Any, scenario: Scenario) -> tuple[Tensor, Any]:
        """The input of the output projection, and the products before it."""
        out, seen = self.watched(state, {}, **scenario.how)
        if len(seen.products) != len(self.anatomy.products):
            return out, (state, None, {})
        core = self.anatomy.core(seen.products, out)
        if self.anatomy.roles.gate:
            core = core / self._gate(state, seen.products, scenario)
        return core, (state, seen.products, {})

    def _gate(self, state: Any, products: list[Product], scenario: Scenario) -> Tensor:
        """The factor of a gate on the head outputs: the outputs when every value is 1."""
        columns = self.anatomy.roles.value
        changes = self.towards(columns, 1.0 - self.anatomy.value(products, columns))
        out, seen = self.watched(state, changes, **scenario.how)
        return self.anatomy.core(seen.products, out)

    def towards(self, columns: Sequence[Column], change: Tensor) -> dict[int, Tensor]:
        """A change of some columns, as terms to add to the products that contain them."""
        found, start = {}, 0
        for index in dict.fromkeys(index for index, _ in columns):
            mine = [column for i, column in columns if i == index]
            part = change[..., start : start + len(mine)]
            found[index] = self.anatomy.change(index, slice(None), torch.tensor(mine), part)
            start += len(mine)
        return found

    def parts(self, inside: tuple[Tensor, list[Product] | None, dict[Any, Any]], reading: Reading) -> Any:
        """q, k and v of one run, side by side, under one reading."""
        state, products, known = inside
        if reading.query is None or reading.key is None or reading.value is None:
            return state, state, state
        if products is None:
            return None
        columns = (reading.query, reading.key, reading.value)
        for part in columns:
            if part not in known:
                known[part] = self.anatomy.value(products, part)
        return tuple(known[part] for part in columns)

    def expected(
        self, inside: Any, convention: Any, allowed: Tensor, recipe: Recipe, queries: int | None = None
    ) -> Tensor | None:
        """The formula on the module's own projections."""
        parts = self.parts(inside, convention)
        return None if parts is None else convention.expected(parts, allowed, recipe, queries)

    def named(self) -> bool:
        """Whether the names of the projections identify q, k and v."""
        said = {meant_for(self.anatomy.products[index].names) for index in self.anatomy.places}
        # Columns without effect, which probably should have one.
        return {"query", "key", "value"} <= said or bool(self.anatomy.roles.dead)

    def unused(self) -> list[str]:
        """The weights for q, k, v or the output that are never used."""
        held = dict(self.module.named_parameters())
        used = self.anatomy.used | self.unwatched
        idle = [n for n, x in held.items() if (is_lazy(x) or x.dim() > 1) and n not in used]
        return [_attribute(frozenset([name])) for name in idle if meant_for([name])]


def _inputs(parameters: Parameters) -> tuple[str, ...]:
    """The parameters that take tokens."""
    if parameters.triple:
        return parameters.triple
    query, context = parameters.of("query"), parameters.of("context")
    if query and context and context in parameters.required:
        return query, context
    named = [name for name in parameters.names if parameters.roles[name] == "other"]
    if named:
        return (named[0],)
    return (query,) if query else tuple(x for x in (context,) if x) or parameters.names[:1]


def _cache_name(parameters: Parameters) -> str | None:
    found = [name for name in parameters.all("cache") if name not in ("use_cache", "block_mask")]
    return found[0] if found else None


def _attribute(names: frozenset[str]) -> str:
    """The attribute name of a weight."""
    return " + ".join(sorted({name.removesuffix(".weight") for name in names}))
