"""What is in a picture: words with scores, named by the extractor of its regions or read from a detector's file; and
the same names as the scene graph of its regions.

Stores keep an extractor's region vectors, and an extractor names things from them: pictures are not opened again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from saccade.batch import RegionBatch, SceneGraphBatch, stack
from saccade.core.errors import SaccadeError
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedImages, PictureRegions, RegionSource
from saccade.data.text_files import read_json_lines
from saccade.language import Vocabulary
from saccade.vision import RegionDescription, RegionExtractor, load_extractor

NAMING_BATCH = 128  # pictures
NAME_CONFIDENCE = 0.2  # of a region's name in a scene graph; one less sure is left without
MAX_ATTRIBUTES = 4  # of a region there


def concepts_by_extractor(
    data: CaptionedImages, pictures: Sequence[int], attributes: Sequence[str] = ("kind",), confidence: float = 0.3
) -> list[dict[str, float]]:
    """The names of each picture's regions, surest first; of several regions of one name the surest counts."""
    if data.extractor is None:
        raise SaccadeError(
            f"{data.name} does not say which extractor made its features, so nothing can name what they show: "
            "give concepts=FILE (lines of an image's id and its concepts), or concepts=none"
        )
    extractor = load_extractor(data.extractor, "cuda" if torch.cuda.is_available() else "cpu")
    found: list[dict[str, float]] = []
    known: set[str] = set()  # attributes that this extractor names
    for pictures_named in recognised(data, pictures, extractor):
        for regions in pictures_named:
            named: dict[str, float] = {}
            for region in regions:
                for attribute, word in region.labels.items():
                    known.add(attribute)
                    sure = region.confidence[attribute]
                    if attribute in attributes and sure >= confidence:
                        named[word] = max(sure, named.get(word, 0.0))
            found.append(dict(sorted(named.items(), key=lambda item: -item[1])))
    missing = [attribute for attribute in attributes if attribute not in known]
    if known and len(missing) == len(attributes):
        raise SaccadeError(
            f"the extractor {extractor.name} names no {' and no '.join(missing)} (it names: {', '.join(sorted(known))})"
        )
    return found


def recognised(
    data: CaptionedImages, pictures: Sequence[int], extractor: RegionExtractor
) -> Iterator[list[list[RegionDescription]]]:
    """What an extractor names in pictures of a split, a batch of them at a time."""
    with progress_bar(f"naming what is in {data.name}/{data.split} ({extractor.name})") as progress:
        for start in range(0, len(pictures), NAMING_BATCH):
            part = list(pictures[start : start + NAMING_BATCH])
            yield extractor.recognise(data.regions.batch(part))
            progress(start + len(part), len(pictures))


class GraphedRegions(RegionSource):
    """A region source whose batches carry scene graphs, of which there is one for each picture."""

    def __init__(self, source: RegionSource, graphs: SceneGraphBatch) -> None:
        self.source, self.graphs = source, graphs

    @property
    def ids(self) -> Sequence[str]:
        return self.source.ids

    @property
    def dim(self) -> int:
        return self.source.dim

    def get(self, index: int) -> PictureRegions:
        return self.source.get(index)

    def batch(self, indices: Sequence[int]) -> RegionBatch:
        regions = self.source.batch(indices)
        count = regions.mask.shape[1]
        graph = self.graphs.select(list(indices)).resize(object=count, attributed=count)
        return replace(regions, graph=graph.to(regions.features.device))


def with_graphs(data: CaptionedImages, vocabulary: Vocabulary) -> CaptionedImages:
    """The split with what its extractor names as scene graphs of its pictures; as it was if that has no names."""
    if data.extractor is None or not hasattr(data.images, "dim") or isinstance(data.images, GraphedRegions):
        return data
    extractor = load_extractor(data.extractor, "cuda" if torch.cuda.is_available() else "cpu")
    if not extractor.has_names or not len(data.images):
        return data
    parts = [name_graphs(named, vocabulary) for named in recognised(data, range(len(data.images)), extractor)]
    return replace(data, images=GraphedRegions(data.regions, stack(parts)))


def name_graphs(pictures: Sequence[Sequence[RegionDescription]], vocabulary: Vocabulary) -> SceneGraphBatch:
    """Scene graphs without relations: the kind of each region is its name, other labels are its attributes.

    Labels that the vocabulary does not know are left out; of a name of several words the last counts.
    """
    size = max(map(len, pictures), default=0)
    objects = torch.zeros(len(pictures), size, dtype=torch.long)
    attributes = torch.zeros(len(pictures), size, MAX_ATTRIBUTES, dtype=torch.long)
    there = torch.zeros_like(objects, dtype=torch.bool)
    for picture, regions in enumerate(pictures):
        there[picture, : len(regions)] = True
        for place, region in enumerate(regions):
            words = {kind: (label.split() or [""])[-1] for kind, label in region.labels.items()}
            sure = [k for k, word in words.items() if word in vocabulary and region.confidence[k] >= NAME_CONFIDENCE]
            if "kind" in sure:
                objects[picture, place] = vocabulary.id_of(words["kind"])
            said = [vocabulary.id_of(words[kind]) for kind in sure if kind != "kind"][:MAX_ATTRIBUTES]
            attributes[picture, place, : len(said)] = torch.tensor(said, dtype=torch.long)
    own = torch.arange(size).expand(len(pictures), -1)
    none = objects.new_zeros(len(pictures), 0, 3)
    return SceneGraphBatch(objects, there, none, none[:, :, 0].bool(), own, attributes, attributes > 0)


def read_concepts(path: Path | str, ids: Sequence[str]) -> list[dict[str, float]]:
    """From lines `{"image": "12.jpg", "concepts": {"dog": 0.93, "ball": 0.41}}`; a picture not named has none."""
    of_image: dict[str, dict[str, float]] = {}
    for number, line in read_json_lines(Path(path)):
        values = line if isinstance(line, dict) else {}
        image, concepts = values.get("image"), values.get("concepts")
        if not (
            isinstance(image, str)
            and isinstance(concepts, dict)
            and all(type(score) in (int, float) and 0 <= score <= 1 for score in concepts.values())
        ):
            raise SaccadeError(
                f'{path}, line {number}: expected {{"image": ID, "concepts": {{WORD: score between 0 and 1, …}}}}'
            )
        of_image[image] = {str(k): float(v) for k, v in sorted(concepts.items(), key=lambda item: -item[1])}
    if not of_image.keys() & set(ids):
        raise SaccadeError(f"{path} names none of the {len(ids)} pictures, of which the first is {ids[0]!r}")
    return [of_image.get(id, {}) for id in ids]
