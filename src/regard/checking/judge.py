"""Judges one printed table by the others: a verdict per cell, and causes for wrong ones."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from regard.checking.arithmetic import Exact, Matrix, Range
from regard.checking.chain import Chain
from regard.checking.example import Table
from regard.checking.mistakes import Mistake, mistakes
from regard.checking.names import FORMULAS
from regard.checking.numeral import Numeral
from regard.checking.possible import softmax_possible, sums_to_one
from regard.checking.settle import matches
from regard.checking.slips import CUT_OFF, Place, divided, slip, swapped
from regard.checking.verdict import Cell, CheckedStep, Verdict

__all__ = ["judge"]

UNKNOWN = "no known mistake gives this number"
# With rounded inputs, a mistake explains a table if its error is at most this many units of the last digit,
# and that of the right formula is more than the second number.
NEAR, FAR = 1.5, 6.0
At = tuple[int, int]


def judge(chain: Chain, name: str, before: dict[str, CheckedStep]) -> CheckedStep:
    """The verdicts about one table; `before` are those about the tables that it is computed from."""
    table = chain.example.tables[name]
    rows, columns = chain.example.labels(name)
    if not chain.parents(name):
        cells = _given(name, table)
        return CheckedStep(name, name, cells, rows, columns)
    cells = _Judgement(chain, name, table, before).cells()
    return CheckedStep(name, _formula(chain, name), cells, rows, columns)


def _given(name: str, table: Table) -> tuple[tuple[Cell, ...], ...]:
    """Judge an input table: nothing can be checked, except that weights sum to 1."""
    return tuple(
        tuple(
            Cell(i, j, x, Verdict.WRONG if bad else Verdict.GIVEN, None, _sum_cause(row) if bad else "")
            for j, x in enumerate(row)
        )
        for i, row in enumerate(table.cells)
        for bad in [name == "weights" and not sums_to_one(row)]
    )


def _sum_cause(row: tuple) -> str:
    return f"a row that does not sum to 1: it adds up to {math.fsum(x.value for x in row):.4g}"


def _formula(chain: Chain, name: str) -> str:
    scale = chain.scale
    by = "" if scale is None or scale.value == 1 else f" {scale.words}"
    if name == "scaled":
        return f"scaled = scores{by}"
    if name == "output" and chain.heads:
        return f"output = {', '.join(chain.heads)} side by side"
    if name == "weights":
        inside = next((n for n in ("masked", "scaled") if n in chain.example), f"scores{by}")
        hidden = ", masked" if chain.example.allowed is not None and inside != "masked" else ""
        return f"weights = softmax({inside}{hidden})"
    return f"{name} = {FORMULAS[name]}"


def _within(cells: Sequence[Numeral], ranges: Sequence[Range]) -> bool:
    """Whether the printed range of each number intersects the possible range."""
    return all(
        cell.low <= high + 1e-12 and cell.high >= low - 1e-12
        for cell, (low, high) in zip(cells, ranges, strict=True)
    )


class _Judgement:
    """Judges one table that is computed from others."""

    def __init__(self, chain: Chain, name: str, table: Table, before: dict[str, CheckedStep]) -> None:
        self.chain, self.name, self.table, self.before = chain, name, table, before
        self.exact = self._summed(chain.exact(name))
        self.linked = self._summed(chain.linked(name))
        self.right = matches(table, self.exact)
        if name == "exps":
            self._shifted()
        self.found: dict[At, tuple[Verdict, str]] = {}

    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        rest = [at for at in self._all() if not self.right[at[0]][at[1]]]
        self._by_link(rest)
        rest = self._left(rest)
        if len(rest) > 1:
            self._by_mistake(rest, whole=True)
        for row in sorted({i for i, _ in rest}):
            self._by_row(row)
        self._by_slip(self._left(rest))
        return tuple(
            tuple(self._cell(i, j) for j in range(len(row))) for i, row in enumerate(self.table.cells)
        )

    def _all(self) -> list[At]:
        return [(i, j) for i, row in enumerate(self.table.cells) for j in range(len(row))]

    def _left(self, places: list[At]) -> list[At]:
        return [at for at in places if at not in self.found]

    def _cell(self, i: int, j: int) -> Cell:
        printed, exact = self.table.cells[i][j], self.exact[i][j]
        if self.right[i][j]:
            return Cell(i, j, printed, Verdict.RIGHT, exact)
        verdict, cause = self.found[i, j]
        return Cell(i, j, printed, verdict, exact, cause)

    def _summed(self, values: Matrix) -> Matrix:
        """The sums over the keys of each cell, if printed cells group several keys."""
        groups = self.table.groups
        if not groups:
            return values
        return [[math.fsum(row[i] for i in group) for group in groups] for row in values]

    def _shifted(self) -> None:
        """Accept e^(score − largest of the row), which gives the same softmax."""
        logits = self.chain.exact("masked")
        tops = [max(row) for row in logits]
        shifted = [
            [math.exp(x - top) if top > -math.inf else 0.0 for x in row]
            for row, top in zip(logits, tops, strict=True)
        ]
        if all(map(all, matches(self.table, shifted))):
            self.exact, self.right = shifted, matches(self.table, shifted)

    def _by_link(self, rest: list[At]) -> None:
        """Cells that follow from the previous printed step: propagated errors or rounding."""
        follows = matches(self.table, self.linked)
        for i, j in rest:
            if not follows[i][j]:
                continue
            sources = self._sources()
            wrong = [name for name in sources if self._wrong_in(name, i, j)]
            if wrong:
                cause = f"it follows from the printed {wrong[0]}, which are wrong"
                self.found[i, j] = Verdict.INHERITED, cause
            else:
                last = next((n for n in sources if n in self.chain.example and self._rounded(n)), sources[0])
                digits = self.chain.example.tables[last].decimals if last in self.chain.example else 0
                decimals = "1 decimal" if digits == 1 else f"{digits} decimals"
                cause = (
                    f"rounded too early: it follows from the printed {last} with {decimals}, "
                    "not from the unrounded ones"
                )
                self.found[i, j] = Verdict.ROUNDED, cause

    def _rounded(self, name: str) -> bool:
        return bool(self.chain.parents(name))

    def _sources(self) -> list[str]:
        """The printed tables that `linked` starts from."""
        return self._printed_before(self.name)

    def _printed_before(self, name: str) -> list[str]:
        found: list[str] = []
        ahead = list(self.chain.parents(name))
        while ahead:
            name = ahead.pop(0)
            if name in self.chain.example and not self.chain.example.tables[name].groups:
                found.append(name)
            else:
                ahead += self.chain.parents(name)
        return found

    def _rounded_sources(self, row: int) -> list[str]:
        """The tables that a possible row may come from: its sources, or those before wrong sources."""
        found: list[str] = []
        for name in self._sources():
            found += self._printed_before(name) if self._wrong_in(name, row, 0) else [name]
        return found

    def _wrong_in(self, name: str, row: int, column: int) -> bool:
        step = self.before.get(name)
        if step is None:
            return False
        # Keys and values affect all rows; other tables affect only their own row.
        lines = step.cells if name in ("k", "v") else step.cells[row : row + 1]
        return any(cell.verdict in (Verdict.WRONG, Verdict.INHERITED) for line in lines for cell in line)

    def _mistakes(self) -> list[Mistake]:
        found: list[Mistake] = []
        printed = self.table.values
        for get in (self.chain.exact, self.chain.nearest):
            if not self.table.groups:
                found += mistakes(self.chain, self.name, get, printed)
            else:
                ungrouped = [[1.0] * len(row) for row in self.chain.exact(self.name)]
                found += mistakes(self.chain, self.name, get, ungrouped)
        return found

    def _by_mistake(self, rest: list[At], whole: bool) -> None:
        """Find one mistake that gives every cell of the table, or else every cell of the remaining rows."""
        looked = range(len(self.table.cells)) if whole else sorted({i for i, _ in rest})
        found = self._mistakes()
        for fits in (self._strictly, self._nearly):
            for mistake in found:
                if fits(mistake, looked):
                    verdict = Verdict.ROUNDED if mistake.rounding else Verdict.WRONG
                    self.found |= dict.fromkeys(rest, (verdict, mistake.cause))
                    return

    def _strictly(self, mistake: Mistake, rows: Iterable[int]) -> bool:
        hits = matches(self.table, self._summed(mistake.table))
        return all(all(hits[i]) for i in rows)

    def _nearly(self, mistake: Mistake, rows: Iterable[int]) -> bool:
        """Whether a mistake is close and the right formula is not, as the inputs may be rounded."""
        exact = all(
            x.whole for n in self._sources() for row in self.chain.example.tables[n].cells for x in row
        )
        if mistake.rounding or mistake.fitted or exact:
            return False
        off, right = self._units(self._summed(mistake.table), rows), self._units(self.exact, rows)
        return off <= NEAR and right > FAR

    def _units(self, values: Matrix, rows: Iterable[int]) -> float:
        """The largest difference of values from the printed ones, in units of the last printed digit."""
        return max(
            0.0 if cell.shows(x) else abs(cell.value - x) / (2 * cell.half) if cell.half else math.inf
            for i in rows
            for cell, x in zip(self.table.cells[i], values[i], strict=True)
        )

    def _by_row(self, row: int) -> None:
        """Explain the remaining cells of one row: truncation, rounded inputs, or a mistake in this row."""
        rest = self._left([(row, j) for j in range(len(self.table.cells[row])) if not self.right[row][j]])
        if not rest:
            return
        cut = [cell.truncates(x) for cell, x in zip(self.table.cells[row], self.exact[row], strict=True)]
        if all(cut) and not all(cell.whole for cell in self.table.cells[row]):
            self.found |= dict.fromkeys(rest, (Verdict.ROUNDED, CUT_OFF))
            return
        if len(rest) > 1:
            self._by_mistake(rest, whole=False)
        rest = self._left(rest)
        if rest and self._possible(row, rest):
            sources = " and ".join(self._rounded_sources(row))
            cause = f"possible only if the printed {sources} are rounded; as printed they give another number"
            self.found |= dict.fromkeys(rest, (Verdict.ROUNDED, cause))
            return
        wrong = [name for name in self._sources() if self._wrong_in(name, row, 0)]
        if rest and wrong and not self.table.groups and self._around(row, rest):
            cause = f"it follows from the printed {wrong[0]}, which are wrong"
            self.found |= dict.fromkeys(rest, (Verdict.INHERITED, cause))
            return
        # A row with only one or two digits matches too many mistakes by chance.
        if len(rest) == 1 and sum(cell.digits for cell in self.table.cells[row]) > 2:
            self._by_mistake(rest, whole=True)

    def _possible(self, row: int, rest: list[At]) -> bool:
        """Whether numbers within the printed digits of the inputs give the row."""
        if self.table.groups:
            return False
        cells = self.table.cells[row]
        if any(self._wrong_in(name, row, 0) for name in self._sources()):
            return _within(
                [cells[j] for _, j in rest], [self.chain.reach(self.name)[row][j] for _, j in rest]
            )
        if not self._around(row, rest):
            return False
        if self.name == "weights" and self.chain.parents("weights") == ("masked",):
            return softmax_possible(self.chain.around("masked")[row], cells)
        return True

    def _around(self, row: int, rest: list[At]) -> bool:
        """Whether the previous printed steps, within their digits, can give these cells of a row."""
        around, cells = self.chain.ranges(self.name)[row], self.table.cells[row]
        return _within([cells[j] for _, j in rest], [around[j] for _, j in rest])

    def _by_slip(self, rest: list[At]) -> None:
        """Explain cells by slips; the remaining cells have no known cause."""
        places = [Place(i, j, self.table.cells[i][j], self.exact[i][j]) for i, j in rest]
        pairs = swapped(places)
        if self.name == "scaled" and self.chain.scale is not None:
            pairs |= divided(places, self.chain.exact("scores"), self.chain.scale.words)
        for place in places:
            at = (place.row, place.column)
            printed, exact = place.printed, place.exact
            cause = pairs.get(at, "") or slip(place)
            if cause:
                self.found[at] = Verdict.ROUNDED if cause == CUT_OFF else Verdict.WRONG, cause
            elif printed.whole and abs(printed.value - exact) <= 0.5 and self.name != "weights":
                self.found[at] = Verdict.ROUNDED, "rounded to a whole number"
            elif self.name == "weights" and not sums_to_one(self.table.cells[place.row]):
                self.found[at] = Verdict.WRONG, _sum_cause(self.table.cells[place.row])
            else:
                self.found[at] = Verdict.WRONG, self._unexplained(place.row)

    def _unexplained(self, row: int) -> str:
        """The text for a number that no known mistake gives; for weights, the scores that come closest."""
        logits = (
            self.chain.exact("masked")[row] if self.name == "weights" and self.chain.has("masked") else []
        )
        many = 2 * sum(not right for right in self.right[row]) > len(self.right[row])
        if not many or len({x for x in logits if math.isfinite(x)}) < 2:
            return UNKNOWN
        printed = [cell.value for cell in self.table.cells[row]]

        def off(factor: float) -> float:
            made = self._summed(Exact.softmax(Exact.times([logits], factor)))[0]
            return max(abs(x - y) for x, y in zip(made, printed, strict=True))

        best = min((i / 100 for i in range(1, 301)), key=off)
        flatter = "flatter" if best < 1 else "sharper"
        return (
            f"{UNKNOWN}; the row is {flatter} than softmax makes it, closest to the scores times {best:.2g} "
            f"and still off by {off(best):.2g}"
        )
