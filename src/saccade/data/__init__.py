"""Pictures with sentences from disk: records, the Arrow feature store, and one reader per data set or format."""

from saccade.data.datasets.coco import boxed_coco
from saccade.data.datasets.entities import boxed_entities, read_entities
from saccade.data.datasets.visual_genome import boxed_visual_genome
from saccade.data.formats.picture import PictureRegions
from saccade.data.records import BoxedPicture, CaptionedImages, CaptionedPhotos, RegionSource
from saccade.data.registry import DataConfig, open_split, source
from saccade.data.store.arrow import FeatureStore, StoreWriter
from saccade.data.store.broken import Broken
from saccade.data.text.captions import Caption, read_captions, write_captions
from saccade.features.extraction import Extraction, extract

__all__ = [
    "BoxedPicture",
    "Broken",
    "Caption",
    "CaptionedImages",
    "CaptionedPhotos",
    "DataConfig",
    "Extraction",
    "FeatureStore",
    "PictureRegions",
    "RegionSource",
    "StoreWriter",
    "boxed_coco",
    "boxed_entities",
    "boxed_visual_genome",
    "extract",
    "open_split",
    "read_captions",
    "read_entities",
    "source",
    "write_captions",
]
