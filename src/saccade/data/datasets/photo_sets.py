"""What the photo data sets consist of, where their parts are to be had, and on what terms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from saccade.core.errors import SaccadeError, did_you_mean


@dataclass(frozen=True)
class Part:
    """A file or folder of a data set; any one of `names` will do, "*" stands for anything."""

    names: tuple[str, ...]
    holds: str
    needed: bool = True
    home: str = ""  # where to get it, if not where the data set is from


@dataclass(frozen=True)
class PhotoDataSet:
    """A data set; each layout is a way in which its parts may lie in a folder."""

    name: str
    title: str
    layouts: tuple[tuple[Part, ...], ...]
    signs: tuple[str, ...]  # a folder with one of these is taken for this data set
    home: str
    terms: str
    captioned: bool = True  # a data set of `open_split`; else only boxes


ENTITIES_HOME = "Flickr30k Entities, github.com/BryanPlummer/flickr30k_entities"
MULTI30K_HOME = "Multi30k, github.com/multi30k/dataset"
KARPATHY_HOME = "Karpathy's splits, with his page on deep visual-semantic alignments (caption_datasets.zip)"
FLICKR_TERMS = "photos under Flickr's terms of use, for non-commercial research and education only; not to be passed on"

DATA_SETS = {
    entry.name: entry
    for entry in (
        PhotoDataSet(
            "flickr8k",
            "Flickr8k",
            (
                (
                    Part(("images/",), "the photos"),
                    Part(("images.tsv.gz", "images.tsv"), "photo, split, width and height of the original"),
                    Part(("captions.tsv.gz", "captions.tsv"), "five sentences a photo"),
                    Part(("entities.jsonl.gz", "entities.jsonl"), "phrases with boxes", False, ENTITIES_HOME),
                    Part(("multi30k_task2_german_5caps.tsv*",), "language=de, five sentences", False, MULTI30K_HOME),
                    Part(("multi30k_en_de_fr_cs.tsv*",), "language=de1, fr, cs, one sentence", False, MULTI30K_HOME),
                ),
                (
                    Part(("Flicker8k_Dataset/", "Flickr8k_Dataset/", "images/", "Images/"), "the photos"),
                    Part(("Flickr8k_text/Flickr8k.token.txt", "Flickr8k.token.txt"), "five sentences a photo"),
                    Part(("Flickr8k_text/Flickr_8k.trainImages.txt", "Flickr_8k.trainImages.txt"), "split train"),
                    Part(("Flickr8k_text/Flickr_8k.devImages.txt", "Flickr_8k.devImages.txt"), "split dev"),
                    Part(("Flickr8k_text/Flickr_8k.testImages.txt", "Flickr_8k.testImages.txt"), "split test"),
                ),
            ),
            (
                "images.tsv.gz",
                "images.tsv",
                "entities.jsonl.gz",
                "entities.jsonl",
                "Flickr8k_text/Flickr8k.token.txt",
                "Flickr8k.token.txt",
            ),
            "the University of Illinois (Hodosh, Young, Hockenmaier: Framing Image Description as a Ranking Task)",
            FLICKR_TERMS,
        ),
        PhotoDataSet(
            "flickr30k",
            "Flickr30k",
            (
                (
                    Part(("flickr30k-images/", "flickr30k_images/", "images/", "Images/"), "the photos"),
                    Part(("dataset_flickr30k.json", "dataset.json"), "sentences and splits", True, KARPATHY_HOME),
                ),
                (
                    Part(("flickr30k-images/", "flickr30k_images/", "images/", "Images/"), "the photos"),
                    Part(("results_20130124.token", "results.token"), "five sentences a photo"),
                    Part(("train.txt",), "split train", True, ENTITIES_HOME),
                    Part(("val.txt",), "split val", True, ENTITIES_HOME),
                    Part(("test.txt",), "split test", True, ENTITIES_HOME),
                    Part(("Annotations/",), "boxes of phrases", False, ENTITIES_HOME),
                    Part(("Sentences/",), "sentences with marked phrases", False, ENTITIES_HOME),
                ),
            ),
            ("dataset_flickr30k.json", "results_20130124.token"),
            "the University of Illinois, by a form (Young et al.: From image descriptions to visual denotations)",
            FLICKR_TERMS,
        ),
        PhotoDataSet(
            "coco",
            "COCO",
            (
                (
                    Part(("annotations/captions_*.json", "captions_*.json"), "five sentences a photo"),
                    Part(("images/*20??/", "*20??/", "images/"), "the photos, a folder a split"),
                    Part(("annotations/instances_*.json", "instances_*.json"), "boxes of 80 kinds of things", False),
                ),
                (
                    Part(("dataset_coco.json",), "sentences in Karpathy's splits", True, KARPATHY_HOME),
                    Part(("images/*20??/", "*20??/", "images/"), "the photos"),
                    Part(("annotations/instances_*.json", "instances_*.json"), "boxes of 80 kinds of things", False),
                ),
                (  # what a detector needs
                    Part(("annotations/instances_*.json", "instances_*.json"), "boxes of things"),
                    Part(("images/*/", "*20??/", "images/"), "the photos"),
                ),
            ),
            ("annotations/captions_*.json", "annotations/instances_*.json", "captions_*20??.json", "dataset_coco.json"),
            "cocodataset.org",
            "annotations CC BY 4.0; each photo under its own Flickr licence (its number is in the annotations)",
        ),
        PhotoDataSet(
            "coco_mini",
            "COCO photos, one line each",
            (
                (
                    Part(("annotations.jsonl.gz", "annotations.jsonl"), "sentences, boxes, sizes, licences"),
                    Part(("images/", "*.jpg"), "the photos"),
                ),
            ),
            ("annotations.jsonl.gz", "annotations.jsonl"),
            "cocodataset.org; the folder photos/ of Saccade's repository is one",
            "annotations CC BY 4.0; each photo under its own Flickr licence (its number is in the annotations)",
        ),
        PhotoDataSet(
            "visual_genome",
            "Visual Genome",
            (
                (
                    Part(("image_data.json*",), "the sizes of the photos"),
                    Part(("attributes.json*", "objects.json*"), "boxes with names and attributes"),
                    Part(("VG_100K/", "images/VG_100K/", "images/"), "the photos, first part"),
                    Part(("VG_100K_2/", "images/VG_100K_2/", "images/"), "the photos, second part"),
                    Part(("region_descriptions.json*",), "sentences on parts of photos", False),
                    Part(("relationships.json*",), "which thing does what to which", False),
                ),
            ),
            ("image_data.json", "image_data.json.gz"),
            "visualgenome.org",
            "annotations CC BY 4.0; the photos are COCO's and YFCC100M's, each under its own licence",
            captioned=False,
        ),
    )
}


def find_data_set(name: str) -> PhotoDataSet:
    if name not in DATA_SETS:
        raise SaccadeError(
            f'there is no photo data set "{name}"{did_you_mean(name, DATA_SETS)} (there are: {", ".join(DATA_SETS)})'
        )
    return DATA_SETS[name]


def recognise(folder: Path) -> PhotoDataSet | None:
    """Which photo data set lies in a folder, judged by the files only it has."""
    return next((d for d in DATA_SETS.values() if any(found(folder, (sign,)) for sign in d.signs)), None)


def found(folder: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """What is there of a part; a name that ends in "/" must be a folder."""
    for name in names:
        matches = sorted(p for p in folder.glob(name.rstrip("/")) if p.is_dir() == name.endswith("/"))
        if matches:
            return tuple(matches)
    return ()


def best_layout(data_set: PhotoDataSet, folder: Path) -> tuple[Part, ...]:
    """The layout of which most of the needed parts are there; the first of equals."""

    def share(layout: tuple[Part, ...]) -> float:
        needed = [part for part in layout if part.needed]
        return sum(bool(found(folder, part.names)) for part in needed) / len(needed)

    return max(data_set.layouts, key=share)


def missing(data_set: PhotoDataSet, folder: Path) -> Iterator[str]:
    """A sentence for each needed part that is not there: what it is, and where it is to be had."""
    for part in best_layout(data_set, folder):
        if part.needed and not found(folder, part.names):
            names = " or ".join(islice(part.names, 2))
            yield f"{folder} has no {names} ({part.holds}): get it from {part.home or data_set.home}"
