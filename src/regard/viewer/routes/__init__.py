"""The routes of the server, by topic."""

from regard.viewer.routes.checking import router as checking
from regard.viewer.routes.comparing import router as comparing
from regard.viewer.routes.findings import router as findings
from regard.viewer.routes.maps import router as maps
from regard.viewer.routes.recordings import router as recordings
from regard.viewer.routes.storing import router as storing
from regard.viewer.routes.work import router as work

__all__ = ["checking", "comparing", "findings", "maps", "recordings", "storing", "work"]
