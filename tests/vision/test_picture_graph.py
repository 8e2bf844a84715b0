"""Scene graphs of pictures: the relation head, and the graph that an extractor gives of what it finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_detector import CONFIG, TinyBackbone, boxed, tiny_detector

from saccade.batch import PAD
from saccade.language import Vocabulary
from saccade.language.vocabulary import graph_words
from saccade.vision import PictureGraph, RegionDescription, load_extractor
from saccade.vision.boxes import UNKNOWN
from saccade.vision.detectors.bottomup import BottomUpExtractor, BottomUpNetwork, bottomup_loss
from saccade.vision.detectors.relations import RelationHead, mirrored_predicates, relation_loss, stated_predicates
from saccade.vision.extractors import PictureRelation

RELATED = replace(CONFIG, predicates=("left of", "right of", "on"), relation_hidden=32, relation_confidence=0.0)


@pytest.fixture(scope="module")
def extractor() -> BottomUpExtractor:
    torch.manual_seed(0)
    return BottomUpExtractor(BottomUpNetwork(RELATED, TinyBackbone()))


def test_in_a_mirror_left_is_right() -> None:
    assert mirrored_predicates(("left of", "on", "to the right of", "right of")).tolist() == [0, 4, 2, UNKNOWN, 1]


def test_only_what_is_stated_of_things_that_are_there_counts() -> None:
    relations = torch.tensor([[[0, 1, 2], [0, 1, 1], [1, 2, 1], [1, 0, UNKNOWN], [UNKNOWN] * 3]])
    table = stated_predicates(relations, torch.tensor([[True, True, False]]), 4)
    assert table.nonzero().tolist() == [[0, 0, 1, 1], [0, 0, 1, 2]]


def test_the_head_learns_left_from_right_by_the_boxes_alone() -> None:
    torch.manual_seed(0)
    head, real = RelationHead(RELATED.dim, 8, 32, 2, RELATED.predicates), torch.ones(8, 3, dtype=torch.bool)
    optimiser = torch.optim.Adam(head.parameters(), lr=1e-2)

    def scene() -> tuple[torch.Tensor, torch.Tensor]:
        low = torch.rand(8, 3, 2) * 0.7
        first = low[:, 0, 0] < low[:, 1, 0]  # of the first two things, one is left of the other
        stated = torch.stack([torch.zeros(8), torch.ones(8), torch.where(first, 1.0, 2.0)], dim=1)[:, None].long()
        return torch.cat([low, low + 0.3], dim=-1), stated

    for _ in range(120):
        boxes, stated = scene()
        logits = head(torch.zeros(8, 3, RELATED.dim), torch.zeros(8, 3, dtype=torch.long), boxes)
        loss = relation_loss(logits, stated, real)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    boxes, stated = scene()
    with torch.no_grad():
        logits = head(torch.zeros(8, 3, RELATED.dim), torch.zeros(8, 3, dtype=torch.long), boxes)
    assert (logits[:, 0, 1, 1:3].argmax(dim=-1) + 1 == stated[:, 0, 2]).float().mean() >= 0.75


def test_the_loss_has_a_part_for_relations_where_there_are_any(rectangles: Any) -> None:
    batch = boxed(rectangles).select(slice(0, 4))
    assert "relations" not in bottomup_loss(tiny_detector().train(), batch)
    stated = torch.tensor([[[0, 1, 1]]]).expand(4, 1, 3)
    network = BottomUpNetwork(RELATED, TinyBackbone()).train()
    losses = bottomup_loss(network, replace(batch, relations=stated))
    losses["relations"].backward()
    assert network.relations is not None
    assert network.relations.out.weight.grad is not None
    assert network.backbone.fine[0][0].weight.grad.abs().sum() > 0  # type: ignore[index,union-attr]


def test_an_extractor_relates_the_regions_it_found(
    extractor: BottomUpExtractor, rectangles: Any, tmp_path: Path
) -> None:
    pictures = list(rectangles.pixels[:3])
    graphs, found = extractor.graph(pictures), extractor.extract(pictures)
    assert [len(graph.regions) for graph in graphs] == found.mask.sum(dim=1).tolist()
    assert any(graph.relations for graph in graphs)
    for graph in graphs:
        pairs = [(r.subject, r.object) for r in graph.relations]
        whole = len(graph.regions) - 1
        assert len({frozenset(pair) for pair in pairs}) == len(pairs)  # one direction of a pair
        assert all(i != j and whole not in (i, j) for i, j in pairs)
        assert {r.predicate for r in graph.relations} <= set(RELATED.predicates)
    again = extractor.recognise_graph(found)
    assert [[r[:3] for r in g.relations] for g in again] == [[r[:3] for r in g.relations] for g in graphs]
    extractor.save(tmp_path)
    kept = load_extractor(f"bottomup:{tmp_path}")
    assert kept.has_relations
    assert kept.graph(pictures)[0].relations


def test_an_extractor_without_relations_gives_things_alone(rectangles: Any) -> None:
    extractor = BottomUpExtractor(tiny_detector())
    assert not extractor.has_relations
    (graph,) = extractor.graph(list(rectangles.pixels[:1]))
    assert graph.relations == ()
    assert extractor.recognise_graph(extractor.extract(list(rectangles.pixels[:1])))[0].relations == ()


def region(score: float, left: float, **labels: str) -> RegionDescription:
    return RegionDescription((left, 0.0, left + 0.5, 1.0), score, labels, {})


GRAPH = PictureGraph(
    (
        region(0.6, 0.02, kind="man"),  # the man below, once more
        region(0.9, 0.0, kind="man", attribute="old"),
        region(0.8, 0.5, kind="man"),
        region(0.05, 0.3, kind="dog"),
        RegionDescription((0.0, 0.0, 1.0, 1.0), 1.0, {}, {}),
    ),
    (PictureRelation(0, "near", 2, 0.9), PictureRelation(1, "left of", 2, 0.8), PictureRelation(3, "on", 2, 0.7)),
)


def test_the_surest_things_are_each_there_once() -> None:
    graph = GRAPH.surest(5)
    assert [r.score for r in graph.regions] == [0.9, 0.8]
    assert graph.relations == (PictureRelation(0, "left of", 1, 0.8),)
    assert [thing.name for thing in graph.words(numbered=True).objects] == ["man", "man 2"]
    assert len(GRAPH.surest(1).regions) == 1
    several = PictureGraph((*GRAPH.regions[1:3], region(0.7, 0.25, kind="man")))
    ridden = (PictureRelation(0, "riding", 2, 0.4), PictureRelation(0, "riding", 1, 0.3))
    assert replace(several, relations=ridden).surest(5).relations == ridden[:1]
    assert graph.to_json(200, 100)["objects"][0] == {
        "name": "man",
        "attributes": ["old"],
        "score": 0.9,
        "box": [0.0, 0.0, 100.0, 100.0],
    }
    assert graph.to_json()["relations"] == [[0, "left of", 1, 0.8]]


def test_models_read_it_as_the_graph_of_a_sentence() -> None:
    vocabulary = Vocabulary.build(["man old left near dog on"], min_count=1)
    batch = graph_words([GRAPH.words()], vocabulary)
    assert batch.objects[0].tolist() == [*[vocabulary.id_of("man")] * 3, vocabulary.id_of("dog"), PAD]
    assert batch.relations[0, 1].tolist() == [1, 2, vocabulary.id_of("left")]
    assert batch.described[0].tolist() == [1]
    assert batch.attributes[0, 0].tolist() == [vocabulary.id_of("old")]
