"""The colours of all pictures.

They have equal steps of lightness (in Oklab) along two hues that colour-blind readers can distinguish: blue
for positive numbers and weights, orange for negative ones.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.colors import Colormap

__all__ = ["colormap", "ink", "shade"]

BLUE, ORANGE = math.radians(255), math.radians(52)


def shade(level: float, dark: bool = False) -> str:
    """The colour of a number from -1 to 1: blue above zero, orange below, the page's own colour at zero.

    Numbers are clamped to that range. Larger numbers are lighter on a dark page, and darker on a white one.

    >>> shade(0.0), shade(0.5), shade(-0.5), shade(0.5, dark=True)
    ('#ffffff', '#4b90e6', '#d3712b', '#2d73c6')
    """
    strength = min(abs(level), 1.0)
    lightness = 0.19 + 0.73 * strength if dark else 1.0 - 0.7 * strength
    chroma = 0.42 * strength * (1.2 - strength)
    hue = BLUE if level > 0 else ORANGE
    return _srgb(lightness, chroma * math.cos(hue), chroma * math.sin(hue))


def ink(background: str) -> str:
    """Black or white, whichever has more contrast with a colour; always at least 4.5 to 1.

    >>> ink("#ffffff"), ink("#08306b")
    ('#000000', '#ffffff')
    """
    channels = (int(background[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    # Contrast with white is 1.05 / (l + 0.05) and with black (l + 0.05) / 0.05: equal where their product is.
    return "#ffffff" if (luminance + 0.05) ** 2 < 1.05 * 0.05 else "#000000"


@cache
def colormap(signed: bool = False) -> Colormap:
    """The same colours as a matplotlib colormap, from 0 to 1, or with `signed` from −1 to 1."""
    from matplotlib.colors import ListedColormap

    levels = range(-255 if signed else 0, 256)
    return ListedColormap([shade(level / 255) for level in levels], name="regard")


def _srgb(lightness: float, a: float, b: float) -> str:
    """An Oklab colour as #rrggbb, clipped to what a screen can show."""
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    middle = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * middle + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * middle - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * middle + 1.7076147010 * short,
    )
    clipped = (min(max(c, 0.0), 1.0) for c in linear)
    channels = (12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in clipped)
    return "#" + "".join(f"{round(255 * c):02x}" for c in channels)
