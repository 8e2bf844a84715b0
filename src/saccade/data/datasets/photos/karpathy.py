"""Karpathy's split files (`dataset_flickr30k.json`, `dataset_coco.json`): pictures, their splits, their sentences.

They hold no features: `data=karpathy root=FOLDER` joins `FOLDER/dataset*.json` with the store `FOLDER/features`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.folder import Photo, PhotoFolder, captioned_photos
from saccade.data.records import Caption, CaptionedImages, CaptionedPhotos
from saccade.data.registry import chosen_splits, need_root
from saccade.data.store.arrow import FeatureStore
from saccade.data.store.sources import join_captions
from saccade.data.text_files import first_bytes, read_json_file


@dataclass(frozen=True)
class KarpathySentence:
    raw: str
    tokens: tuple[str, ...] = ()


@dataclass(frozen=True)
class KarpathyImage:
    """One entry of `images`."""

    filename: str
    split: str
    sentences: tuple[KarpathySentence, ...]
    imgid: int | None = None
    cocoid: int | None = None
    filepath: str | None = None

    def names(self) -> dict[str, str]:
        """What a feature file may call this picture, by kind of name."""
        names = {"filename": self.filename, "filename without ending": Path(self.filename).stem}
        numbers = {"cocoid": self.cocoid, "imgid": self.imgid}
        return names | {kind: str(number) for kind, number in numbers.items() if number is not None}


def is_karpathy(path: Path) -> bool:
    """Whether a file may be one: a .json that begins with a mapping."""
    return path.suffix == ".json" and path.is_file() and first_bytes(path).lstrip()[:1] == b"{"


def read_karpathy(path: Path | str) -> tuple[KarpathyImage, ...]:
    values = read_json_file(Path(path))
    if not isinstance(values, dict) or not isinstance(values.get("images"), list):
        raise SaccadeError(f'{path} is not a Karpathy file: a mapping with the list "images" was expected')
    return tuple(_image(entry, f"{path}, images[{n}]") for n, entry in enumerate(values["images"]))


def open_karpathy(split: str, root: Path | None) -> CaptionedImages:
    """`split` may be a sum: "train+restval" is the usual COCO training set; "dev" is what the files call "val"."""
    folder = need_root(root, "karpathy", "dataset*.json and the feature store features/")
    found = sorted(folder.glob("dataset*.json"))
    if len(found) != 1:
        names = ", ".join(p.name for p in found) or "none"
        raise SaccadeError(f"{folder} must hold one dataset*.json, there is {names}")
    return join_karpathy(found[0], FeatureStore.open(folder / "features"), split)


def join_karpathy(path: Path, store: FeatureStore, split: str) -> CaptionedImages:
    """The sentences of a split with their pictures in the store."""
    images = read_karpathy(path)
    wanted = chosen_splits(split, {image.split for image in images}, path)
    chosen = [image for image in images if image.split in wanted]
    captions = karpathy_captions(path, chosen, store.index)
    return join_captions("karpathy", split, store, captions, store.extractor)


def karpathy_photos(
    name: str,
    split: str,
    path: Path,
    folder: PhotoFolder,
    file_name: Callable[[KarpathyImage], str] = lambda image: image.filename,
) -> CaptionedPhotos:
    """A split of a Karpathy file with its photos; `file_name` where a folder calls them something else."""
    images = read_karpathy(path)
    entries = [Photo(file_name(image), image.split, tuple(s.raw.strip() for s in image.sentences)) for image in images]
    return captioned_photos(name, split, entries, folder, path)


def karpathy_captions(path: Path, images: Sequence[KarpathyImage], known: dict[str, int]) -> Iterator[Caption]:
    """The sentences under the names a feature file uses: filename, its stem, cocoid or imgid, whichever fits best."""
    hits = Counter({kind: 0 for image in images for kind in image.names()})
    hits.update(kind for image in images for kind, name in image.names().items() if name in known)
    kind = max(hits, key=lambda k: hits[k], default="filename")
    lost = [i for i in images if i.names().get(kind) not in known]
    if lost:
        raise SaccadeError(
            f"{len(lost)} of {len(images)} pictures of {path} are not among the features, for one {lost[0].filename}"
        )
    for image in images:
        for sentence in image.sentences:
            yield Caption(image.names()[kind], sentence.raw, image.split)


def _image(entry: Any, where: str) -> KarpathyImage:
    if not isinstance(entry, dict):
        raise SaccadeError(f"{where} is {entry!r}, a mapping was expected")
    expected: tuple[tuple[str, Any, str], ...] = (("filename", str, "text"), ("split", str, "text"))
    expected += (("sentences", list, "a list"), *((key, int | None, "a whole number") for key in ("imgid", "cocoid")))
    for key, kind, words in expected:
        if not isinstance(entry.get(key), kind):
            raise SaccadeError(f'{where}: "{key}" is {entry.get(key)!r}, {words} was expected')
    sentences = tuple(_sentence(s, f"{where}.sentences[{n}]") for n, s in enumerate(entry["sentences"]))
    others = (entry.get(key) for key in ("imgid", "cocoid", "filepath"))
    return KarpathyImage(entry["filename"], entry["split"], sentences, *others)


def _sentence(entry: Any, where: str) -> KarpathySentence:
    if not isinstance(entry, dict) or not isinstance(entry.get("raw"), str):
        raise SaccadeError(f'{where}: a mapping with the text "raw" was expected')
    tokens = entry.get("tokens", [])
    if not isinstance(tokens, list) or not all(isinstance(t, str) for t in tokens):
        raise SaccadeError(f'{where}: "tokens" is not a list of words')
    return KarpathySentence(entry["raw"], tuple(tokens))
