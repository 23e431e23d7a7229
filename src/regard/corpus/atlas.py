"""`CorpusAtlas`: the atlas of every head of a model over all documents of a corpus."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.corpus.heads import CorpusHead, heads_of
from regard.corpus.merging import ATLAS
from regard.corpus.plan import Plan
from regard.corpus.state import State
from regard.corpus.store import Store
from regard.errors import CorpusError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Group
    from rich.table import Table

__all__ = ["CorpusAtlas"]


@dataclass(frozen=True, repr=False)
class CorpusAtlas:
    """The atlas of a corpus: `regard.corpus.run` makes it, `CorpusAtlas.open` reads it.

    `failed` lists the documents that could not be read, with the reason; the statistics don't include them.
    """

    path: str
    plan: Plan
    state: State = field(compare=False)
    heads: tuple[CorpusHead, ...]

    @staticmethod
    def open(path: str | Path) -> CorpusAtlas:
        """Read the atlas of a run that is complete."""
        store = Store(path)
        about = store.read_json(f"{ATLAS}.json")
        sums = store.read(f"{ATLAS}.safetensors")
        if about is None or sums is None:
            plan = Plan.read(store)
            if plan is None:
                raise CorpusError(f"{path} is not the atlas of a corpus; make one with regard corpus.")
            raise CorpusError(
                f"{path} is not complete yet; go on with regard corpus --resume, or join the parts of an "
                "array job with regard corpus merge."
            )
        if hashlib.sha256(sums).hexdigest() != about["sums"]["sha256"]:
            raise CorpusError(
                f"{path}/{ATLAS}.safetensors is damaged: its checksum is not that of {ATLAS}.json. Delete "
                "both and merge again."
            )
        plan = Plan(about["plan"])
        state = State.from_bytes(sums, about)
        return CorpusAtlas(str(path), plan, state, heads_of(state, plan.heads))

    @property
    def documents(self) -> int:
        """The number of documents that were read."""
        return self.state.documents

    @property
    def tokens(self) -> int:
        """The number of tokens in these documents."""
        return int(self.state.sums["tokens"])

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The documents that could not be read: number, name and reason."""
        return self.state.failed

    @property
    def kinds(self) -> dict[str, tuple[CorpusHead, ...]]:
        """The heads of each kind, that is, in most documents of that kind; largest share first."""
        found: dict[str, list[CorpusHead]] = {}
        for head in self.heads:
            if head.kind is not None:
                found.setdefault(head.kind, []).append(head)
        return {
            kind: tuple(sorted(heads, key=lambda h: -(h.share(kind).value or 0)))
            for kind, heads in found.items()
        }

    def of(self, layer: int, head: int) -> CorpusHead:
        """One head."""
        for one in self.heads:
            if (one.layer, one.head) == (layer, head):
                return one
        layers = ", ".join(f"{index} ({heads} heads)" for index, heads in self.plan.about["layers"])
        raise CorpusError(f"there is no layer {layer}, head {head}; the layers are: {layers}.")

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per head, for data frames."""
        from regard.corpus.export import flat_rows

        return flat_rows(self.heads)

    def to_dict(self) -> dict[str, Any]:
        """The atlas as plain data."""
        return {**self._about(), "heads": [head.to_dict() for head in self.heads]}

    @property
    def _kind(self) -> str:
        return self.plan.about["model"]["kind"]

    def _about(self) -> dict[str, Any]:
        return {
            "model": self._kind,
            "documents": self.documents,
            "tokens": self.tokens,
            "windows": int(self.state.sums["windows"]),
            "failed": self.failed,
            "packed": self.plan.about["packed"],
        }

    def to_parquet(self, path: str | Path) -> None:
        """Write one row per head; needs pyarrow."""
        from regard.corpus.export import write_parquet

        write_parquet(self.heads, Path(path))

    def to_json_folder(self, path: str | Path) -> None:
        """Write one JSON file per head and one about all, in the layout that docs/scale.md describes."""
        from regard.corpus.export import write_folder

        write_folder(self._about(), self.heads, Path(path))

    def table(self, kind: str | None = None) -> Table:
        """One line per head, or only those of a kind: `rich.print(atlas.table())`."""
        from regard.corpus.tables import heads_table

        return heads_table(
            f"{self._kind}: {self.documents} documents, {self.tokens} tokens", self.heads, kind
        )

    def firing(self, layer: int, head: int) -> Group:
        """The texts with a head's strongest cells: `rich.print(atlas.firing(5, 2))`."""
        from regard.corpus.tables import firing

        return firing(self.of(layer, head))

    def figure(self) -> Figure:
        """The heads of each kind, with the share of documents and its interval."""
        from regard.corpus.figures import kinds_figure

        return kinds_figure(self.heads)

    def scatter(self, x: str = "mean_distance", y: str = "relative_entropy") -> Figure:
        """Every head as a point between two measures, coloured by its kind, with error bars."""
        from regard.corpus.figures import scatter

        return scatter(self.heads, x, y)

    def __repr__(self) -> str:
        one = "document" if self.documents == 1 else "documents"
        failed = f", {len(self.failed)} failed" if self.failed else ""
        counts = f"{len(self.heads)} heads, {self.documents} {one}, {self.tokens} tokens{failed}"
        return f"CorpusAtlas({self._kind}, {counts})"
