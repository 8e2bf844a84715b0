"""Pictures with sentences from disk: records, the Arrow feature store, and one reader per data set or format."""

from saccade.data.captions import Caption, read_captions, write_captions
from saccade.data.picture import PictureRegions
from saccade.data.records import CaptionedImages, RegionSource
from saccade.data.sources import DataConfig, open_split, source
from saccade.data.store import FeatureStore, StoreWriter

__all__ = [
    "Caption",
    "CaptionedImages",
    "DataConfig",
    "FeatureStore",
    "PictureRegions",
    "RegionSource",
    "StoreWriter",
    "open_split",
    "read_captions",
    "source",
    "write_captions",
]
