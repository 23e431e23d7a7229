"""Every exception regard raises on purpose, one tree:

    RegardError
    ├── ShapeError          a tensor has the wrong rank, length or head count
    ├── DtypeError          a tensor has a dtype that cannot be used here
    ├── DeviceError         tensors that must sit together sit on different devices
    ├── MaskError           a mask is impossible, or made for other lengths
    ├── ScoreError          a score function, bias or position scheme is impossible
    ├── StatisticError      a statistic is impossible, or asked for twice
    ├── MapError            a map cannot be read: stale, too large, or out of range
    │   └── MapIndexError   an index lies beyond the end of an axis; an IndexError too
    ├── BackendError        a named backend cannot do what was asked
    ├── DistributedError    the ranks of a process group disagree, or one of them is missing
    ├── ModelError          a model cannot be loaded, watched or read from its config
    │   └── NotCountedError a model is known, and what it costs is not counted
    ├── RecordingError      a recording cannot be made, written or read
    ├── CorpusError         a corpus run cannot be planned, resumed, merged or read
    ├── SubjectError        code that is being examined raised an error of its own
    │   └── NotCallableError no way was found to call code that is to be examined
    ├── StoppedError        Ctrl-C ended a command that leaves something behind; the message says what
    └── InternalError       the doctor itself failed; the message is its traceback

Each message says what was given, what was wanted and what to do. All of them are also `ValueError`s,
so code that guards a call to PyTorch's attention keeps working.
"""

__all__ = [
    "BackendError",
    "CorpusError",
    "DeviceError",
    "DistributedError",
    "DtypeError",
    "InternalError",
    "MapError",
    "MapIndexError",
    "MaskError",
    "ModelError",
    "NotCallableError",
    "NotCountedError",
    "RecordingError",
    "RegardError",
    "ScoreError",
    "ShapeError",
    "StatisticError",
    "StoppedError",
    "SubjectError",
]


class RegardError(ValueError):
    """Anything regard refuses to do."""


class ShapeError(RegardError):
    """A tensor has the wrong rank, length or head count."""


class DtypeError(RegardError):
    """A tensor has a dtype that cannot be used here."""


class DeviceError(RegardError):
    """Tensors that must sit together sit on different devices."""


class MaskError(RegardError):
    """A mask is impossible, or was made for other lengths."""


class ScoreError(RegardError):
    """A score function, bias or position scheme is impossible."""


class StatisticError(RegardError):
    """A statistic is impossible, or was asked for twice."""


class MapError(RegardError):
    """A map cannot be read: it is stale, too large, or the index is out of range."""


class MapIndexError(MapError, IndexError):
    """An index lies beyond the end of an axis of a map."""


class BackendError(RegardError):
    """A named backend cannot do what was asked."""


class DistributedError(RegardError):
    """The ranks of a process group disagree, one of them is missing, or a sequence cannot be cut so."""


class ModelError(RegardError):
    """A model cannot be loaded, watched or read from its config."""


class NotCountedError(ModelError):
    """A model is known, and what it costs is not counted, for the reason given."""


class RecordingError(RegardError):
    """A recording cannot be made, written or read."""


class CorpusError(RegardError):
    """A corpus run cannot be planned, resumed, merged or read."""


class SubjectError(RegardError):
    """Code that is being examined raised an error of its own."""


class NotCallableError(SubjectError):
    """No way was found to call code that is to be examined."""

    # The error that every call raised, if no other input could avoid it.
    raised: str | None = None


class StoppedError(RegardError):
    """Ctrl-C ended a command that leaves something behind; the message says what."""


class InternalError(RegardError):
    """The doctor itself failed; the message is its traceback."""
