"""Pictures to regions: picture files, boxes, RoI sampling, backbones, and the region extractors built of them."""

from __future__ import annotations

from saccade.vision.backbones.base import Backbone, load_backbone
from saccade.vision.boxes import area, clip, iou, valid
from saccade.vision.detectors.bottomup import BottomUpConfig, BottomUpExtractor, load_bottomup
from saccade.vision.extractors import RegionDescription, RegionExtractor, load_extractor
from saccade.vision.grid import GridConfig, GridExtractor, GridNetwork, grid_config
from saccade.vision.nms import class_confidence, select
from saccade.vision.pictures import Picture, as_array, find_pictures, open_picture
from saccade.vision.roi import roi_bilinear

__all__ = [
    "Backbone",
    "BottomUpConfig",
    "BottomUpExtractor",
    "RegionExtractor",
    "GridConfig",
    "GridExtractor",
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
    "load_extractor",
    "open_picture",
    "roi_bilinear",
    "select",
    "valid",
]
