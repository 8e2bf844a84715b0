"""The colours of all pictures, pages and plots: seven hues told apart by colour-blind readers, paper and ink."""

from __future__ import annotations

from dataclasses import dataclass

PAPER, INK, FAINT, RULE = "#ffffff", "#1b2127", "#7d8790", "#e3e7eb"


@dataclass(frozen=True)
class Colour:
    """One hue in two tones, both told apart by colour-blind readers (after Okabe and Ito)."""

    ink: str  # on white paper
    glow: str  # on pictures and dark pages


PALETTE = (
    Colour("#0069ab", "#58b7f5"),  # blue
    Colour("#bf4b00", "#ff8f45"),  # vermilion
    Colour("#00785a", "#35dbab"),  # bluish green
    Colour("#a63f7c", "#f593cb"),  # reddish purple
    Colour("#846500", "#f7dc5a"),  # yellow
    Colour("#5546b3", "#b7abff"),  # violet
    Colour("#46525c", "#eef2f5"),  # slate
)


def rgb(colour: str) -> tuple[int, int, int]:
    """#rrggbb as three numbers."""
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)
