"""Pictures with sentences from disk: records, the Arrow feature store, and one reader per data set or format."""

from saccade.data.broken import Broken
from saccade.data.captions import Caption, read_captions, write_captions
from saccade.data.coco import boxed_coco
from saccade.data.code_store import CodeStore
from saccade.data.code_writer import CodeWriter, write_bytes
from saccade.data.entities import boxed_entities, read_entities
from saccade.data.extraction import Extraction, extract
from saccade.data.picture import PictureRegions
from saccade.data.records import BoxedPicture, CaptionedImages, CaptionedPhotos, RegionSource
from saccade.data.sources import DataConfig, open_split, source
from saccade.data.store import FeatureStore, StoreWriter
from saccade.data.visual_genome import boxed_visual_genome

__all__ = [
    "BoxedPicture",
    "Broken",
    "Caption",
    "CaptionedImages",
    "CaptionedPhotos",
    "CodeStore",
    "CodeWriter",
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
    "write_bytes",
    "write_captions",
]
