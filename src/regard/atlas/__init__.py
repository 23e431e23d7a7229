"""The atlas: what every head of a model attends to, and the effect of removing it."""

from regard.atlas.advice import Advice, Pattern, advise
from regard.atlas.alignment import AlignmentHead, TimedWord, alignment_heads, token_times, word_times
from regard.atlas.comparison import Change, Comparison, compare
from regard.atlas.decay import DecayFit, decay
from regard.atlas.edges import Edge
from regard.atlas.effects import Effect, Importance
from regard.atlas.importance import importance
from regard.atlas.kinds import KINDS, Kind
from regard.atlas.knockout import Knockout, knockout
from regard.atlas.needle import NeedleTest, needle
from regard.atlas.needle_grid import NeedleGrid, needle_grid
from regard.atlas.pairs import PairedHead, bracket_pairs, paired_heads
from regard.atlas.profile import Profile, position_profile
from regard.atlas.rollout import rollout
from regard.atlas.survey import atlas, cards_of
from regard.cards import Atlas, Finding, HeadCard

__all__ = [
    "KINDS",
    "Advice",
    "AlignmentHead",
    "Atlas",
    "Change",
    "Comparison",
    "DecayFit",
    "Edge",
    "Effect",
    "Finding",
    "HeadCard",
    "Importance",
    "Kind",
    "Knockout",
    "NeedleGrid",
    "NeedleTest",
    "PairedHead",
    "Pattern",
    "Profile",
    "TimedWord",
    "advise",
    "alignment_heads",
    "atlas",
    "bracket_pairs",
    "cards_of",
    "compare",
    "decay",
    "importance",
    "knockout",
    "needle",
    "needle_grid",
    "paired_heads",
    "position_profile",
    "rollout",
    "token_times",
    "word_times",
]
