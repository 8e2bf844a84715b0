"""Photos and feature stores to be captioned, and what becomes of their captions: COCO's results, pictures, a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.core.errors import SaccadeError
from saccade.explain.draw.marks import FORMATS

if TYPE_CHECKING:
    from saccade.data import FeatureStore
    from saccade.explain import Explanation
    from saccade.tasks.captioning.predict import Caption

DRAWN_SIDE = 1600  # the longer side of a photo that is drawn on: more would not be seen
PAGE_SIDE = 800  # … and of one among many on a page

Photo = tuple[str, Path]  # its id and file
_COCO = re.compile(r"(?:COCO_\w+_)?(\d{12})\.jpg")  # COCO knows its pictures by the number in their name


@dataclass(frozen=True)
class Captioned:
    """A picture and what was said of it, the best first."""

    id: str
    path: Path | None  # none for a row of a store
    captions: list[Caption]


def sort_places(places: Sequence[Path]) -> tuple[list[Photo], list[FeatureStore]]:
    """Photos of files, folders and lists; and feature stores, which are folders with a manifest."""
    from saccade.data import FeatureStore
    from saccade.features.extraction import list_pictures

    stored = [place for place in places if (place / "manifest.json").is_file()]
    others = [place for place in places if place not in stored]
    photos, stores = list_pictures(others), [FeatureStore.open(place) for place in stored]
    seen: set[str] = set()
    for id in [*(id for id, _ in photos), *(id for store in stores for id in store.ids)]:
        if id in seen:
            raise SaccadeError(f'two of the pictures have the name "{id}": caption them one after the other')
        seen.add(id)
    return photos, stores


def results(told: Sequence[Captioned]) -> list[dict[str, Any]]:
    """COCO's results format; pictures that are named as COCO's are known by their numbers, as its server wants."""
    return [{"image_id": coco_id(one.id), "caption": said.text} for one in told for said in one.captions]


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

    def draw(self, told: Captioned) -> None:
        """The best caption of a photo, drawn now or kept for the page."""
        from PIL import Image

        from saccade.vision import open_picture

        if self.place is None or told.path is None:
            return
        best = told.captions[0]
        if not best.words:
            self.silent.append(told.id)
            return
        from saccade.explain import save_explanation

        picture = open_picture(told.path)
        side = PAGE_SIDE if self.as_page else DRAWN_SIDE
        picture.thumbnail((side, side), Image.Resampling.LANCZOS)
        explanation = best.explain(picture, told.id)
        if self.as_page:
            self.page.append(explanation)
        else:
            self.written.append(save_explanation(explanation, self.place if self.one_file else self._path(told.id)))

    def _path(self, id: str) -> Path:
        """A file in the folder, named as the photo; the ending stays where two photos differ in nothing else."""
        assert self.place is not None
        short = self.place / f"{id.rpartition('.')[0].replace('/', '-') or id}.png"
        return short if short not in self.written else self.place / f"{id.replace('/', '-')}.png"

    def finish(self) -> Iterator[str]:
        """What was drawn, in sentences."""
        from saccade.explain import write_gallery

        for id in self.silent:
            yield f"nothing was said of {id}, so there is nothing to draw"
        if self.place is None:
            return
        if self.page:
            self.written.append(write_gallery(self.page, self.place, "What was said, and where it looked"))
        if len(self.written) == 1:
            yield f"where it looked is in {self.written[0]}"
        elif self.written:
            yield f"where it looked is in {self.place} ({len(self.written):,} pictures)"
