"""What a bottom-up detector is made of, how it selects, and what it can name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BottomUpConfig:
    """Selection, overlaps and the attribute head are the paper's; the sizes fit a small backbone."""

    backbone: str = "efficientnet-lite0"
    size: int = 320  # pictures are stretched to this square
    stride: int = 8  # the backbone's maps from this stride on are joined into one
    map_dim: int = 256
    scales: tuple[float, ...] = (0.06, 0.12, 0.24, 0.45, 0.8)  # √area of the anchors, in sides of the picture
    ratios: tuple[float, ...] = (0.4, 0.9, 2.0)  # width/height
    rpn_dim: int = 128
    candidates: int = 1000  # anchors that go into the suppression of proposals
    proposals: int = 150  # boxes that come out of it, at most
    proposal_overlap: float = 0.7
    roi_size: int = 7
    roi_dim: int = 96
    dim: int = 1024  # of a region's vector
    dropout: float = 0.2  # of the vectors, for the heads alone and while training
    class_dim: int = 256  # of the class as the attribute head is told it
    attribute_hidden: int = 512
    class_overlap: float = 0.3
    confidence: float = 0.2  # a region's, to be kept
    least: int = 10  # regions a picture, and
    most: int = 100  # at most
    whole: bool = True  # the picture itself is the last region
    attribute_confidence: float = 0.3  # an attribute's, to be said
    classes: tuple[str, ...] = ()  # the background, number 0 of the scores, is not among them
    attributes: tuple[str, ...] = ()  # "none", number 0, neither
