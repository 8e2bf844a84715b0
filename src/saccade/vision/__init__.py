"""Pictures to regions: opening picture files, box arithmetic, bilinear RoI sampling, and the eye of the world."""

from __future__ import annotations

from saccade.vision.boxes import area, clip, iou, nms, valid
from saccade.vision.eye import Eye, RegionDescription, eye_names, load_eye
from saccade.vision.eye_config import EyeConfig
from saccade.vision.pictures import Picture, as_array, find_pictures, open_picture
from saccade.vision.roi import roi_bilinear

__all__ = [
    "Eye",
    "EyeConfig",
    "Picture",
    "RegionDescription",
    "area",
    "as_array",
    "clip",
    "eye_names",
    "find_pictures",
    "iou",
    "load_eye",
    "nms",
    "open_picture",
    "roi_bilinear",
    "valid",
]
