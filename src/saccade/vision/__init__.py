"""Pictures to regions: picture files, box arithmetic, bilinear RoI sampling, backbones, and the eyes built of them."""

from __future__ import annotations

from saccade.vision.backbones import Backbone, load_backbone
from saccade.vision.bottomup import BottomUpEye, load_bottomup
from saccade.vision.bottomup_config import BottomUpConfig
from saccade.vision.boxes import area, clip, iou, nms, valid
from saccade.vision.eye import Eye, RegionDescription, load_eye
from saccade.vision.grid import GridConfig, GridEye, GridNetwork, grid_config
from saccade.vision.pictures import Picture, as_array, find_pictures, open_picture
from saccade.vision.roi import roi_bilinear
from saccade.vision.selection import class_confidence, select

__all__ = [
    "Backbone",
    "BottomUpConfig",
    "BottomUpEye",
    "Eye",
    "GridConfig",
    "GridEye",
    "GridNetwork",
    "Picture",
    "RegionDescription",
    "area",
    "as_array",
    "class_confidence",
    "clip",
    "find_pictures",
    "grid_config",
    "iou",
    "load_backbone",
    "load_bottomup",
    "load_eye",
    "nms",
    "open_picture",
    "roi_bilinear",
    "select",
    "valid",
]
