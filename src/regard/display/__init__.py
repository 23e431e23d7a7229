"""What a notebook shows for masks, maps, observations, recordings, atlases and knock-outs."""

from regard.display.page import figure, page, table

__all__ = ["figure", "page", "table"]
