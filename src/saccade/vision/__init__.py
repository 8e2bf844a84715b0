"""Pictures to regions: picture files, box arithmetic, bilinear RoI sampling, backbones, and the eyes built of them."""

from __future__ import annotations

from saccade.vision.boxes import area, clip, iou, nms, valid
from saccade.vision.eye import Eye, RegionDescription, load_eye
from saccade.vision.pictures import Picture, as_array, find_pictures, open_picture
from saccade.vision.roi import roi_bilinear

__all__ = [
    "Eye",
    "Picture",
    "RegionDescription",
    "area",
    "as_array",
    "clip",
    "find_pictures",
    "iou",
    "load_eye",
    "nms",
    "open_picture",
    "roi_bilinear",
    "valid",
]
