"""A trained relation detector as users call it: pictures and three words in, the best pair of boxes of each out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import NEAR_ENGLISH, SaccadeError, did_you_mean
from saccade.data.store.manifest import Broken
from saccade.explain.panels.relations import PairPicture, RelationSheet
from saccade.language.tokenise import tokenise
from saccade.models import Relater
from saccade.models.base.relater import RegionPairs, SourceTriplet
from saccade.tasks.predict import Images, RegionPredictor
from saccade.tasks.relations.evaluate import pair_candidates
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.boxes import in_pixels
from saccade.vision.pictures import Picture, open_picture, open_sized

SMALL_WORDS = frozenset(("a", "an", "the", "is", "are", "some"))
BATCH = 32  # pictures
FEW = 12  # relations that an error names
DRAWN_SIDE = 1100  # pixels, of a photo kept for its drawing
Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class FoundPair:
    """The pair of boxes of a picture that fits three words best."""

    probability: float
    subject_box: Box  # x1, y1, x2, y2 in 0..1
    object_box: Box


@dataclass(frozen=True)
class FoundPhoto:
    """A photo file and its best pair."""

    path: Path
    pair: FoundPair

    def facts(self) -> dict[str, Any]:
        """As JSON, boxes in pixels of the photo."""
        size = open_sized(self.path)[1]
        return {
            "photo": str(self.path),
            "score": self.pair.probability,
            "subject_box": in_pixels(self.pair.subject_box, size),
            "object_box": in_pixels(self.pair.object_box, size),
        }


def _related(finder: RelationFinder, image: Any, text: str, top: int) -> Outcome:
    if text.strip():
        pairs = [(text, pair) for pair in finder.find([image], text) if pair is not None]
    else:
        pairs = [(" ".join(words), pair) for words, pair in finder.detect(image, top)]
    lines = (
        Line(said, probability=pair.probability, boxes=(pair.subject_box, pair.object_box)) for said, pair in pairs
    )
    return Outcome(tuple(lines))


class RelationFinder(RegionPredictor[Relater]):
    """A trained relation detector: `find` looks for "dog riding boat" in pictures, `sources` says by what analogy."""

    uses = (
        Use(
            "relations",
            "Find what things have to do with each other",
            "picture",
            _related,
            "relation",
            "person riding horse",
            text_optional=True,
        ),
    )

    def triplet(self, text: str) -> tuple[int, int, int]:
        """The subject, predicate and object that a text names. Raises: SaccadeError if the model does not know one."""
        words = [word for word in tokenise(text.lower()) if word not in SMALL_WORDS and any(map(str.isalnum, word))]
        predicates = self.model.config.predicates[1:]
        found: list[tuple[str, str, str]] = []
        for predicate in sorted(predicates, key=lambda name: -len(name.split())):
            own = predicate.split()
            for start in range(1, len(words) - len(own)):
                if words[start : start + len(own)] == own:
                    found.append((" ".join(words[:start]), predicate, " ".join(words[start + len(own) :])))
        known = self.model.config.classes[1:]
        if not found:
            raise SaccadeError(
                f'"{text}" is not SUBJECT PREDICATE OBJECT of words that the model knows: '
                f"{_missing(words, known, predicates)} (the most frequent relations are: {', '.join(predicates[:FEW])})"
            )
        best = next((one for one in found if one[0] in known and one[2] in known), found[0])
        return self.model.places(*best)

    @torch.no_grad()
    def best_pairs(self, regions: RegionBatch, triplet: tuple[int, int, int]) -> list[FoundPair | None]:
        """Of each picture; None where it has fewer than two regions."""
        target = self.model.encode_triplets(torch.tensor([triplet], device=self.device))
        found: list[FoundPair | None] = []
        for row in range(len(regions)):
            pairs = pair_candidates(regions.boxes[row][regions.mask[row]])
            if not len(pairs):
                found.append(None)
                continue
            places = RegionPairs.of(regions, torch.full_like(pairs[:, 0], row), *pairs.unbind(dim=1))
            scores = self.model.score(places, target)[:, 0]
            best = int(scores.argmax())
            boxes = [tuple(box[best].tolist()) for box in (places.subject_boxes, places.object_boxes)]
            found.append(FoundPair(float(scores[best]), *boxes))
        return found

    def find(self, images: Images, text: str) -> list[FoundPair | None]:
        """The best pair of each picture, in the order of the pictures."""
        triplet = self.triplet(text)
        return [pair for regions in self.batches(images, BATCH) for pair in self.best_pairs(regions, triplet)]

    @torch.no_grad()
    def detect(self, image: Picture | RegionBatch, top: int = 10) -> list[tuple[tuple[str, str, str], FoundPair]]:
        """The surest triplets of one picture among those of training, each by its best pair, the surest first."""
        regions = self.extract(image if isinstance(image, RegionBatch) else [image])
        pairs = pair_candidates(regions.boxes[0][regions.mask[0]])
        triplets = torch.tensor(self.model.config.triplets, device=self.device).view(-1, 3)
        if not len(pairs) or not len(triplets):
            return []
        places = RegionPairs.of(regions, torch.zeros_like(pairs[:, 0]), *pairs.unbind(dim=1))
        best = self.model.score(places, self.model.encode_triplets(triplets, "none")).max(dim=0)
        found = []
        for n in best.values.argsort(descending=True, stable=True)[:top].tolist():
            pair = int(best.indices[n])
            boxes = [tuple(box[pair].tolist()) for box in (places.subject_boxes, places.object_boxes)]
            found.append((self.model.named(triplets[n].tolist()), FoundPair(float(best.values[n]), *boxes)))
        return found

    def find_in_files(self, photos: Sequence[Path], text: str, name: object) -> Iterator[FoundPhoto | Broken | None]:
        """The best pair of each photo file, in the order of the photos; None for one without two regions."""
        triplet = self.triplet(text)
        listed = [(path.name, path) for path in photos]
        for found in self.over_places(listed, (), BATCH, lambda regions: self.best_pairs(regions, triplet), name):
            if isinstance(found, Broken):
                yield found
            else:
                _, path, pair = found
                yield None if pair is None or path is None else FoundPhoto(path, pair)

    def reason(self, text: str) -> str:
        """What the model knows a triplet by."""
        if seen := int(self.model.counts.get(self.triplet(text), 0)):
            return f"seen {seen:,} times in training"
        return f"never seen in training, known by {'analogy with' if self.sources(text) else 'its parts'}"

    def sheet(self, photos: Sequence[FoundPhoto], text: str) -> RelationSheet:
        """Photos with their pairs, and the reason: `.save("found.png")` draws them."""
        pictures = [
            PairPicture(
                _small(photo.path),
                np.array([photo.pair.subject_box, photo.pair.object_box]),
                photo.pair.probability,
                photo.path.name,
            )
            for photo in photos
        ]
        sources = [(one.triplet, one.weight) for one in self.sources(text)]
        return RelationSheet(self.model.named(self.triplet(text)), pictures, sources, self.reason(text))

    def sources(self, text: str) -> list[SourceTriplet]:
        """The seen triplets by which an unseen one is scored, with their weights; none for one that was seen."""
        triplet = self.triplet(text)
        seen = self.model.counts.get(triplet, 0) > 0
        return [] if seen or "sro" not in self.model.config.mixture else self.model.sources(triplet)


def _missing(words: Sequence[str], things: Sequence[str], predicates: Sequence[str]) -> str:
    """What of some words without a known predicate is unknown: their ends as things, else what is between them."""
    if len(words) < 3:
        return "three words are the fewest"
    if unknown := next((word for word in (words[0], words[-1]) if word not in things), None):
        return f'there is no thing "{unknown}"{did_you_mean(unknown, things, NEAR_ENGLISH)}'
    said = " ".join(words[1:-1])
    return f'there is no relation "{said}"{"" if said in things else did_you_mean(said, predicates, NEAR_ENGLISH)}'


def _small(path: Path) -> np.ndarray:
    image = open_picture(path)
    image.thumbnail((DRAWN_SIDE, DRAWN_SIDE))
    return np.asarray(image)
