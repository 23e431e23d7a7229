"""TypeScript types of what the viewer's server answers, made from its own OpenAPI description.

python -m building.api writes frontend/src/source/api.ts; with --check it says whether that is up to date.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

__all__ = ["TYPES", "schemas", "stamp_of"]

ROOT = Path(__file__).parents[1]
TYPES = ROOT / "frontend" / "src" / "source" / "api.ts"
MAKER = ROOT / "frontend" / "node_modules" / "openapi-typescript" / "bin" / "cli.js"
HEADER = """\
// Made by `python -m building.api` from the models in src/regard/viewer/answers/ and routes/; do not edit.
// {stamp}

"""
# FastAPI's own, whose form differs from release to release.
FOREIGN = ("HTTPValidationError", "ValidationError")


def schemas() -> dict[str, Any]:
    """Every model of a request or an answer, by name, as the server describes it."""
    from regard.viewer.app import create_app

    app = create_app()
    found = app.openapi()["components"]["schemas"]
    return {name: _plain(one) for name, one in sorted(found.items()) if name not in FOREIGN}


def stamp_of(models: dict[str, Any]) -> str:
    """Changes whenever a model does, and not with the words that describe it."""
    return f"schema {hashlib.sha256(json.dumps(_bare(models), sort_keys=True).encode()).hexdigest()[:16]}"


def _bare(schema: Any) -> Any:
    """Without descriptions."""
    if isinstance(schema, list):
        return [_bare(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _bare(part) for name, part in schema.items() if name != "description" or isinstance(part, dict)
    }


def _plain(schema: Any) -> Any:
    """Without titles, which repeat names, and without defaults, of which types know nothing."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {key: _plain(one) for key, one in part.items()} if name == "properties" else _plain(part)
        for name, part in schema.items()
        if name not in ("title", "default") or isinstance(part, dict)
    }


def written(models: dict[str, Any]) -> str:
    """The models in TypeScript."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "regard", "version": "0"},
        "paths": {},
        "components": {"schemas": models},
    }
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "openapi.json", Path(folder) / "api.ts"
        source.write_text(json.dumps(document))
        subprocess.run(
            ["node", str(MAKER), str(source), "--output", str(made)], check=True, capture_output=True
        )
        text = made.read_text()
    # What is there beside the models is empty.
    start = text.index("export interface components")
    stop = text.index("    responses: never;")
    return HEADER.format(stamp=stamp_of(models)) + text[start:stop].rstrip() + "\n}\n"


def main(check: bool) -> int:
    models = schemas()
    if not check:
        TYPES.write_text(written(models))
        return 0
    if stamp_of(models) in TYPES.read_text():
        return 0
    print(
        "frontend/src/source/api.ts is older than the server's models: run python -m building.api.",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
