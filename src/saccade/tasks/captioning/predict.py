"""A captioner with pictures instead of tensors: its captions, their probabilities, and what it attended to."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray as Array
from PIL import Image

from saccade.batch import END, RegionBatch
from saccade.core.config import update
from saccade.core.errors import SaccadeError
from saccade.core.files import check_distinct
from saccade.data import FeatureStore
from saccade.data.store.manifest import Broken
from saccade.decoding import DecodedCaptions, DecodingConfig, decode
from saccade.explain import Explanation, save_explanation
from saccade.explain.draw import FORMATS
from saccade.features.concepts import region_graphs
from saccade.features.extraction import list_pictures, stores_among
from saccade.models import Captioner
from saccade.tasks.predict import Images, Photo, RegionPredictor
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision import open_picture
from saccade.vision.pictures import Picture, as_array

DECODING = DecodingConfig(strategy="beam", num_beams=5, max_length=30)  # unless options say otherwise
BATCH_SIZE = 16  # pictures captioned at once; what a sampler draws with a seed depends on it


@dataclass(frozen=True, eq=False)
class GeneratedCaption:
    """A sentence about a picture, with probability and attention at each word."""

    text: str
    words: tuple[str, ...]
    score: float  # what the search went by: Σ log p, with any penalty for length and likeness
    log_probability: float  # Σ log p, <end> included
    probabilities: Float[Array, " word"]  # how sure the captioner was of each word
    weights: Float[Array, "word region"]  # its attention before each word
    boxes: Float[Array, "region 4"]  # x1, y1, x2, y2 in 0..1
    sentinel: Float[Array, " word"] | None = None  # β: the share of its attention that went to no region

    def explain(self, picture: Picture, title: str = "") -> Explanation:
        """The words with the regions they came from, on the picture: `.save("why.png")` draws it."""
        return Explanation(
            as_array(picture),
            self.words,
            self.weights,
            self.boxes,
            self.log_probability,
            self.probabilities,
            title,
            sentinel=self.sentinel,
            generated=True,
        )


def _captioned(captioner: PictureCaptioner, image: Any, text: str, top: int) -> Outcome:
    picture = as_array(image)
    said = captioner.captions([picture], keep=max(top, 1))[0]
    lines = tuple(Line(one.text, score=one.score) for one in said)
    return Outcome(lines, said[0].explain(picture) if said[0].words else None)


class PictureCaptioner(RegionPredictor[Captioner]):
    """A trained captioner with the extractor it was trained with: pictures in, captions and explanations out."""

    uses = (Use("caption", "Say what is in a picture", "picture", _captioned),)

    def extract(self, images: Picture | Sequence[Picture] | RegionBatch) -> RegionBatch:
        """Regions; for a model that reads scene graphs with what the extractor names, if that is known."""
        regions = super().extract(images)
        known = self.model.reads_graphs and (self._extractor is not None or self.model.extractor is not None)
        if not known or regions.graph is not None or not self.extractor.has_names:
            return regions
        return replace(regions, graph=region_graphs(self.extractor, regions, self.model.vocabulary).to(self.device))

    def caption(self, images: Images, decoding: DecodingConfig | None = None, **options: Any) -> list[GeneratedCaption]:
        """The best caption of each picture; `options` are those of DecodingConfig: `num_beams=3`, `top_k=20` …

        By default it is found by beam search with five beams. How a sampler's captions are drawn depends on
        PyTorch's random state: `torch.manual_seed(0)` before it makes them the same each time.
        """
        return [said[0] for said in self.captions(images, decoding, keep=1, **options)]

    def captions(
        self,
        images: Images,
        decoding: DecodingConfig | None = None,
        *,
        keep: int | None = None,
        **options: Any,
    ) -> list[list[GeneratedCaption]]:
        """All captions of each picture, or the `keep` first: the beams, best first, or `strategy="sample"`."""
        settings = update(decoding or DECODING, options, "decoding")
        batches = self.batches(images, BATCH_SIZE)
        return [said for regions in batches for said in self._decode(regions, settings, keep)]

    @torch.no_grad()
    def explain(
        self,
        image: Picture,
        text: str | None = None,
        decoding: DecodingConfig | None = None,
        *,
        title: str = "",
        **options: Any,
    ) -> Explanation:
        """Where the captioner attended for each word of its caption, or would attend if it had to say `text`."""
        picture = as_array(image)
        if text is None:
            return self.caption([picture], decoding, **options)[0].explain(picture, title)
        unknown = frozenset(self.model.vocabulary.unknown(text))
        return replace(self.teacher_force(picture, text).explain(picture, title), unknown=unknown)

    @torch.no_grad()
    def teacher_force(self, image: Picture | RegionBatch, text: str) -> GeneratedCaption:
        """A given sentence as if the captioner had said it of the picture: how sure of each word, attending where."""
        self.model.vocabulary.check(text)
        regions, sentence = self.extract(image), self.model.read([text]).to(self.device)
        forced = self.model.teacher_force(self.model.start(regions), sentence.tokens[:, :-1])
        labels = sentence.tokens[:, 1:]
        said = forced.log_probabilities.gather(2, labels[:, :, None])[:, :, 0]
        decoded = DecodedCaptions(labels, said, said.sum(dim=1), forced.weights, forced.sentinel)
        return replace(self._caption(decoded, 0, regions, 0), words=sentence.words[0][1:-1], text=text)

    def caption_places(
        self,
        photos: Sequence[Photo],
        stores: Sequence[FeatureStore] = (),
        decoding: DecodingConfig = DECODING,
        keep: int | None = 1,
        name: object = "the model",
    ) -> Iterator[Captioned | Broken]:
        """Photo files, opened ahead in the background, then feature stores; what cannot be read comes back as broken.

        Raises: SaccadeError, before the first picture, if `name` cannot read the features of a store.
        """
        work = partial(self._decode, settings=decoding, keep=keep)
        for found in self.over_places(photos, stores, BATCH_SIZE, work, name):
            yield found if isinstance(found, Broken) else Captioned(*found)

    def _decode(self, regions: RegionBatch, settings: DecodingConfig, keep: int | None) -> list[list[GeneratedCaption]]:
        """The captions of one batch, by picture."""
        found = decode(self.model, regions, settings, keep=keep).to("cpu")
        regions = regions.to("cpu")
        count = found.per_image if keep is None else min(keep, found.per_image)
        return [
            [
                self._caption(found, row, regions, image)
                for row in range(image * found.per_image, image * found.per_image + count)
                # a beam that found fewer captions than wanted leaves empty rows behind them
                if row % found.per_image == 0 or not bool(found.score[row].isneginf())
            ]
            for image in range(len(regions))
        ]

    def _caption(self, found: DecodedCaptions, row: int, regions: RegionBatch, image: int) -> GeneratedCaption:
        """One row of what was decoded, without <end> and padding of words and regions."""
        ids = found.words[row].tolist()
        length = ids.index(END) if END in ids else int(found.lengths[row])
        real = regions.mask[image].cpu().numpy()

        def array(values: torch.Tensor) -> Array:
            return np.asarray(values[row, :length].double().cpu().numpy())

        return GeneratedCaption(
            text=self.model.sentence(ids),
            words=tuple(self.model.vocabulary.words[id] for id in ids[:length]),
            score=float(found.score[row]),
            log_probability=float(found.log_probabilities[row].sum()),
            probabilities=np.exp(array(found.log_probabilities)),
            weights=array(found.weights)[:, : len(real)][:, real],
            boxes=regions.boxes[image].double().cpu().numpy()[real],
            sentinel=None if found.sentinel is None else array(found.sentinel).clip(0, 1),
        )


DRAWN_SIDE = 1600  # the longer side of a photo that is drawn on: more would not be visible
PAGE_SIDE = 800  # … and of one among many on a page

_COCO = re.compile(r"(?:COCO_\w+_)?(\d{12})\.jpg")  # COCO knows its pictures by the number in their name


@dataclass(frozen=True)
class Captioned:
    """A picture and what was said of it, the best first."""

    id: str
    path: Path | None  # none for a row of a store
    captions: list[GeneratedCaption]


def sort_places(
    places: Sequence[Path], passed_over: Counter[str] | None = None
) -> tuple[list[Photo], list[FeatureStore]]:
    """Photos of files, folders and lists; and feature stores, which are folders with a manifest."""
    others, stores = stores_among(places)
    photos = list_pictures(others, passed_over=passed_over)
    ids: set[str] = set()
    for id in [*(id for id, _ in photos), *(id for store in stores for id in store.ids)]:
        if id in ids:
            raise SaccadeError(f'two of the pictures have the name "{id}": caption them one after the other')
        ids.add(id)
    return photos, stores


def results(captioned: Sequence[Captioned]) -> list[dict[str, Any]]:
    """COCO's results format; pictures that are named as COCO's are known by their numbers, as its server wants."""
    return [{"image_id": coco_id(one.id), "caption": said.text} for one in captioned for said in one.captions]


def coco_id(id: str) -> str | int:
    found = _COCO.fullmatch(id.rpartition("/")[2])
    return int(found[1]) if found else id


class Drawings:
    """Pictures of attention: one file for one photo, a folder for a picture of each, or a page of all."""

    def __init__(self, place: Path | None, photos: Sequence[Photo], stores: Sequence[FeatureStore]) -> None:
        self.place = place
        self.written: list[Path] = []
        self.silent: list[str] = []
        self.page: list[Explanation] = []
        if place is None:
            return
        self.one_file, self.as_page = place.suffix.lower() in FORMATS, place.suffix.lower() == ".html"
        if stores:
            raise SaccadeError(f"--attention draws on photos, and {stores[0].folder} holds none: give the photos")
        if self.one_file and len(photos) > 1:
            raise SaccadeError(
                f"{place} is one file for {len(photos)} photos: name a folder, or a page ({place.stem}.html)"
            )
        if not self.one_file and not self.as_page and (place.suffix or place.is_file()):
            known = ", ".join([*FORMATS, ".html"])
            raise SaccadeError(f"--attention {place}: a folder, or a file that ends in one of {known} was expected")
        if place.is_dir():
            check_distinct([path for id, _ in photos for path in self._paths(id)], [path for _, path in photos])

    def draw(self, captioned: Captioned) -> None:
        """The best caption of a photo, drawn now or kept for the page."""
        if self.place is None or captioned.path is None:
            return
        best = captioned.captions[0]
        if not best.words:
            self.silent.append(captioned.id)
            return
        picture = open_picture(captioned.path)
        side = PAGE_SIDE if self.as_page else DRAWN_SIDE
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        explanation = best.explain(picture, captioned.id)
        if self.as_page:
            self.page.append(explanation)
        else:
            self.written.append(
                save_explanation(explanation, self.place if self.one_file else self._path(captioned.id))
            )

    def _path(self, id: str) -> Path:
        """A file in the folder, named as the photo; the ending stays where two photos differ in nothing else."""
        short, whole = self._paths(id)
        return short if short not in self.written else whole

    def _paths(self, id: str) -> tuple[Path, Path]:
        assert self.place is not None
        flat = id.replace("/", "-")
        return self.place / f"{flat.rpartition('.')[0] or id}.png", self.place / f"{flat}.png"

    def finish(self) -> Iterator[str]:
        """What was drawn, in sentences."""
        from saccade.explain import write_gallery

        for id in self.silent:
            yield f"nothing was said of {id}, so there is nothing to draw"
        if self.place is None:
            return
        if self.page:
            self.written.append(write_gallery(self.page, self.place, "The captions, and what each word attended to"))
        if len(self.written) == 1:
            yield f"the attention is in {self.written[0]}"
        elif self.written:
            yield f"the attention is in {self.place} ({len(self.written):,} pictures)"
