"""What a build makes beside packing files: the viewer's page and the native kernels."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

sys.path.insert(0, str(Path(__file__).parent))
from building import frontend, native


class BuildHook(BuildHookInterface):
    """Runs for wheels and for editable installs alike."""

    def dependencies(self) -> list[str]:
        """What this machine lacks and PyPI has: a Node, a C compiler."""
        return [*frontend.requirements(), *native.requirements()]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = [*frontend.build(root), *native.build(root)]
        build_data["artifacts"].extend(f"/{path.relative_to(root).as_posix()}" for path in built)
        tag = native.wheel_tag()
        if tag is not None:
            build_data["pure_python"], build_data["tag"] = False, tag
