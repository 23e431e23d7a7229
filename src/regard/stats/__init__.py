"""What a map says, without the map: mergeable statistics of tiles."""

from regard.stats.base import ColumnStatistic, Finishes, State, Statistic, by_name, find_result, folds_of
from regard.stats.column_mass import ColumnMass
from regard.stats.custom import Custom
from regard.stats.decay import Decay, DecayCurve
from regard.stats.entropy import Entropy
from regard.stats.head_divergence import HeadDivergence
from regard.stats.histogram import BinCounts, Histogram
from regard.stats.max_score import MaxScore, RowMaximum
from regard.stats.mean_distance import MeanDistance
from regard.stats.norm_weighted import NormMass, NormWeighted
from regard.stats.pooled import Pooled, PooledMaps
from regard.stats.receptive_window import ReceptiveWindow
from regard.stats.segment_mass import SegmentMass
from regard.stats.sink_mass import SinkMass
from regard.stats.sink_rate import SinkRate
from regard.stats.tile import Frame, MapTile
from regard.stats.top_k import TopK, TopKeys
from regard.stats.value_weighted import ValueWeighted
from regard.stats.vertical_slash import Lines, VerticalSlash

__all__ = [
    "BinCounts",
    "ColumnMass",
    "ColumnStatistic",
    "Custom",
    "Decay",
    "DecayCurve",
    "Entropy",
    "Finishes",
    "Frame",
    "HeadDivergence",
    "Histogram",
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
    "SegmentMass",
    "SinkMass",
    "SinkRate",
    "State",
    "Statistic",
    "TopK",
    "TopKeys",
    "ValueWeighted",
    "VerticalSlash",
    "by_name",
    "find_result",
    "folds_of",
]
