"""What a build makes beside packing files: the viewer's page and the native kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
from building import frontend, native


class BuildHook(BuildHookInterface):
    """Runs for every build; a source distribution takes the page along, and no compiled kernels."""

    def dependencies(self) -> list[str]:
        """What this machine lacks and PyPI has: a Node, a C compiler."""
        needs_compiler = self.target_name != "sdist"
        return [*frontend.requirements(), *(native.requirements() if needs_compiler else [])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = frontend.build(root)
        if self.target_name == "sdist":
            # With the stamp of its sources, an install from the archive needs no Node.
            built.append(root / frontend.TARGET / frontend.STAMP)
        else:
            built += native.build(root)
            tag = native.wheel_tag()
            if tag is not None:
                build_data["pure_python"], build_data["tag"] = False, tag
        build_data["artifacts"].extend(f"/{path.relative_to(root).as_posix()}" for path in built)
