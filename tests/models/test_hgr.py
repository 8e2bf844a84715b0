"""HGR: its equations from their definition, role graphs on the way, frames that are taken, and levels of the loss."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import FrameBatch, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models import Hgr, HgrConfig
from saccade.models.hgr import evenly_taken
from saccade.nn import triplet_loss

SENTENCES = ["a cube is left of the red ball", "the small ball is on a cone and a cube", "a green cone"]


def build(vocabulary: Vocabulary, **settings: object) -> Hgr:
    torch.manual_seed(0)
    sizes = {"region_dim": 12, "word_dim": 7, "dim": 10, "actions": 2, "entities": 3}
    model = Hgr(replace(HgrConfig(), **{**sizes, **settings}), vocabulary).double().eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return model


def local_score(frames: Tensor, phrases: list[Tensor], sharpness: float, by_vectors: bool) -> list[Tensor]:
    """(6–7) of one video and some phrases, with the attended frames."""
    found = []
    for phrase in phrases:
        cosine = F.cosine_similarity(frames, phrase[None])
        clipped = cosine.clamp(min=0)
        weights = (sharpness * clipped / clipped.norm().clamp(min=1e-10)).softmax(dim=0)
        attended = weights @ frames
        found.append(F.cosine_similarity(attended, phrase, dim=0) if by_vectors else weights @ cosine)
    return found


@pytest.mark.parametrize("fusion", ["vectors", "scores"])
@pytest.mark.parametrize("phrase_pool", ["mean", "sum"])
def test_every_level_follows_from_its_definition(
    vocabulary: Vocabulary, toy_images: RegionBatch, fusion: str, phrase_pool: str
) -> None:
    model = build(vocabulary, fusion=fusion, phrase_pool=phrase_pool)
    images = model.encode_images(toy_images.to(dtype=torch.float64))
    texts = model.encode_texts(model.read(SENTENCES))
    tables = model.level_tables(images, texts)
    assert texts.phrases is not None
    assert texts.nodes is not None
    assert texts.pooled is not None
    for i in range(len(images)):
        frames = images.regions[i][images.mask[i]].split(model.config.dim, dim=1)
        for t in range(len(SENTENCES)):
            event = (model.focus(frames[0])[:, 0].softmax(dim=0)) @ frames[0]
            expected = [F.cosine_similarity(event, texts.pooled[t], dim=0)]
            for level, slots in ((1, range(2)), (2, range(2, 5))):
                nodes = [texts.nodes[t, slot] for slot in slots if texts.phrases[t, slot].any()]
                scores = local_score(frames[level], nodes, model.config.sharpness, fusion == "vectors")
                total = torch.stack(scores).sum() if scores else torch.zeros((), dtype=torch.float64)
                expected.append(total / (max(1, len(scores)) if phrase_pool == "mean" else 1))
            for level, value in enumerate(expected):
                torch.testing.assert_close(tables[level][i, t], value)
            torch.testing.assert_close(model.similarity(images, texts)[i, t], torch.stack(expected).mean())


def test_reasoning_is_attention_over_a_nodes_neighbours(vocabulary: Vocabulary) -> None:
    """(2–3) node by node; the event hears nobody, and is only normalised."""
    model = build(vocabulary)
    texts = model.read(SENTENCES)
    layer = model.graph[0]
    states, real = model.states(texts)
    assert texts.role_words is not None
    assert texts.roles is not None
    assert texts.edges is not None
    phrases = model.phrase_nodes(states, texts.role_words, texts.roles)
    nodes = torch.cat([model.event_node(states, real)[:, None], phrases], dim=1)
    found = layer(nodes, texts.edges)
    for t, n in ((0, 0), (0, 1), (0, 3), (1, 1), (2, 3)):
        heard = texts.edges[t, n].nonzero().flatten().tolist()
        message = torch.zeros(10, dtype=torch.float64)
        if heard:
            scores = [layer.query(nodes[t, n]) @ layer.key(nodes[t, j]) / math.sqrt(5) for j in heard]
            weights = torch.stack(scores).softmax(dim=0)
            message = layer.message(sum(w * nodes[t, j] for w, j in zip(weights, heard, strict=True)))
        torch.testing.assert_close(found[t, n], layer.norm(nodes[t, n] + message))
    assert len(texts.edges[0, 1].nonzero()) == 3  # the event, and both entities of "is"


def test_roles_tell_who_does_what(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """With the same words in the same places, another role is another score; without role vectors it is not."""
    for roles, differ in (("phrases", True), ("none", False)):
        model = build(vocabulary, roles=roles)
        images, texts = toy_images.to(dtype=torch.float64), model.read(SENTENCES[:1])
        assert texts.roles is not None
        other = replace(texts, roles=texts.roles.where(texts.roles != 1, 2))
        apart = (model(images, texts) - model(images, other)).detach().abs().max()
        assert (float(apart) > 1e-4) is differ


@pytest.mark.parametrize("graph_layers", [0, 1])
def test_the_event_may_have_a_role_vector_too(vocabulary: Vocabulary, graph_layers: int) -> None:
    model = build(vocabulary, roles="all", graph_layers=graph_layers, layer_norm=False)
    texts = model.read(SENTENCES)
    expected = model.event_node(*model.states(texts)) * model.roles.weight[-1]
    torch.testing.assert_close(model.encode_texts(texts).pooled, expected)


def test_a_batch_without_role_graphs_is_refused(vocabulary: Vocabulary) -> None:
    model = build(vocabulary)
    with pytest.raises(SaccadeError, match="come without their role graphs"):
        model.encode_texts(vocabulary.batch(SENTENCES))
    build(vocabulary, levels=("event",)).encode_texts(vocabulary.batch(SENTENCES))


def test_tables_and_padding_of_role_graphs_change_nothing(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """As a captured training step has them."""
    model = build(vocabulary)
    images, texts = toy_images.to(dtype=torch.float64), model.read(SENTENCES)
    torch.testing.assert_close(model(images, texts.tables().pad(3)), model(images, texts), rtol=0, atol=1e-12)
    chosen = texts.select([2, 0])
    assert chosen.edges is not None
    torch.testing.assert_close(model(images, chosen.trimmed()), model(images, texts)[:, [2, 0]], rtol=0, atol=1e-12)


def test_words_after_the_longest_are_not_read(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    model = build(vocabulary, max_words=3)
    images = toy_images.to(dtype=torch.float64)
    one, other = model.read(["a red cube is left of the ball"]), model.read(["a red cube is on a green cone"])
    assert torch.equal(model.states(one)[0][:, :4], model.states(other)[0][:, :4])
    assert not model.states(one)[0][:, 4:].any()
    torch.testing.assert_close(model(images, one), model(images, other), rtol=0, atol=1e-12)


def test_long_videos_give_even_frames(vocabulary: Vocabulary) -> None:
    mask = torch.arange(15) < torch.tensor([15, 6, 3])[:, None]
    taken = evenly_taken(mask, 6) & mask
    assert [row.nonzero().flatten().tolist() for row in taken] == [[0, 3, 6, 8, 11, 14], [0, 1, 2, 3, 4, 5], [0, 1, 2]]
    draw = torch.Generator().manual_seed(3)
    features = [torch.randn(n, 12, generator=draw) for n in (15, 3)]
    times = [torch.linspace(0, 1, n + 1).unfold(0, 2, 1).numpy() for n in (15, 3)]
    videos = FrameBatch.of_times(features, times, [1.0, 1.0]).to(dtype=torch.float64)
    short = RegionBatch.of([features[0][[0, 3, 6, 8, 11, 14]], features[1]], [torch.zeros(6, 4), torch.zeros(3, 4)])
    model = build(vocabulary, max_frames=6)
    texts = model.read(SENTENCES)
    torch.testing.assert_close(model(videos, texts), model(short.to(dtype=torch.float64), texts))
    shown = model.align(model.encode_images(videos.select([0, 0, 0])), model.encode_texts(texts))
    assert shown.weights.shape[2] == 15  # at the places of all frames, so that they can be drawn
    assert not shown.weights[:, :, 1].any()


def test_an_alignment_tells_what_each_level_adds(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    model = build(vocabulary)
    images = model.encode_images(toy_images.to(dtype=torch.float64)).select([0, 1, 2])
    texts = model.encode_texts(model.read(SENTENCES))
    shown = model.align(images, texts)
    assert shown.level_score is not None
    wanted = torch.stack([table.diagonal() for table in model.level_tables(images, texts)], dim=1)
    torch.testing.assert_close(shown.level_score, wanted)
    ball = slice(6, 9)  # "the red ball" of the first sentence is one phrase, and looks as one
    torch.testing.assert_close(shown.weights[0, ball], shown.weights[0, 7:8].expand(3, -1))


def test_the_loss_may_weigh_every_level(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    weights = (1.0, 0.2, 0.3, 0.4)
    model, plain = build(vocabulary, loss_weights=weights), build(vocabulary)
    codes = model.encode_images(toy_images.to(dtype=torch.float64)), model.encode_texts(model.read(SENTENCES))
    tables = model.ranked(*codes)
    assert model.ranking_weights == weights
    torch.testing.assert_close(tables[0], model.similarity(*codes))
    torch.testing.assert_close(torch.stack(tables[1:]).mean(dim=0), tables[0])
    assert len(plain.ranked(*codes)) == 1
    with pytest.raises(SaccadeError, match="one for S and one for each of 3 levels"):
        HgrConfig(loss_weights=(1.0, 0.5))
    with pytest.raises(SaccadeError, match="each once"):
        HgrConfig(levels=("event", "event"))


def test_the_mean_of_the_hardest_and_one_way_alone() -> None:
    scores = torch.tensor([[0.5, 0.6, 0.2], [0.1, 0.9, 0.8], [0.4, 0.3, 0.7]])
    hinge = (0.2 + scores - scores.diagonal()[:, None]).clamp(min=0).fill_diagonal_(0)  # wrong texts
    torch.testing.assert_close(triplet_loss(scores, ways="texts"), hinge.amax(dim=1).sum())
    torch.testing.assert_close(triplet_loss(scores, ways="texts", hardest=2), hinge.sum() / 2)
    both = triplet_loss(scores, hardest=2)
    torch.testing.assert_close(
        both, triplet_loss(scores, ways="texts", hardest=2) + triplet_loss(scores, ways="images", hardest=2)
    )
    torch.testing.assert_close(triplet_loss(scores, negatives="all", ways="texts"), hinge.sum())
