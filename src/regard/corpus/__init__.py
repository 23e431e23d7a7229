"""An atlas of a whole corpus: surveys of every head over many documents, on any number of workers."""

from regard.corpus.atlas import CorpusAtlas
from regard.corpus.heads import CorpusHead
from regard.corpus.intervals import Mean, Share
from regard.corpus.plan import Settings
from regard.corpus.run import merge, run
from regard.corpus.source import ModelSource

__all__ = ["CorpusAtlas", "CorpusHead", "Mean", "ModelSource", "Settings", "Share", "merge", "run"]
