"""What the server answers, as models: its OpenAPI description, and the page's types, are made from these."""

from regard.viewer.answers.checking import (
    CheckReport,
)
from regard.viewer.answers.findings import (
    Alignment,
    AlignmentRun,
    Atlas,
    Curve,
    Distances,
    Everywhere,
    Evidence,
    EvidencePlace,
    Farthest,
    Finder,
    Looked,
    Pending,
    Questions,
    Returning,
)
from regard.viewer.answers.maps import (
    Cell,
    Column,
    Region,
    Row,
    Statistics,
    Steps,
)
from regard.viewer.answers.recordings import (
    Described,
    Info,
    Recordings,
    Tokens,
    Worked,
)
from regard.viewer.answers.sights import (
    Said,
    Sight,
    Sights,
)
from regard.viewer.answers.work import (
    JobList,
    JobState,
    KnockoutResult,
    Made,
    Started,
)

__all__ = [
    "Alignment",
    "AlignmentRun",
    "Atlas",
    "Cell",
    "CheckReport",
    "Column",
    "Curve",
    "Described",
    "Distances",
    "Everywhere",
    "Evidence",
    "EvidencePlace",
    "Farthest",
    "Finder",
    "Info",
    "JobList",
    "JobState",
    "KnockoutResult",
    "Looked",
    "Made",
    "Pending",
    "Questions",
    "Recordings",
    "Region",
    "Returning",
    "Row",
    "Said",
    "Sight",
    "Sights",
    "Started",
    "Statistics",
    "Steps",
    "Tokens",
    "Worked",
]
