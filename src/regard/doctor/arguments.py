"""The roles of the parameters of a user's function, from their names, and arguments to pass for them."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import Any

import torch
from torch import Tensor

__all__ = ["Parameters", "Sizes", "fill", "fillers", "parameters_of"]

# Name patterns by role; the first match counts.
ROLES: tuple[tuple[str, str], ...] = (
    ("flag", r"(is_|use_)?causal(_mask)?"),
    (
        "cache",
        r".*cache.*|past.*|layer_past|use_cache|kv_write_indices|block_mask",
    ),
    ("lengths", r"valid_lens?|(seq_|key_|x_|src_)?len(gth)?s"),
    ("mask", r".*mask.*|attn_bias|attention_bias|bias|rel(ative)?_pos(ition)?_bias|alibi"),
    ("cos", r".*cos"),
    ("sin", r".*sin"),
    ("both", r"position_embeddings?|cos_sin|rope(_cache)?|rotary_pos_emb|rotary(_emb)?|.*freqs_cos_sin"),
    ("freqs", r".*freqs?(_cis|_complex)?|freqs.*"),
    ("positions", r"(input_|cache_)?pos(ition)?s?(_ids?)?"),
    ("zero", r"start_?pos(ition)?|offset|.*offset|layer_(idx|id|index|number)|step|index"),
    ("heads", r"(num|n)_?(attention_)?heads?|heads|nheads?|h|nh|head_num"),
    ("rate", r".*drop.*|p|p_drop"),
    ("switch", r"training|train|need_weights|(return|output|with)_.*|average_attn_weights|verbose|inference"),
    ("width", r"d_?k|d_?h|d_?head|head_?(dim|size)|dim_?head|d"),
    ("scale", r".*scale|.*scaling"),
    ("temperature", r"temperature|tau"),
    ("length", r"n|t|l|seq_?len|length|seq_length|context_len(gth)?"),
    ("batch", r"b|bs|bsz|batch_size"),
    ("rows", r"H|height"),
    ("columns", r"W|width"),
    (
        "query",
        r"(x_?|hidden_)?(q|que?r(y|ies)|qs)(_?(states?|layer|input|in|inputs|vec|vectors|tensor|heads?|x))?",
    ),
    ("key", r"(x_?|hidden_)?(k|keys?|ks)(_?(states?|layer|input|in|inputs|vec|vectors|tensor|heads?|x))?"),
    (
        "value",
        r"(x_?|hidden_)?(v|values?|vs)(_?(states?|layer|input|in|inputs|vec|vectors|tensor|heads?|x))?",
    ),
    (
        "context",
        r"kv|x_?kv|context|memory|mem|cond|y|z|encoder_.*|enc_.*|cross_.*|source|src|key_value(_states|s)?|x_?(2|k)",
    ),
)
INPUTS = ("query", "key", "value")
ROTARY = ("cos", "sin", "both", "freqs")
MOST = 64


@dataclass(frozen=True)
class Sizes:
    """The sizes of one call."""

    batch: int
    length: int
    heads: int
    width: int
    dtype: torch.dtype = torch.float32


@dataclass
class Parameters:
    """The parameters of a function by role."""

    names: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)
    loose: bool = False
    # Masks that the function's code never reads.
    unread: tuple[str, ...] = ()

    def without_unread(self) -> Parameters:
        """The parameters without optional masks that the code never reads."""
        idle = {name: "unread" for name in self.unread if name not in self.required}
        return replace(self, roles={**self.roles, **idle})

    def with_rotary(self) -> Parameters:
        """The parameters with cosines and sines as required: some functions fail on their default of None."""
        angles = [name for name in self.names if self.roles[name] in ROTARY and name not in self.required]
        return replace(self, required=(*self.required, *angles))

    def of(self, role: str) -> str | None:
        """The first parameter with this role."""
        return next((name for name in self.names if self.roles[name] == role), None)

    def all(self, role: str) -> tuple[str, ...]:
        """Every parameter with this role."""
        return tuple(name for name in self.names if self.roles[name] == role)

    @property
    def triple(self) -> tuple[str, ...]:
        """The parameters for q, k and v, or () if one is missing."""
        found = tuple(self.of(role) for role in INPUTS)
        return tuple(name for name in found if name) if all(found) else ()


def parameters_of(fn: Callable[..., Any], known: Sequence[str] = ()) -> Parameters:
    """Read a signature; `known` are the names for a function without one.

    >>> parameters_of(lambda x, *, attn_mask=None, cos, sin: x).roles
    {'x': 'other', 'attn_mask': 'mask', 'cos': 'cos', 'sin': 'sin'}
    """
    try:
        found = list(inspect.signature(fn).parameters.values())
    except (TypeError, ValueError):
        return Parameters(tuple(known), (), tuple(known), {name: _role(name) for name in known})
    loose = any(p.kind == p.VAR_POSITIONAL for p in found)
    found = [p for p in found if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"]
    names = tuple(p.name for p in found)
    masks = [p.name for p in found if _role_of(p) in ("mask", "lengths")]
    return Parameters(
        names,
        tuple(p.name for p in found if p.default is p.empty),
        tuple(p.name for p in found if p.kind != p.KEYWORD_ONLY),
        {p.name: _role_of(p) for p in found},
        loose and not names,
        tuple(name for name in masks if not _reads(fn, name)),
    )


def _reads(fn: Callable[..., Any], name: str) -> bool:
    """Whether the code of a function loads a parameter; True if there is no code to read."""
    code = getattr(inspect.unwrap(fn), "__code__", None)
    if code is None or "locals" in code.co_names or name in code.co_cellvars:
        return True
    loads = (step for step in dis.get_instructions(code) if "LOAD" in step.opname)
    return any(
        step.argval == name or (isinstance(step.argval, tuple) and name in step.argval) for step in loads
    )


def _role(name: str) -> str:
    exact = name.strip("_")
    for role, pattern in ROLES:
        text = exact if role in ("rows", "columns") else exact.lower()
        if re.fullmatch(pattern, text):
            return role
    return "other"


def _role_of(parameter: inspect.Parameter) -> str:
    role = _role(parameter.name)
    said = str(parameter.annotation)
    if role in ("width", "length", "batch", "heads", "rate") and "Tensor" in said and "int" not in said:
        return "other"
    return role


def fillers(parameters: Parameters, skip: Sequence[str]) -> list[dict[str, str]]:
    """All sensible choices of arguments for the required parameters other than inputs.

    >>> fillers(parameters_of(lambda x, start_pos: x), ["x"])
    [{'start_pos': 'zero'}]
    """
    wanted = [name for name in parameters.required if name not in skip]
    roles = {parameters.roles[name] for name in wanted}
    rotary = _rotary_choices(roles)
    others = [name for name in wanted if parameters.roles[name] not in ROTARY]
    choices = [_choices(parameters.roles[name]) for name in others]
    found = []
    for turn in rotary:
        for chosen in islice(product(*choices), MOST):
            plan = dict(zip(others, chosen, strict=True))
            plan |= {n: f"{parameters.roles[n]}:{turn}" for n in wanted if n not in plan}
            found.append(plan)
    return found


def _rotary_choices(roles: set[str]) -> list[str]:
    shapes = ("n", "1n", "bn", "11n", "1n1", "n11", "n1")
    plain = [f"{shape} {how}" for how in ("half", "halves", "pairs") for shape in shapes]
    plain.sort(key=lambda choice: shapes.index(choice.split()[0]))
    if "freqs" in roles:
        return ["n complex", "1n complex", "n stack", "n half", "n halves", "n pairs", "bn complex", "n none"]
    if "both" in roles:
        return ["bn halves", "bn pairs", "bn half", *plain, "n none"]
    return plain if roles & {"cos", "sin"} else [""]


def _choices(role: str) -> tuple[str, ...]:
    simple = {
        "mask": ("none", "mask", "masks", "wide masks", "key mask"), "lengths": ("none", "lengths"),
        "cache": ("none",), "zero": ("zero",),
        "positions": ("positions", "rows of positions", "none", "zero"), "heads": ("heads",), "flag": ("no",),
        "rate": ("zero", "none"), "switch": ("no",), "width": ("width",), "length": ("length",),
        "batch": ("batch",), "rows": ("rows",), "columns": ("columns",), "scale": ("scale", "none"),
        "temperature": ("temperature",), "context": ("x", "none"),
    }  # fmt: skip
    return simple.get(role, ("x", "none", "zero", "mask"))


def fill(choice: str, sizes: Sizes, x: Tensor | None = None) -> Any:
    """The argument for a choice.

    >>> fill("zero", Sizes(2, 6, 4, 12))
    0
    """
    role, _, turn = choice.partition(":")
    if turn:
        return _rotary(role, *turn.split(), sizes)  # type: ignore[arg-type]
    n = sizes.length
    values: dict[str, Callable[[], Any]] = {
        "none": lambda: None, "zero": lambda: 0, "no": lambda: False, "x": lambda: x,
        "mask": lambda: torch.ones(n, n, dtype=torch.bool),
        "masks": lambda: torch.ones(sizes.batch, n, n, dtype=torch.bool),
        "wide masks": lambda: torch.ones(sizes.batch, 1, n, n, dtype=torch.bool),
        "key mask": lambda: torch.ones(sizes.batch, n, dtype=torch.bool),
        "lengths": lambda: torch.full((sizes.batch,), n),
        "positions": lambda: torch.arange(n),
        "rows of positions": lambda: torch.arange(n).expand(sizes.batch, n),
        "heads": lambda: sizes.heads, "width": lambda: sizes.width, "length": lambda: n,
        "batch": lambda: sizes.batch, "rows": lambda: 2, "columns": lambda: n // 2,
        "scale": lambda: sizes.width**-0.5, "temperature": lambda: sizes.width**0.5,
    }  # fmt: skip
    return values[role]()


def _rotary(role: str, shape: str, how: str, sizes: Sizes) -> Any:
    """Angles of the usual kind, base 10,000, as an argument of this role."""
    if how == "none":
        return None
    half = max(sizes.width // 2, 1)
    turns = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(sizes.length, dtype=torch.float64)[:, None] * turns
    if how == "halves":
        angles = torch.cat([angles, angles], -1)
    elif how == "pairs":
        angles = angles.repeat_interleave(2, -1)
    views = {"n": angles, "1n": angles[None], "bn": angles.expand(sizes.batch, *angles.shape)}
    views |= {"11n": angles[None, None], "1n1": angles[None, :, None], "n11": angles[:, None, None]}
    views |= {"n1": angles[:, None]}
    angles = views[shape]
    cos, sin = angles.cos().to(sizes.dtype), angles.sin().to(sizes.dtype)
    if how == "complex":
        return torch.complex(cos.float(), sin.float())
    if how == "stack":
        return torch.stack([cos, sin], -1)
    return {"cos": cos, "sin": sin, "both": (cos, sin), "freqs": angles.to(sizes.dtype)}[role]
