"""What is in a picture: words with scores, named by the extractor of its regions or read from a detector's file; and
the same names as the scene graph of its regions.

Stores keep an extractor's region vectors, and an extractor names things from them: pictures are not opened again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from saccade.batch import UNKNOWN, RegionBatch, SceneGraphBatch, stack
from saccade.core.errors import SaccadeError
from saccade.core.progress import progress_bar
from saccade.data.records import CaptionedImages, RegionSource
from saccade.data.store.sources import WrappedRegions
from saccade.data.text_files import read_json_lines
from saccade.language import Vocabulary
from saccade.language.vocabulary import content_word
from saccade.vision import RegionDescription, RegionExtractor, load_extractor

NAMING_BATCH = 128  # pictures
NAME_CONFIDENCE = 0.2  # of a region's name in a scene graph; one less sure is left without
MAX_ATTRIBUTES = 4  # of a region there
MAX_RELATIONS = 64  # of a picture there


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
    for batch in _batches(data, pictures, extractor):
        for regions in extractor.recognise(batch):
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


def _batches(data: CaptionedImages, pictures: Sequence[int], extractor: RegionExtractor) -> Iterator[RegionBatch]:
    """The regions of pictures that the extractor is about to name."""
    with progress_bar(f"naming what is in {data.name}/{data.split} ({extractor.name})") as progress:
        for start in range(0, len(pictures), NAMING_BATCH):
            part = list(pictures[start : start + NAMING_BATCH])
            yield data.regions.batch(part)
            progress(start + len(part), len(pictures))


class GraphedRegions(WrappedRegions):
    """A region source whose batches carry scene graphs, of which there is one for each picture."""

    def __init__(self, source: RegionSource, graphs: SceneGraphBatch) -> None:
        super().__init__(source)
        self.graphs = graphs

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
    every = _batches(data, range(len(data.images)), extractor)
    graphs = stack([region_graphs(extractor, batch, vocabulary) for batch in every])
    return replace(data, images=GraphedRegions(data.regions, graphs))


def region_graphs(extractor: RegionExtractor, regions: RegionBatch, vocabulary: Vocabulary) -> SceneGraphBatch:
    """The scene graphs of pictures, by an extractor that names their regions and may know relations between them."""
    related = extractor.relations(regions) if extractor.has_relations else ()
    return name_graphs(extractor.recognise(regions), vocabulary, related)


def name_graphs(
    pictures: Sequence[Sequence[RegionDescription]],
    vocabulary: Vocabulary,
    related: Sequence[Sequence[tuple[int, str, int, float]]] = (),
) -> SceneGraphBatch:
    """The kind of each region is its name, other labels are its attributes; relations are (subject, predicate, object,
    confidence), surest first.

    Words that the vocabulary does not know are left out; of a name of several words the last counts. All graphs have
    room for as many attributes, and for as many relations if there are any, so that their shapes recur.
    """
    size = max(map(len, pictures), default=0)
    objects = torch.zeros(len(pictures), size, dtype=torch.long)
    there = torch.zeros_like(objects, dtype=torch.bool)
    attributes = torch.zeros(len(pictures), size, MAX_ATTRIBUTES, dtype=torch.long)
    relations = torch.zeros(len(pictures), MAX_RELATIONS if related else 0, 3, dtype=torch.long)
    for picture, regions in enumerate(pictures):
        there[picture, : len(regions)] = True
        for place, region in enumerate(regions):
            words = {kind: (label.split() or [""])[-1] for kind, label in region.labels.items()}
            sure = [k for k, word in words.items() if word in vocabulary and region.confidence[k] >= NAME_CONFIDENCE]
            if "kind" in sure:
                objects[picture, place] = vocabulary.id_of(words["kind"])
            said = [vocabulary.id_of(words[kind]) for kind in sure if kind != "kind"][:MAX_ATTRIBUTES]
            attributes[picture, place, : len(said)] = torch.tensor(said, dtype=torch.long)
    for picture, found in enumerate(related):
        triples = [(one, other, content_word(said.split(), vocabulary)) for one, said, other, _ in found]
        known = [triple for triple in triples if triple[2] != UNKNOWN][:MAX_RELATIONS]
        relations[picture, : len(known)] = torch.tensor(known, dtype=torch.long).view(-1, 3)
    own = torch.arange(size).expand(len(pictures), -1)
    return SceneGraphBatch(objects, there, relations, relations[:, :, 2] > 0, own, attributes, attributes > 0)


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
