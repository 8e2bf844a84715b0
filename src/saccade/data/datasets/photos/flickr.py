"""Flickr8k (Hodosh, Young, Hockenmaier 2013) and Flickr30k (Young et al. 2014): photos with five sentences each.

Flickr8k as tables: `images/`, `images.tsv.gz` (photo, split, original size), `captions.tsv.gz`, and where Multi30k's
sentences lie beside them, other languages. As published: `Flicker8k_Dataset/` and `Flickr8k.token.txt` with lists of
photos. Flickr30k: `flickr30k-images/`, and the sentences and splits either in Karpathy's `dataset_flickr30k.json`, or
in `results_20130124.token` with the lists train.txt, val.txt and test.txt of Flickr30k Entities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from saccade.core.errors import SaccadeError, not_among
from saccade.data.datasets.photos.entities import LISTS as ENTITY_LISTS
from saccade.data.datasets.photos.folder import (
    NoCaptions,
    Photo,
    PhotoFolder,
    captioned_photos,
    first_folder,
    group_texts,
    read_split_lists,
)
from saccade.data.datasets.photos.karpathy import karpathy_photos
from saccade.data.records import CaptionedPhotos
from saccade.data.registry import chosen_splits, need_root
from saccade.data.text_files import find_file, need_file, read_lines, read_table

FOLDER_HOLDS = (
    "images/, images.tsv.gz and captions.tsv.gz, or as published Flicker8k_Dataset/ and Flickr8k_text/ "
    "(see docs/data/photos.md)"
)
EXPECTED = f"a Flickr8k folder holds {FOLDER_HOLDS}"
FLICKR30K_HOLDS = (
    "flickr30k-images/ and dataset_flickr30k.json, or results_20130124.token with train.txt, val.txt and test.txt"
)
PHOTO_FOLDERS = ("Flicker8k_Dataset", "Flickr8k_Dataset", "images", "Images")
FLICKR30K_PHOTO_FOLDERS = ("flickr30k-images", "flickr30k_images", "images", "Images")
LISTS = {"train": "Flickr_8k.trainImages.txt", "dev": "Flickr_8k.devImages.txt", "test": "Flickr_8k.testImages.txt"}
LOST = frozenset({"2258277193_586949ec62.jpg"})  # in the published list of training photos, but never published
TRANSLATIONS = "multi30k_en_de_fr_cs.tsv.gz"
GERMAN = "multi30k_task2_german_5caps.tsv.gz"
LANGUAGES = ("en", "de", "de1", "fr", "cs")


def open_flickr8k(split: str, root: Path | None, language: str = "en") -> CaptionedPhotos:
    """One split (train, dev, test, extra) or a sum of them ("train+extra").

    `language`: en; de (five German sentences written independently), de1, fr, cs (one translated sentence). Photos
    that nobody described in that language are left out.
    """
    folder = need_root(root, "flickr8k", FOLDER_HOLDS)
    if language not in LANGUAGES:
        raise SaccadeError(f"data=flickr8k has no language {not_among(language, LANGUAGES)}")
    if find_file(folder, "images.tsv.gz") is not None:
        return _open_tables(folder, split, language)
    if language != "en":
        raise SaccadeError(
            f"{folder} is Flickr8k as published, which is English: language={language} needs {FOLDER_HOLDS}"
        )
    return _open_published(folder, split)


def read_photo_table(folder: Path) -> tuple[Photo, ...]:
    """`images.tsv.gz`: every photo, its split, the size of its original."""
    path = need_file(folder, "images.tsv.gz", EXPECTED)
    photos: dict[str, Photo] = {}
    for line, (name, split, width, height) in read_table(path, ("image", "split", "orig_width", "orig_height")):
        if not all(side.isascii() and side.isdecimal() and 0 < int(side[:9]) < 10**6 for side in (width, height)):
            raise SaccadeError(f"{path}, line {line}: the size is {width!r} × {height!r}, whole numbers were expected")
        if name in photos:
            raise SaccadeError(f"{path}, line {line}: {name} occurs a second time")
        photos[name] = Photo(name, split, (), (int(width), int(height)))
    return tuple(photos.values())


def flickr8k_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    """The splits of a folder, those of its table or as published, by what they hold; boxes are Entities'."""
    splits = tuple(LISTS)
    if find_file(folder, "images.tsv.gz") is not None:
        splits = tuple(dict.fromkeys(photo.split for photo in read_photo_table(folder)))
    boxed = find_file(folder, "entities.jsonl.gz") is not None
    return {"captions": splits, **({"boxes": splits} if boxed else {})}


def _open_tables(folder: Path, split: str, language: str) -> CaptionedPhotos:
    table = read_photo_table(folder)
    path, found = _sentences(folder, language)
    names = {photo.name for photo in table}
    rows = list(found)
    for line, name, _ in rows:
        if name not in names:
            raise SaccadeError(f"{path}, line {line}: the photo {name[:80]!r} is not in images.tsv.gz")
    texts = group_texts((name, text) for _, name, text in rows)
    wanted = chosen_splits(split, {photo.split for photo in table}, folder / "images.tsv.gz")
    spoken = sorted({photo.split for photo in table if photo.name in texts})
    for part in sorted(wanted.difference(spoken)):
        raise NoCaptions(
            f'{path} has no captions of the split "{part}": give a root whose files have them'
            + (f", or another split (there are captions of: {', '.join(spoken)})" if spoken else "")
        )
    photos = [
        replace(photo, texts=texts.get(photo.name, ())) for photo in table if language == "en" or photo.name in texts
    ]
    return captioned_photos("flickr8k", split, photos, PhotoFolder(folder / "images"), path)


def _sentences(folder: Path, language: str) -> tuple[Path, Iterator[tuple[int, str, str]]]:
    """The file of a language, and (line, photo, sentence) of each of its rows."""
    if language == "en":
        path = need_file(folder, "captions.tsv.gz", EXPECTED)
        return path, ((n, row[0], row[2]) for n, row in read_table(path, ("image", "n", "caption")))
    if language == "de" and find_file(folder, GERMAN) is not None:
        path = need_file(folder, GERMAN, EXPECTED)
        return path, ((n, row[0], row[2]) for n, row in read_table(path, ("image", "n", "de")))
    path = need_file(folder, TRANSLATIONS, EXPECTED)
    columns = ("multi30k_split", "image", "en", "de", "fr", "cs")
    column = columns.index(language[:2])
    return path, ((n, row[1], row[column]) for n, row in read_table(path, columns))


def _open_published(folder: Path, split: str) -> CaptionedPhotos:
    texts_folder = first_folder(folder, ("Flickr8k_text", "."))
    path = find_file(texts_folder, "Flickr8k.token.txt")
    if path is None:
        raise SaccadeError(f"{folder} has neither images.tsv.gz nor Flickr8k.token.txt: Flickr8k is {FOLDER_HOLDS}")
    texts = group_texts(read_tokens(path))
    split_of = read_split_lists(texts_folder, LISTS)
    if not split_of:
        raise SaccadeError(f"{texts_folder / LISTS['train']} is missing: the lists of photos say which split is which")
    photos = PhotoFolder(first_folder(folder, PHOTO_FOLDERS))
    lost = LOST - photos.names.keys()
    listed = [name for name in split_of if name not in lost]
    others = [name for name in texts if name not in split_of and name in photos.names]
    entries = [Photo(name, split_of.get(name, "extra"), texts.get(name, ())) for name in [*listed, *others]]
    return captioned_photos("flickr8k", split, entries, photos, path)


def read_tokens(path: Path) -> Iterator[tuple[str, str]]:
    """(photo, sentence) of each line `photo.jpg#0<TAB>sentence`: Flickr8k.token.txt, results_20130124.token."""
    for number, line in read_lines(path):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        name, hash_sign, position = label.partition("#")
        if not tab or not hash_sign or not name or not position.strip().isdecimal():
            raise SaccadeError(f"{path}, line {number}: photo.jpg#0<TAB>sentence was expected")
        yield name.removesuffix(".1"), text.strip()  # one photo of the published list is called ….jpg.1


def open_flickr30k(split: str, root: Path | None) -> CaptionedPhotos:
    """One split (train, val or dev, test), or a sum of them."""
    folder = need_root(root, "flickr30k", FLICKR30K_HOLDS)
    photos = PhotoFolder(first_folder(folder, FLICKR30K_PHOTO_FOLDERS))
    karpathy = find_file(folder, "dataset_flickr30k.json", "dataset.json")
    if karpathy is not None:
        return karpathy_photos("flickr30k", split, karpathy, photos)
    path = find_file(folder, "results_20130124.token", "results.token")
    if path is None:
        raise SaccadeError(f"{folder} has no sentences: Flickr30k is {FLICKR30K_HOLDS}")
    texts = group_texts(read_tokens(path))
    split_of = {
        f"{name.removesuffix('.jpg')}.jpg": part for name, part in read_split_lists(folder, ENTITY_LISTS).items()
    }
    entries = [Photo(name, part, texts.get(name, ())) for name, part in split_of.items()]
    if not entries:
        raise SaccadeError(f"{folder / 'train.txt'} is missing: train.txt, val.txt and test.txt name the splits")
    return captioned_photos("flickr30k", split, entries, photos, path)


def flickr30k_splits(folder: Path) -> dict[str, tuple[str, ...]]:
    """The splits of a folder by what they hold; boxes are Entities'."""
    splits, boxed = tuple(ENTITY_LISTS), (folder / "Annotations").is_dir() and (folder / "train.txt").is_file()
    return {"captions": splits, **({"boxes": splits} if boxed else {})}
