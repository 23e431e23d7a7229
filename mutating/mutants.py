"""Every mutant of a file: the file with one small mistake in it."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Mutant", "mutants_of"]

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One mistake: where it is, what it replaces, and the whole file with and without it."""

    path: str
    line: int
    column: int
    operator: str
    before: str
    after: str
    source: str
    original: str

    @property
    def name(self) -> str:
        """The same in every run, as long as the file is the same."""
        return f"{self.path}:{self.line}:{self.column} {self.operator}: {self.before} -> {self.after}"


def mutants_of(path: str, source: str) -> list[Mutant]:
    """All mutants of a file, in the order of its text.

    >>> [mutant.after for mutant in mutants_of("x.py", "def f(a):\\n    return a < 1\\n")]
    ['None', 'a <= 1', '2']
    """
    tree = ast.parse(source)
    found = [_mutant(path, source, node, *change) for node in _nodes(tree) for change in _changes(node)]
    return [mutant for mutant in found if mutant is not None]


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs when functions are called or constants are read: no annotations, decorators or docstrings."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params", "bases", "keywords_of_class"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_said(node):
                continue
            yield node
            yield from _nodes(node)


def _is_said(node: ast.AST) -> bool:
    """Docstrings, messages, what checkers read, and the names a module exports."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
        return True
    if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
        return True
    if isinstance(node, ast.FunctionDef) and node.name == "__repr__":
        return True
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom)


def _changes(node: Any) -> Iterator[tuple[str, ast.AST | str]]:
    """The mistakes that can be made at a node: a name, and what stands there instead."""
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                other = copy.deepcopy(node)
                other.ops[place] = COMPARISONS[type(operator)]()
                yield "comparison", other
        case ast.BinOp(op=operator) if type(operator) in ARITHMETIC:
            other = copy.deepcopy(node)
            other.op = ARITHMETIC[type(operator)]()
            yield "arithmetic", other
        case ast.Constant(value=bool() as value):
            yield "constant", ast.Constant(not value)
        case ast.Constant(value=int() | float() as value):
            yield "constant", ast.Constant(value + 1)
        case ast.BoolOp(op=operator):
            other = copy.deepcopy(node)
            other.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield "and/or", other
        case ast.UnaryOp(op=ast.Not() | ast.Invert() | ast.USub(), operand=operand):
            yield "negation", operand
        case ast.IfExp():
            other = copy.deepcopy(node)
            other.test = ast.UnaryOp(ast.Not(), other.test)
            yield "condition", other
        case ast.If(test=test) | ast.While(test=test):
            yield "condition", _Instead(test, ast.UnaryOp(ast.Not(), test))
        case ast.Return(value=value) if value is not None and not _is_none(value):
            yield "return", _Instead(value, ast.Constant(None))
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise():
            yield "deleted statement", ast.Pass()
        case ast.Tuple(elts=elements, ctx=ast.Load()) if len(elements) > 2:
            for place in range(len(elements)):
                other = copy.deepcopy(node)
                del other.elts[place]
                yield "deleted element", other


class _Instead(ast.AST):
    """A change of one part of a node, and not of the node."""

    def __init__(self, part: ast.AST, other: ast.AST) -> None:
        self.part, self.other = part, other


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _mutant(path: str, source: str, node: Any, operator: str, other: Any) -> Mutant | None:
    if isinstance(other, _Instead):
        node, other = other.part, other.other
    lines = source.splitlines(keepends=True)
    # Columns of the syntax tree count bytes.
    start = _place(lines, node.lineno, node.col_offset)
    stop = _place(lines, node.end_lineno, node.end_col_offset)
    before, after = source[start:stop], ast.unparse(ast.fix_missing_locations(other))
    simple = isinstance(other, ast.Constant | ast.Name | ast.Pass)
    written = after if simple or (before.startswith("(") and after.startswith("(")) else f"({after})"
    changed = source[:start] + written + source[stop:]
    try:
        compile(changed, path, "exec")
    except SyntaxError:
        return None
    return Mutant(
        path, node.lineno, node.col_offset, operator, " ".join(before.split()), after, changed, source
    )


def _place(lines: list[str], line: int, column: int) -> int:
    inside = len(lines[line - 1].encode()[:column].decode())
    return sum(map(len, lines[: line - 1])) + inside
