"""Data on disk: records, the registry of data sets, the Arrow feature store, a reader for each data set and format."""

from saccade.data.records import (
    BoxedPicture,
    Caption,
    CaptionedImages,
    CaptionedPhotos,
    ImageSource,
    PictureRegions,
    RegionSource,
)
from saccade.data.registry import DATA_SETS, DataConfig, open_records, reader
from saccade.data.store.arrow import FeatureStore, StoreWriter
from saccade.data.store.manifest import Broken, read_captions, write_captions

__all__ = [
    "DATA_SETS",
    "BoxedPicture",
    "Broken",
    "Caption",
    "CaptionedImages",
    "CaptionedPhotos",
    "DataConfig",
    "FeatureStore",
    "ImageSource",
    "PictureRegions",
    "RegionSource",
    "StoreWriter",
    "open_records",
    "read_captions",
    "reader",
    "write_captions",
]
