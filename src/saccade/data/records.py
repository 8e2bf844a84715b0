"""What readers return, whatever file it came from: pictures with sentences, with boxes, or with region features.

Two protocols say how pictures are read on demand: an `ImageSource` gives batches of regions or of pixels, and a
`RegionSource` gives regions, as batches and one picture at a time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Float32, Int
from torch import Tensor

from saccade.batch import FrameBatch, PictureBatch, Program, RegionBatch
from saccade.core.errors import SaccadeError

Triplet: TypeAlias = tuple[int, str, int]  # subject, predicate, object, the things by their places
Spoken: TypeAlias = "str | tuple[str, ...]"  # an expression, or the turns of a dialog: "is it red? no"
Span: TypeAlias = tuple[float, float]  # when something begins and ends in a video, in seconds
PictureFile: TypeAlias = "Path | Callable[[], np.ndarray]"  # a picture file, or what gives its pixels


@dataclass(frozen=True)
class PictureRegions:
    """The regions of one picture, as a feature file keeps them; or the frames of a video, as pieces of a film strip."""

    id: str
    features: Float[np.ndarray, "region dim"]
    boxes: Float32[np.ndarray, "region 4"]  # x1, y1, x2, y2 in 0..1
    width: int = 0  # original pixels, 0 if unknown
    height: int = 0
    scores: Float32[np.ndarray, " region"] | None = None
    seconds: float | None = None  # how long a video is; None: this is a picture

    @property
    def times(self) -> Float[np.ndarray, "region 2"]:
        """When each frame of a video begins and ends, in seconds."""
        return np.asarray(self.boxes[:, [0, 2]], np.float64) * (self.seconds or 1.0)


P = TypeVar("P", bound="CaptionedImages | CaptionedPhotos | CaptionedDrawings")
Q = TypeVar("Q", bound="CaptionedImages | CaptionedPhotos | CaptionedDrawings")
A = TypeVar("A", bound="AnnotatedTexts[Any]")


class ImageSource(Protocol):
    """Pictures read on demand (never loaded whole), as regions or as pixels."""

    @property
    def ids(self) -> Sequence[str]: ...

    def __len__(self) -> int: ...

    def batch(self, indices: Sequence[int]) -> RegionBatch | PictureBatch: ...


class RegionSource(Protocol):
    """Region features of many pictures, read on demand; a class that inherits from it needs `ids`, `dim` and `get`."""

    @property
    def ids(self) -> Sequence[str]: ...

    @property
    def dim(self) -> int: ...

    def get(self, index: int) -> PictureRegions: ...

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        found = [self.get(i) for i in indices]
        ids = [picture.id for picture in found]
        regions = RegionBatch.of([p.features for p in found], [p.boxes for p in found], ids, dim=self.dim)
        seconds = [picture.seconds for picture in found if picture.seconds is not None]
        return FrameBatch.of_strips(regions, seconds) if found and len(seconds) == len(found) else regions


class RegionSubset(RegionSource):
    """The pictures of `source` at `positions`, in that order; nothing is copied."""

    def __init__(self, source: RegionSource, positions: Sequence[int]) -> None:
        self.source = source
        self.positions = tuple(int(p) for p in positions)

    @cached_property
    def ids(self) -> Sequence[str]:
        return tuple(self.source.ids[p] for p in self.positions)

    @property
    def dim(self) -> int:
        return self.source.dim

    def get(self, index: int) -> PictureRegions:
        return self.source.get(self.positions[index])

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        return self.source.batch([self.positions[i] for i in indices])


@dataclass(frozen=True)
class Caption:
    """A sentence and the id of the picture it describes."""

    image: str
    text: str
    split: str | None = None


@dataclass(frozen=True)
class CaptionedImages:
    """One split for matching: region features, sentences, and which picture each sentence describes."""

    name: str
    split: str
    images: ImageSource
    texts: tuple[str, ...]
    image_of_text: np.ndarray  # int64 [text]: position in `images`
    extractor: str | None = None  # what made the features, so that a model can be used on new pictures

    def __post_init__(self) -> None:
        _check_owners(self.name, self.split, self.texts, self.image_of_text)
        if len(self.texts) and int(self.image_of_text.max()) >= len(self.images):
            raise SaccadeError(f"{self.name}/{self.split}: a text belongs to a picture that is not there")

    @property
    def regions(self) -> RegionSource:
        """The pictures as regions. Raises: SaccadeError if this is a split of pixels."""
        if not hasattr(self.images, "dim"):
            raise SaccadeError(f"{self.name}/{self.split} holds pixels, regions were expected")
        return cast(RegionSource, self.images)

    def select(self, positions: Sequence[int]) -> CaptionedImages:
        """The pictures at `positions`, with their sentences; nothing is copied."""
        place = {int(position): n for n, position in enumerate(positions)}
        kept = [text for text, image in enumerate(self.image_of_text.tolist()) if image in place]
        return replace(
            self,
            images=RegionSubset(cast(RegionSource, self.images), positions),  # of pixels, no `dim` is asked for
            texts=tuple(self.texts[i] for i in kept),
            image_of_text=np.array([place[int(self.image_of_text[i])] for i in kept], dtype=np.int64),
        )

    @cached_property
    def texts_of_image(self) -> tuple[tuple[int, ...], ...]:
        owned: list[list[int]] = [[] for _ in range(len(self.images))]
        for text, image in enumerate(self.image_of_text.tolist()):
            owned[image].append(text)
        return tuple(map(tuple, owned))

    def pairs(
        self, indices: Sequence[int], items: Literal["pairs", "pictures"]
    ) -> tuple[list[int], Int[np.ndarray, " image"], Int[Tensor, " text"]]:
        """The sentences and pictures of a training batch, and which of its pictures each sentence describes.

        `indices` are sentences, each with its picture; or pictures, each once with all its sentences.
        """
        if items == "pairs":
            return list(indices), self.image_of_text[list(indices)], torch.arange(len(indices))
        owned = [self.texts_of_image[i] for i in indices]
        owner = torch.arange(len(owned)).repeat_interleave(torch.tensor([len(own) for own in owned]))
        return [text for own in owned for text in own], np.asarray(indices), owner


@dataclass(frozen=True)
class CaptionedPhotos:
    """One split before extraction: picture files, sentences, and which picture each describes.

    `saccade.features.open_split` gives the regions that an extractor finds in them, or their pixels.
    """

    name: str
    split: str
    ids: tuple[str, ...]
    paths: tuple[Path, ...]
    texts: tuple[str, ...]
    image_of_text: np.ndarray  # int64 [text]: position in `paths`
    sizes: tuple[tuple[int, int], ...] = ()  # (width, height) of the originals, where the files were made smaller

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.paths) or (self.sizes and len(self.sizes) != len(self.paths)):
            raise SaccadeError(f"{self.name}/{self.split}: {len(self.paths)} pictures but {len(self.ids)} ids")
        _check_owners(self.name, self.split, self.texts, self.image_of_text)


@dataclass(frozen=True)
class CaptionedVideos(CaptionedPhotos):
    """The same of video files: `saccade.features.open_split` gives frames of theirs as an extractor sees them."""

    seconds: tuple[float | None, ...] = ()  # how long each is, where annotations say it


@dataclass(frozen=True)
class CaptionedDrawings:
    """One split whose pictures are drawn on demand, as the world's are; only extractors made for them are applied.

    With `seconds` they are videos of that length: what draws one gives its frames, which are equally far apart.
    """

    name: str
    split: str
    ids: tuple[str, ...]
    pictures: tuple[Callable[[], np.ndarray], ...]
    texts: tuple[str, ...]
    image_of_text: np.ndarray  # int64 [text]: position in `pictures`
    digest: str  # of all that the pictures depend on
    boxes: tuple[Callable[[], np.ndarray], ...] = ()  # the true ones of each picture, where they are known
    seconds: tuple[float, ...] = ()


class AnnotatedTexts(ABC, Generic[P]):
    """Pictures whose `texts` all have an entry in something else."""

    pictures: P

    @property
    def texts(self) -> tuple[str, ...]:
        return self.pictures.texts

    @property
    def images(self) -> ImageSource:
        """The pictures of a split that an extractor has been applied to."""
        return cast(CaptionedImages, self.pictures).images

    def select(self: A, positions: Sequence[int]) -> A:
        """The pictures at `positions`, with their texts; nothing is copied."""
        pictures = cast(CaptionedImages, self.pictures)
        chosen = frozenset(int(position) for position in positions)
        kept = [n for n, image in enumerate(pictures.image_of_text.tolist()) if image in chosen]
        return cast(A, self.of(pictures.select(positions), kept))

    @abstractmethod
    def of(self, pictures: Q, kept: Sequence[int]) -> AnnotatedTexts[Q]:
        """The entries of the texts at `kept`, which are those of `pictures`."""


@dataclass(frozen=True)
class Questions(AnnotatedTexts[P]):
    """One split for answering. The `texts` of `pictures` are the questions, and each has an entry in what follows."""

    pictures: P
    answers: tuple[tuple[str, ...], ...]  # what every annotator said; one answer where one truth is known
    kinds: tuple[str, ...]  # the data set's own types of question: "count", "yes/no"; "" where it has none
    ids: tuple[str, ...]  # by which results files name them
    programs: tuple[Program, ...] = ()  # what each asks, where that is known

    def __post_init__(self) -> None:
        counts = {len(self.pictures.texts), len(self.answers), len(self.kinds), len(self.ids)}
        if len(counts) > 1 or (self.programs and len(self.programs) not in counts):
            name = f"{self.pictures.name}/{self.pictures.split}"
            raise SaccadeError(f"{name}: every question needs its answers, its kind and its id")

    def of(self, pictures: Q, kept: Sequence[int]) -> Questions[Q]:
        """The questions at `kept`, about `pictures`, whose texts they are."""
        return Questions(
            pictures,
            tuple(self.answers[n] for n in kept),
            tuple(self.kinds[n] for n in kept),
            tuple(self.ids[n] for n in kept),
            tuple(self.programs[n] for n in kept) if self.programs else (),
        )


@dataclass(frozen=True)
class GroundedPhrase:
    """Words `first` to `end` (exclusive) of a sentence, and where what they name is in the picture."""

    first: int
    end: int
    boxes: Float32[np.ndarray, "box 4"]  # x1, y1, x2, y2 in 0..1; at least one
    kind: str = ""  # what they name: people, animals …


@dataclass(frozen=True)
class Groundings(AnnotatedTexts[P]):
    """One split for grounding. The `texts` of `pictures` are sentences of words divided by blanks, and each has its
    phrases."""

    pictures: P
    phrases: tuple[tuple[GroundedPhrase, ...], ...]

    def __post_init__(self) -> None:
        name = f"{self.pictures.name}/{self.pictures.split}"
        if len(self.pictures.texts) != len(self.phrases):
            raise SaccadeError(f"{name}: every sentence needs its phrases")
        for text, phrases in zip(self.pictures.texts, self.phrases, strict=True):
            words = len(text.split())
            if not all(0 <= p.first < p.end <= words and len(p.boxes) for p in phrases):
                raise SaccadeError(f'{name}: a phrase of "{text[:80]}" has no words or no box')

    def of(self, pictures: Q, kept: Sequence[int]) -> Groundings[Q]:
        """The phrases of the sentences at `kept`, which are the texts of `pictures`."""
        return Groundings(pictures, tuple(self.phrases[n] for n in kept))


@dataclass(frozen=True)
class Candidates:
    """The boxes of a picture among which texts choose."""

    boxes: Float32[np.ndarray, "box 4"]  # x1, y1, x2, y2 in 0..1
    categories: tuple[str, ...]  # of each; "" where none is known

    def __post_init__(self) -> None:
        if len(self.boxes) != len(self.categories):
            raise SaccadeError(f"{len(self.boxes)} boxes need a category each, there are {len(self.categories)}")


@dataclass(frozen=True)
class Referrals(AnnotatedTexts[P]):
    """One split for referring. Each of the `texts` of `pictures` means one of the boxes of its picture."""

    pictures: P
    spoken: tuple[Spoken, ...]  # the texts, those that are dialogs by their turns
    candidates: tuple[Candidates, ...]  # of each picture
    choices: tuple[tuple[int, ...], ...]  # of each text: which of its picture's boxes it chooses among
    targets: tuple[int, ...]  # … and the place of the one that it means, among those
    kinds: tuple[str, ...]  # the data set's own kinds of text; "" where it has none
    features: RegionSource | None = None  # of every picture's boxes, once an extractor has seen them

    def __post_init__(self) -> None:
        name = f"{self.pictures.name}/{self.pictures.split}"
        counts = {len(self.pictures.texts), *map(len, (self.spoken, self.choices, self.targets, self.kinds))}
        if len(counts) > 1:
            raise SaccadeError(f"{name}: every text needs its choices, its target and its kind")
        for text, own, target in zip(self.pictures.texts, self.choices, self.targets, strict=True):
            if not 0 <= target < len(own):
                raise SaccadeError(f'{name}: "{text[:80]}" means none of the boxes that it chooses among')
        owners = self.pictures.image_of_text.tolist()
        for owner, own in zip(owners, self.choices, strict=True):
            if owner >= len(self.candidates) or max(own) >= len(self.candidates[owner].boxes):
                raise SaccadeError(f"{name}: a text chooses among boxes that its picture does not have")

    @property
    def dialogs(self) -> tuple[bool, ...]:
        """Which texts are dialogs."""
        return tuple(not isinstance(text, str) for text in self.spoken)

    def of(self, pictures: Q, kept: Sequence[int]) -> Referrals[Q]:
        """The texts at `kept`, about `pictures`, whose order is as it was."""
        return self._with(pictures, kept, self.candidates, self.features)

    def of_texts(self, kept: Sequence[int]) -> Referrals[P]:
        """Some of the texts alone, about the same pictures."""
        texts, owners = tuple(self.pictures.texts[n] for n in kept), self.pictures.image_of_text[list(kept)]
        return self.of(replace(self.pictures, texts=texts, image_of_text=owners), kept)

    def select(self, positions: Sequence[int]) -> Referrals[P]:
        pictures = cast(CaptionedImages, self.pictures)
        chosen = frozenset(int(position) for position in positions)
        kept = [n for n, image in enumerate(pictures.image_of_text.tolist()) if image in chosen]
        features = None if self.features is None else RegionSubset(self.features, positions)
        candidates = tuple(self.candidates[int(p)] for p in positions)
        return cast("Referrals[P]", self._with(pictures.select(positions), kept, candidates, features))

    def _with(
        self, pictures: Q, kept: Sequence[int], candidates: tuple[Candidates, ...], features: RegionSource | None
    ) -> Referrals[Q]:
        return Referrals(
            pictures,
            tuple(self.spoken[n] for n in kept),
            candidates,
            tuple(self.choices[n] for n in kept),
            tuple(self.targets[n] for n in kept),
            tuple(self.kinds[n] for n in kept),
            features,
        )


def joined(text: Spoken) -> str:
    """A text as one line."""
    return text if isinstance(text, str) else " ".join(text)


@dataclass(frozen=True)
class Moments(AnnotatedTexts[P]):
    """One split for finding moments. The `texts` of `pictures`, which are videos, happen in one span or several."""

    pictures: P
    spans: tuple[tuple[Span, ...], ...]  # of each text
    kinds: tuple[str, ...] = ()  # the data set's own kinds of text, where it has any

    def __post_init__(self) -> None:
        name = f"{self.pictures.name}/{self.pictures.split}"
        if len(self.pictures.texts) != len(self.spans) or (self.kinds and len(self.kinds) != len(self.spans)):
            raise SaccadeError(f"{name}: every text needs its spans, and where there are kinds its kind")
        for text, spans in zip(self.pictures.texts, self.spans, strict=True):
            if not spans or not all(0 <= start < end for start, end in spans):
                raise SaccadeError(f'{name}: "{text[:80]}" happens at no time: {spans}')

    def of(self, pictures: Q, kept: Sequence[int]) -> Moments[Q]:
        """The spans of the texts at `kept`, which are those of `pictures`."""
        kinds = tuple(self.kinds[n] for n in kept) if self.kinds else ()
        return Moments(pictures, tuple(self.spans[n] for n in kept), kinds)


@dataclass(frozen=True)
class BoxedPicture:
    """A picture file with named boxes: what a region detector learns from, whatever data set it came from."""

    id: str
    path: Path
    width: int  # pixels of the original
    height: int
    boxes: Float32[np.ndarray, "thing 4"]  # x1, y1, x2, y2 in 0..1
    names: tuple[str, ...]  # what each box holds: "dog"
    attributes: tuple[tuple[str, ...], ...]  # what it is like: ("brown", "wet"); may be empty
    said: tuple[tuple[str, ...], ...] = ()  # all names that people gave each box, repeated as often; may be empty
    relations: tuple[Triplet, ...] = ()  # which of them stand how to which

    @classmethod
    def of(
        cls,
        id: str,
        path: Path,
        size: tuple[int, int],
        things: Iterable[tuple[Sequence[float] | np.ndarray, str, tuple[str, ...]]],
        said: Iterable[tuple[str, ...]] = (),
        relations: Iterable[Triplet] = (),
    ) -> BoxedPicture:
        """From the (width, height) of the original, and (box, name, attributes) of each thing."""
        boxes, names, attributes = tuple(zip(*things, strict=True)) or ((), (), ())
        corners = np.array(boxes, dtype=np.float32).reshape(-1, 4)
        return cls(id, path, *size, corners, names, attributes, tuple(said), tuple(relations))


@dataclass(frozen=True)
class RelatedThings:
    """The things of one picture and how they stand to each other."""

    boxes: Float32[np.ndarray, "thing 4"]  # x1, y1, x2, y2 in 0..1
    names: tuple[str, ...]
    relations: tuple[Triplet, ...]

    def named(self) -> Iterator[tuple[str, str, str]]:
        """The relations with the names of their things."""
        return ((self.names[s], predicate, self.names[o]) for s, predicate, o in self.relations)


@dataclass(frozen=True)
class Relations(Generic[P]):
    """One split for relation detection: pictures, which have no texts here, and the things of each."""

    pictures: P
    things: tuple[RelatedThings, ...]

    @property
    def images(self) -> ImageSource:
        """The pictures of a split that an extractor has been applied to."""
        return cast(CaptionedImages, self.pictures).images

    def select(self, positions: Sequence[int]) -> Relations[CaptionedImages]:
        """The pictures at `positions`; nothing is copied."""
        chosen = cast(CaptionedImages, self.pictures).select(positions)
        return Relations(chosen, tuple(self.things[p] for p in positions))


@dataclass(frozen=True)
class PhrasedBoxes:
    """Boxes of one picture, each with one phrase or more."""

    boxes: Float32[np.ndarray, "thing 4"]  # x1, y1, x2, y2 in 0..1
    phrases: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if len(self.boxes) != len(self.phrases) or not all(self.phrases):
            raise SaccadeError(f"{len(self.boxes)} boxes need a phrase each, there are phrases of {len(self.phrases)}")


def _check_owners(name: str, split: str, texts: Sequence[str], owners: np.ndarray) -> None:
    if len(texts) != len(owners):
        raise SaccadeError(f"{name}/{split}: {len(texts)} texts, {len(owners)} owners")


def other_names(ids: Sequence[str]) -> dict[str, str]:
    """What another file may call a picture → its id: the id itself, or the file name where only one picture has it."""
    owners: dict[str, list[str]] = {}
    for id in ids:
        owners.setdefault(id.rpartition("/")[2], []).append(id)
    short = {name: own[0] for name, own in owners.items() if len(own) == 1}
    return {**short, **{id: id for id in ids}}
