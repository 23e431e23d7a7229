"""Mergeable statistics of the tiles of a map."""

from regard.stats.base import (
    Block,
    ColumnStatistic,
    Finishes,
    State,
    Statistic,
    blocks_of,
    by_name,
    find_result,
    folds_of,
)
from regard.stats.column_mass import ColumnMass
from regard.stats.column_max import ColumnMax
from regard.stats.custom import Custom
from regard.stats.decay import Decay, DecayCurve
from regard.stats.entropy import Entropy
from regard.stats.head_divergence import HeadDivergence
from regard.stats.head_sum import HeadSum, SharedKeys
from regard.stats.histogram import BinCounts, Histogram
from regard.stats.kl import KL
from regard.stats.max_score import MaxScore, RowMaximum
from regard.stats.mean_distance import MeanDistance
from regard.stats.norm_weighted import NormMass, NormWeighted
from regard.stats.pooled import Pooled, PooledMaps
from regard.stats.receptive_window import ReceptiveWindow
from regard.stats.segment_mass import SegmentMass
from regard.stats.sink_mass import SinkMass
from regard.stats.sink_rate import SinkRate
from regard.stats.student import Indexer, Scores, Student
from regard.stats.tile import Frame, MapTile
from regard.stats.top_k import TopK, TopKeys
from regard.stats.value_weighted import ValueWeighted
from regard.stats.vertical_slash import Lines, VerticalSlash
from regard.stats.windowed_mass import WindowedMass

__all__ = [
    "KL",
    "BinCounts",
    "Block",
    "ColumnMass",
    "ColumnMax",
    "ColumnStatistic",
    "Custom",
    "Decay",
    "DecayCurve",
    "Entropy",
    "Finishes",
    "Frame",
    "HeadDivergence",
    "HeadSum",
    "Histogram",
    "Indexer",
    "Lines",
    "MapTile",
    "MaxScore",
    "MeanDistance",
    "NormMass",
    "NormWeighted",
    "Pooled",
    "PooledMaps",
    "ReceptiveWindow",
    "RowMaximum",
    "Scores",
    "SegmentMass",
    "SharedKeys",
    "SinkMass",
    "SinkRate",
    "State",
    "Statistic",
    "Student",
    "TopK",
    "TopKeys",
    "ValueWeighted",
    "VerticalSlash",
    "WindowedMass",
    "blocks_of",
    "by_name",
    "find_result",
    "folds_of",
]
