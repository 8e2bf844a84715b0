"""Concepts of pictures: named by the extractor that saw them, or read from a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.data.records import CaptionedImages
from saccade.data.store.sources import RegionsInMemory
from saccade.features.concepts import GraphedRegions, concepts_by_extractor, name_graphs, read_concepts, with_graphs
from saccade.language import Vocabulary
from saccade.vision import RegionDescription, load_extractor


class Naming:
    """An extractor that reads names off the first number of a vector."""

    name, has_names, has_relations = "naming", True, False

    def recognise(self, regions: RegionBatch) -> list[list[RegionDescription]]:
        def region(vector: torch.Tensor) -> RegionDescription:
            kind, sure = (("dog", 0.9), ("ball", 0.6), ("cloud", 0.2))[int(vector[0]) % 3]
            sure -= float(vector[0]) / 100
            return RegionDescription((0, 0, 1, 1), 1.0, {"kind": kind, "colour": "red"}, {"kind": sure, "colour": 0.5})

        return [[region(v) for v in f[m]] for f, m in zip(regions.features, regions.mask, strict=True)]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> CaptionedImages:
    """Three pictures: two dogs; a ball and a dog; a cloud."""
    monkeypatch.setattr("saccade.features.concepts.load_extractor", lambda name, device: Naming())
    vectors = [np.array([[3.0], [0.0]]), np.array([[1.0], [0.0]]), np.array([[2.0]])]
    boxes = [np.zeros((len(v), 4)) for v in vectors]

    class Source:
        ids, dim = ("a.jpg", "b.jpg", "c.jpg"), 1

        def __len__(self) -> int:
            return 3

        def batch(self, indices: Sequence[int]) -> RegionBatch:
            return RegionBatch.of([vectors[i] for i in indices], [boxes[i] for i in indices])

    return CaptionedImages("toy", "train", RegionsInMemory(Source()), ("x",) * 3, np.arange(3), "naming")


def test_each_name_counts_once_surest_first(seen: CaptionedImages) -> None:
    assert concepts_by_extractor(seen, [0, 1, 2]) == [{"dog": 0.9}, {"dog": 0.9, "ball": pytest.approx(0.59)}, {}]
    assert list(concepts_by_extractor(seen, [1])[0]) == ["dog", "ball"]
    assert concepts_by_extractor(seen, [2], confidence=0.1) == [{"cloud": pytest.approx(0.18)}]
    assert concepts_by_extractor(seen, [2], ("kind", "colour")) == [{"red": 0.5}]


def test_what_an_extractor_never_names_is_told_with_what_it_does(seen: CaptionedImages) -> None:
    with pytest.raises(SaccadeError, match=r"the extractor naming names no mood \(it names: colour, kind\)"):
        concepts_by_extractor(seen, [0, 1, 2], ("mood",))


def test_a_split_carries_what_is_named_in_its_regions_as_scene_graphs(seen: CaptionedImages) -> None:
    """A name that is not sure, or that the vocabulary does not have, is none: the model then guesses."""
    words = Vocabulary.build(["a red dog and a cloud"], 1)
    named = with_graphs(seen, words)
    assert with_graphs(named, words) is named
    batch = named.images.batch([1, 2])  # a ball, unknown, and a dog; a cloud that is not sure
    assert batch.graph is not None
    assert batch.graph.objects.tolist() == [[0, words.id_of("dog")], [0, 0]]
    assert batch.graph.attributes[:, :, 0].tolist() == [[words.id_of("red")] * 2, [words.id_of("red"), 0]]
    assert batch.graph.attribute_mask.sum().item() == 3
    assert batch.graph.relations.shape == (2, 0, 3)
    assert named.images.batch([2]).graph.objects.shape == (1, 1)  # type: ignore[union-attr]


def test_a_name_of_several_words_is_its_last() -> None:
    words = Vocabulary.build(["a tennis ball"], 1)
    graph = name_graphs([[RegionDescription((0, 0, 1, 1), 1.0, {"kind": "tennis ball"}, {"kind": 0.9})], []], words)
    assert graph.objects.tolist() == [[words.id_of("ball")], [0]]
    assert graph.object_mask.tolist() == [[True], [False]]


def test_relations_are_kept_surest_first_where_their_word_is_known() -> None:
    words = Vocabulary.build(["a dog jumps over a ball"], 1)
    graph = name_graphs([[], []], words, [[(0, "jumps", 1, 0.9), (1, "under", 0, 0.8)], []])
    assert graph.relations[0, 0].tolist() == [0, 1, words.id_of("jumps")]
    assert graph.relation_mask.sum().item() == 1


def test_regions_that_nothing_names_stay_as_they_are(seen: CaptionedImages, monkeypatch: pytest.MonkeyPatch) -> None:
    words = Vocabulary.build(["a dog"], 1)
    unknown = replace(seen, extractor=None)
    assert with_graphs(unknown, words) is unknown
    monkeypatch.setattr(Naming, "has_names", False)
    assert not isinstance(with_graphs(seen, words).images, GraphedRegions)


def test_features_of_an_unknown_extractor_have_no_names(seen: CaptionedImages) -> None:
    with pytest.raises(SaccadeError, match=r"does not say which extractor made its features.*concepts=FILE"):
        concepts_by_extractor(replace(seen, extractor=None), [0])


def test_a_file_of_concepts_is_read_as_written(tmp_path: Path) -> None:
    path = tmp_path / "concepts.jsonl"
    lines = [
        {"image": "a.jpg", "concepts": {"dog": 0.9123}},
        {"image": "b.jpg", "concepts": {"ball": 0.25, "café": 1.0}},
    ]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n", encoding="utf-8")
    read = read_concepts(path, ["b.jpg", "missing.jpg", "a.jpg"])
    assert read == [{"café": 1.0, "ball": 0.25}, {}, {"dog": 0.9123}]
    assert list(read[0]) == ["café", "ball"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("[1]", "line 1: expected"),
        ('{"image": "a.jpg"}', "line 1: expected"),
        ('{"image": "a.jpg", "concepts": {"dog": 2}}', "score between 0 and 1"),
        ('{"image": "a.jpg", "concepts": {"dog": true}}', "line 1: expected"),
        ('{"image": "z.jpg", "concepts": {"dog": 0.5}}', "names none of the 1 pictures"),
        ("{", "not valid JSON"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, line: str, sentence: str) -> None:
    path = tmp_path / "concepts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(SaccadeError, match=sentence):
        read_concepts(path, ["a.jpg"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match=r"none\.jsonl"):
        read_concepts(tmp_path / "none.jsonl", ["a.jpg"])


def test_the_shipped_extractor_of_the_world_names_kinds() -> None:
    extractor = load_extractor("world")
    regions = extractor.extract([np.full((64, 64, 3), 120, np.uint8)])
    assert extractor.recognise(regions)[0][-1].labels.keys() == {"background", "lighting"}
