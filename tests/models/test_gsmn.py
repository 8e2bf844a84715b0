"""GSMN: the equations one pair at a time, and what its graphs do and do not do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Gsmn, GsmnConfig
from saccade.models.gsmn import MatchedGraph

SMALL = GsmnConfig(region_dim=12, word_dim=7, dim=10, blocks=5, hidden=6, kernels=3)
TEXTS = ("a red cube", "the small blue ball is left of a cone", "green", "a cube on the large ball and a zebra")


def build(vocabulary: Vocabulary, **switches: Any) -> Gsmn:
    torch.manual_seed(3)
    return Gsmn(replace(SMALL, **switches), vocabulary).double().eval()


@pytest.fixture
def images(toy_images: RegionBatch) -> RegionBatch:
    return toy_images.to(dtype=torch.float64)


def node_level(queries: Tensor, context: Tensor, config: GsmnConfig) -> Tensor:
    """m of every query: SCAN's attention, then a cosine for each block."""
    scores = nn.functional.leaky_relu(context @ queries.T, config.slope)  # [context, query]
    scores = scores / (scores.norm(dim=1, keepdim=True) + 1e-8)
    attended = (config.sharpness * scores).softmax(dim=0).T @ context
    size = config.dim // config.blocks
    return torch.stack(
        [
            torch.cosine_similarity(queries[:, b * size : (b + 1) * size], attended[:, b * size : (b + 1) * size])
            for b in range(config.blocks)
        ],
        dim=1,
    )


def structure_level(nodes: Tensor, edges: Tensor, graph: MatchedGraph, config: GsmnConfig) -> Tensor:
    """`edges` [node, node, kernel]; the mean over nodes of the two-layer network."""
    if config.structure:
        assert graph.propagate is not None
        heard = []
        for i in range(len(nodes)):
            parts = []
            for k, kernel in enumerate(graph.propagate.kernels):
                neighbours = nodes if config.message_passing else nodes[i].expand_as(nodes)
                total = sum(edges[i, j, k] * (kernel.weight @ neighbours[j]) for j in range(len(nodes)))
                parts.append(total if kernel.bias is None else total + kernel.bias)
            heard.append(torch.cat(parts))
        nodes = torch.stack(heard)
        nodes = nodes.tanh() if config.message_passing else nodes
    return graph.score(graph.hidden(nodes).tanh()).mean()


def visual_edges(boxes: Tensor, model: Gsmn) -> Tensor:
    centres = torch.stack([(boxes[:, 0] + boxes[:, 2]) / 2, (boxes[:, 1] + boxes[:, 3]) / 2], dim=1)
    edges = torch.zeros(len(boxes), len(boxes), model.config.kernels, dtype=torch.float64)
    for i in range(len(boxes)):
        for j in range(len(boxes)):
            x, y = centres[i] - centres[j]
            rho, theta = math.hypot(x, y), math.atan2(x, y)
            turn = (theta - model.places.angle).abs()
            turn = torch.minimum(turn, (2 * math.pi - turn).abs())
            weight = torch.exp(-0.5 * (rho - model.places.distance) ** 2 / model.places.distance_width**2)
            weight = weight * torch.exp(-0.5 * turn**2 / model.places.angle_width**2)
            edges[i, j] = weight / weight.sum()
    return edges


def textual_edges(words: Tensor, links: tuple[tuple[int, int], ...], config: GsmnConfig) -> Tensor:
    if not config.message_passing:  # normalised over neighbours that are all the node itself
        edges = torch.full((len(words), len(words)), 1 / len(words), dtype=torch.float64)
    else:
        edges = (config.link_sharpness * words @ words.T).softmax(dim=1)
        if config.text_graph == "sparse":
            adjacent = torch.eye(len(words), dtype=torch.float64)
            for a, b in links:
                adjacent[a, b] = adjacent[b, a] = 1
            edges = edges * adjacent
        edges = edges / edges.norm(dim=1, keepdim=True)
    return edges[:, :, None].expand(-1, -1, config.kernels)


@pytest.mark.parametrize(
    "switches",
    [
        {},
        {"text_graph": "dense", "link_sharpness": 2.0},
        {"message_passing": False},
        {"structure": False},
        {"graphs": "visual"},
        {"graphs": "textual", "slope": 0.0},
    ],
)
def test_every_pair_is_what_the_equations_say(
    vocabulary: Vocabulary, images: RegionBatch, switches: dict[str, Any]
) -> None:
    model = build(vocabulary, **switches)
    config, texts = model.config, model.read(TEXTS)
    seen, read = model.encode_images(images), model.encode_texts(texts)
    found = model.similarity(seen, read)
    for i in range(4):
        for t in range(4):
            regions, words = seen.regions[i][seen.mask[i]], read.words[t][read.mask[t]]
            wanted = torch.zeros((), dtype=torch.float64)
            if config.graphs != "textual":
                edges = visual_edges(images.boxes[i][seen.mask[i]], model) if config.structure else torch.empty(0)
                wanted = wanted + structure_level(node_level(regions, words, config), edges, model.visual, config)
            if config.graphs != "visual":
                edges = textual_edges(words, texts.links[t] if texts.links else (), config)
                wanted = wanted + structure_level(node_level(words, regions, config), edges, model.textual, config)
            torch.testing.assert_close(found[i, t], wanted)


@pytest.mark.parametrize("side", ["visual", "textual"])
@pytest.mark.parametrize("messages", [True, False])
def test_a_neighbour_is_heard_where_messages_pass(vocabulary: Vocabulary, side: str, messages: bool) -> None:
    """One node's matching vector changes; do others' contributions to the score?"""
    model = build(vocabulary, message_passing=messages, text_graph="dense")
    graph = model.visual if side == "visual" else model.textual
    mask = torch.ones(1, 4, dtype=torch.bool)
    if side == "visual":
        boxes = torch.rand(1, 4, 4, dtype=torch.float64)
        code = model.encode_images(RegionBatch(torch.randn(1, 4, 12, dtype=torch.float64), mask, boxes))
        links = model.visual_graph(code).links
    else:
        code = model.encode_texts(vocabulary.batch(["red ball"]))
        links = model.textual_graph(code).links[..., None]
    nodes = torch.randn(1, 1, 4, 5, dtype=torch.float64)
    changed = nodes.clone()
    changed[0, 0, 3] += 1
    others = mask & torch.tensor([True, True, True, False])
    same = torch.equal(graph(nodes, others, links), graph(changed, others, links))
    assert same == (not messages)


def test_without_messages_the_parse_has_no_influence(vocabulary: Vocabulary, images: RegionBatch) -> None:
    """As in the released code, where sparse and dense give the same number for the same weights."""
    sparse, dense = (build(vocabulary, message_passing=False, text_graph=graph) for graph in ("sparse", "dense"))
    assert sparse.read(TEXTS).links == ()
    found, expected = sparse(images, sparse.read(TEXTS)), dense(images, dense.read(TEXTS))
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)


def test_links_between_words_move_the_score(vocabulary: Vocabulary, images: RegionBatch) -> None:
    model = build(vocabulary, link_sharpness=2.0)
    texts = model.read(TEXTS)
    others = replace(texts, links=tuple(() for _ in TEXTS))
    assert (model(images, texts) - model(images, others)).abs().max() > 1e-5


def test_where_regions_lie_moves_the_score(vocabulary: Vocabulary, images: RegionBatch) -> None:
    model = build(vocabulary)
    texts = model.read(TEXTS)
    turned = replace(images, boxes=images.boxes[..., [1, 0, 3, 2]])
    moved = (model(images, texts) - model(turned, texts)).abs()
    assert moved[0].max() > 1e-5
    torch.testing.assert_close(moved[2], torch.zeros(4, dtype=torch.float64))  # one region alone lies nowhere


def test_pictures_without_boxes_of_any_size_have_scores_and_gradients(vocabulary: Vocabulary) -> None:
    model = build(vocabulary).float()
    images = RegionBatch.of([torch.randn(3, 12), torch.randn(1, 12)], [torch.zeros(3, 4), torch.zeros(1, 4)])
    similarity = model(images, model.read(TEXTS))
    similarity.sum().backward()
    assert similarity.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_a_small_budget_gives_the_same_table_and_gradients(vocabulary: Vocabulary, images: RegionBatch) -> None:
    tables, gradients = [], []
    for budget in (256, 0):
        model = build(vocabulary, budget_mb=budget)
        table = model(images, model.read(TEXTS))
        (table * torch.arange(16.0).view(4, 4)).sum().backward()
        tables.append(table)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    torch.testing.assert_close(*tables)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("text_graph", ["sparse", "dense"])
def test_comparing_codes_is_not_done_in_reduced_precision(
    vocabulary: Vocabulary, toy_images: RegionBatch, text_graph: str
) -> None:
    model = build(vocabulary, text_graph=text_graph).float()
    images, texts = model.encode_images(toy_images), model.encode_texts(model.read(TEXTS))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        reduced = model.similarity(images, texts)
    assert torch.equal(reduced, model.similarity(images, texts))


def test_graphs_are_shown_beside_the_weights(vocabulary: Vocabulary, images: RegionBatch) -> None:
    model = build(vocabulary)
    texts = model.read(TEXTS)
    alignment = model.align(model.encode_images(images), model.encode_texts(texts))
    assert alignment.word_links is not None
    assert alignment.region_links is not None
    linked = alignment.word_links[0] > 0
    assert linked[2, 3]  # red – cube
    assert linked[3, 2]
    assert not linked[0, 4]  # <start> – <end>
    torch.testing.assert_close(alignment.region_links.sum(dim=-1), images.mask.double())


def test_sentences_without_dependencies_are_refused(vocabulary: Vocabulary, images: RegionBatch) -> None:
    texts: TextBatch = vocabulary.batch(TEXTS)
    with pytest.raises(SaccadeError, match=r"without their dependencies, which text_graph=sparse needs"):
        build(vocabulary)(images, texts)
    assert build(vocabulary, text_graph="dense")(images, texts).isfinite().all()


def test_blocks_must_divide_the_vectors(vocabulary: Vocabulary) -> None:
    for blocks in (4, 0):
        with pytest.raises(SaccadeError, match=f"dim=10 does not fall into blocks={blocks}"):
            build(vocabulary, blocks=blocks)
    with pytest.raises(SaccadeError, match="0 kernels cannot share 6 numbers"):
        build(vocabulary, kernels=0)
