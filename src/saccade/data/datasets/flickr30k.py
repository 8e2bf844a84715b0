"""Flickr30k (Young et al. 2014): 31,783 photos with five sentences each, as its parts are published.

The photos in `flickr30k-images/`; the sentences and splits either in Karpathy's `dataset_flickr30k.json`, or in
`results_20130124.token` with the lists train.txt, val.txt and test.txt of Flickr30k Entities.
"""

from __future__ import annotations

from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.flickr8k import read_tokens
from saccade.data.datasets.karpathy import karpathy_photos
from saccade.data.datasets.photos import Photo, PhotoFolder, captioned_photos, first_folder, group_texts
from saccade.data.records import CaptionedPhotos
from saccade.data.registry import need_root
from saccade.data.text_files import find_file, read_lines

FOLDER_HOLDS = (
    "flickr30k-images/ and dataset_flickr30k.json, or results_20130124.token with train.txt, val.txt and test.txt"
)
PHOTO_FOLDERS = ("flickr30k-images", "flickr30k_images", "images", "Images")
SPLITS = ("train", "val", "test")


def open_flickr30k(split: str, root: Path | None) -> CaptionedPhotos:
    """One split (train, val or dev, test), or a sum of them."""
    folder = need_root(root, "flickr30k", FOLDER_HOLDS)
    photos = PhotoFolder(first_folder(folder, PHOTO_FOLDERS))
    karpathy = find_file(folder, "dataset_flickr30k.json", "dataset.json")
    if karpathy is not None:
        return karpathy_photos("flickr30k", split, karpathy, photos)
    path = find_file(folder, "results_20130124.token", "results.token")
    if path is None:
        raise SaccadeError(f"{folder} has no sentences: Flickr30k is {FOLDER_HOLDS}")
    texts = group_texts(read_tokens(path))
    entries = []
    for part in SPLITS:
        listed = find_file(folder, f"{part}.txt")
        if listed is not None:
            names = (line.strip() for _, line in read_lines(listed))
            found = [name if name.endswith(".jpg") else f"{name}.jpg" for name in names if name]
            entries += [Photo(name, part, texts.get(name, ())) for name in dict.fromkeys(found)]
    if not entries:
        raise SaccadeError(f"{folder / 'train.txt'} is missing: train.txt, val.txt and test.txt name the splits")
    return captioned_photos("flickr30k", split, entries, photos, path)


def flickr30k_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    """The splits of a folder by what they hold; boxes are Entities'."""
    boxed = (folder / "Annotations").is_dir() and (folder / "train.txt").is_file()
    return {"captions": SPLITS, **({"boxes": SPLITS} if boxed else {})}
