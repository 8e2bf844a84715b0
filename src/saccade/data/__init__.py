"""Data on disk: records, the registry of data sets, the Arrow feature store, a reader for each data set and format."""

from saccade.data.records import BoxedPicture, Caption, CaptionedImages, PictureRegions
from saccade.data.registry import DataConfig, open_records, reader
from saccade.data.store.arrow import FeatureStore, StoreWriter
from saccade.data.store.manifest import write_captions

__all__ = [
    "BoxedPicture",
    "Caption",
    "CaptionedImages",
    "DataConfig",
    "FeatureStore",
    "PictureRegions",
    "StoreWriter",
    "open_records",
    "reader",
    "write_captions",
]
