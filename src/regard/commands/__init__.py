"""The commands of the `regard` program, one file each; `regard.cli` puts them together."""

from regard.commands.app import app

__all__ = ["app"]
