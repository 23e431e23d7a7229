"""What a build makes beside packing files: the viewer's page, the native kernels, and a README for PyPI."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).parent))
from building import frontend, native
from building.metadata import absolute, addresses, repository, version


class MetadataHook(MetadataHookInterface):
    """The README with links that work outside the repository, and the addresses of the project."""

    def update(self, metadata: dict[str, Any]) -> None:
        words = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        given = repository(), version(Path(self.root))
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(words, *given)}
        metadata["urls"] = addresses(*given)


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
