"""Pictures to regions: picture files, boxes, RoI sampling, backbones, and the region extractors built of them."""

from saccade.vision.extractors import PictureGraph, RegionDescription, RegionExtractor, load_extractor
from saccade.vision.pictures import Picture, as_array, find_pictures, open_picture

__all__ = [
    "Picture",
    "PictureGraph",
    "RegionDescription",
    "RegionExtractor",
    "as_array",
    "find_pictures",
    "load_extractor",
    "open_picture",
]
