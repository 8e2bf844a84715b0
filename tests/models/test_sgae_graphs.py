"""Graph convolutions equal their sums written out, dictionaries answer in their own words, boxes tell relations."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from saccade.batch import RegionBatch, SceneGraphBatch, stack
from saccade.language import Vocabulary, load_parser
from saccade.language.vocabulary import graph_words, padded_graphs
from saccade.models.sgae import (
    ABOVE,
    BELOW,
    IN,
    LEFT,
    NEAR,
    ON,
    RIGHT,
    Dictionary,
    Fusion,
    SceneGraphConvolution,
    how_they_stand,
    spatial_graph,
    spatial_words,
)

DIM = 6
GRAPHS = padded_graphs(
    [[5, 6, 7], [8], []],
    [[(0, 1, 9), (0, 2, 10), (1, 1, 11)], [], []],  # one thing stands to itself
    [{1: [12, 13], 2: [14]}, {0: [15]}, {}],
)


def written_out(convolution: SceneGraphConvolution, words: Tensor, graph: SceneGraphBatch, which: int) -> list[Tensor]:
    """The nodes of one graph by loops."""
    things = [words[i] for i, there in zip(graph.objects[which], graph.object_mask[which], strict=True) if there]
    triples = [t for t, there in zip(graph.relations[which].tolist(), graph.relation_mask[which], strict=True) if there]
    found = [convolution.own(thing) if convolution.own is not None else thing for thing in things]
    counts, relations = [1] * len(things), []
    for subject, object_, word in triples:
        triple = torch.cat([things[subject], things[object_], words[word]])
        found[subject] = found[subject] + convolution.as_subject(triple)
        found[object_] = found[object_] + convolution.as_object(triple)
        counts[subject] += 1
        counts[object_] += 1
        heard = convolution.relation(triple)
        relations.append(heard if convolution.own is not None else (words[word] + heard) / 2)
    nodes = [one / count for one, count in zip(found, counts, strict=True)] + relations
    for place, said, there in zip(
        graph.described[which], graph.attributes[which], graph.attribute_mask[which], strict=True
    ):
        if there.any():
            heard = [convolution.attribute(torch.cat([things[place], words[word]])) for word in said[there]]
            nodes.append(torch.stack(heard).mean(dim=0))
    return nodes


@pytest.mark.parametrize("keep", [False, True], ids=["sentences", "pictures"])
def test_nodes_hear_what_the_equations_say(keep: bool) -> None:
    torch.manual_seed(0)
    convolution = SceneGraphConvolution(DIM, DIM, 0.0, keep).double()
    words = torch.randn(16, DIM, dtype=torch.float64)
    found = convolution(words[GRAPHS.objects], words[GRAPHS.relations[:, :, 2]], words[GRAPHS.attributes], GRAPHS)
    for graph in range(2):
        expected = torch.stack(written_out(convolution, words, GRAPHS, graph))
        torch.testing.assert_close(found.vectors[graph][found.mask[graph]], expected)
    assert not found.mask[2].any()
    assert (found.vectors[~found.mask] == 0).all()


def test_graphs_are_chosen_and_joined_like_any_batch() -> None:
    parts = [GRAPHS.select([1]), GRAPHS.select([0])]
    joined = stack(parts)
    torch.testing.assert_close(joined.objects, GRAPHS.objects[[1, 0]])
    torch.testing.assert_close(joined.attributes, GRAPHS.attributes[[1, 0]])
    short = padded_graphs([[5]], [[]], [{}])
    assert stack([short, GRAPHS]).attribute_mask.shape == (4, *GRAPHS.attribute_mask.shape[1:])


def test_a_sentence_gives_its_things_relations_and_attributes(vocabulary: Vocabulary) -> None:
    text = "a small red cube left of the blue zebra"
    graph = graph_words([parse.graph for parse in load_parser().parse([text])], vocabulary)

    def word(number: Tensor) -> str:
        return vocabulary.words[int(number)]

    assert [word(i) for i in graph.objects[0]] == ["cube", "<unk>"]
    assert [(s, o, vocabulary.words[w]) for s, o, w in graph.relations[0].tolist()] == [(0, 1, "left")]
    assert [
        [word(i) for i in row[there]] for row, there in zip(graph.attributes[0], graph.attribute_mask[0], strict=True)
    ] == [
        ["small", "red"],
        ["blue"],
    ]


def test_a_dictionary_answers_in_its_own_words() -> None:
    """Whatever it is asked, the answer is a mean of entries; asked for one loudly, it gives that one."""
    torch.manual_seed(0)
    dictionary = Dictionary(5, DIM)
    torch.nn.init.orthogonal_(dictionary.entries)
    answer = dictionary(torch.randn(2, 3, DIM) * 100)
    within = answer @ torch.linalg.pinv(dictionary.entries)
    torch.testing.assert_close(within.sum(dim=-1), torch.ones(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(dictionary(dictionary.entries * 100), dictionary.entries, atol=1e-5, rtol=0)


def test_fusion_falls_with_the_square_of_disagreement() -> None:
    fusion = Fusion(DIM, DIM, DIM)
    with torch.no_grad():
        for layer in (fusion.word, fusion.seen):
            layer.weight.copy_(torch.eye(DIM))
            layer.bias.zero_()
    one = torch.randn(4, DIM)
    torch.testing.assert_close(fusion(one, one), (2 * one).relu())
    torch.testing.assert_close(fusion(one, -one), -4 * one.square())


BOX = (0.4, 0.4, 0.6, 0.6)
STANDING: dict[tuple[float, ...], int] = {
    (0.45, 0.45, 0.55, 0.55): IN,
    (0.4, 0.2, 0.6, 0.45): ON,
    (0.4, 0.0, 0.6, 0.2): ABOVE,
    (0.4, 0.8, 0.6, 1.0): BELOW,
    (0.0, 0.4, 0.2, 0.6): LEFT,
    (0.8, 0.4, 1.0, 0.6): RIGHT,
    (0.55, 0.4, 0.8, 0.6): NEAR,
}


@pytest.mark.parametrize("box", STANDING)
def test_boxes_tell_how_things_stand(box: tuple[float, ...]) -> None:
    kinds = how_they_stand(torch.tensor([[box, BOX]]))
    assert int(kinds[0, 0, 1]) == STANDING[box]


def test_neighbours_are_the_nearest_that_are_there(toy_images: RegionBatch, vocabulary: Vocabulary) -> None:
    words = spatial_words(vocabulary)
    assert vocabulary.words[int(words[LEFT])] == "left"
    assert vocabulary.words[int(words[NEAR])] == "<unk>"
    graph = spatial_graph(toy_images, words, 3)
    for picture, count in enumerate(toy_images.mask.sum(dim=1).tolist()):
        pairs = graph.relations[picture][graph.relation_mask[picture]][:, :2].tolist()
        assert len({tuple(pair) for pair in pairs}) == len(pairs) == count * min(3, count - 1)
        assert all(one != other and max(one, other) < count for one, other in pairs)
    wider = spatial_graph(toy_images.pad(4), words, 3)
    torch.testing.assert_close(wider.relations[wider.relation_mask], graph.relations[graph.relation_mask])
