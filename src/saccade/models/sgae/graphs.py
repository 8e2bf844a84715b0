"""SGAE's scene graphs: from boxes or words to vectors of their nodes, and the dictionary these are rewritten in.

A picture's graph comes with it, or is told from its boxes alone (`spatial_graph`). Graph convolutions let things hear
from their relations, and relations and attributes from things.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import UNKNOWN, Batch, RegionBatch, SceneGraphBatch
from saccade.language import Vocabulary
from saccade.nn.encode import at_least_float32, dropout_layer

Embed = Callable[[Tensor], Tensor]  # word ids → vectors

RELATION_WORDS = (  # how a region stands to its neighbour; of each row the first word that a vocabulary knows
    ("in", "inside", "within"),
    ("on", "upon"),
    ("above", "over"),
    ("below", "under", "beneath"),
    ("left",),
    ("right",),
    ("near", "by", "next", "beside", "with"),
)
IN, ON, ABOVE, BELOW, LEFT, RIGHT, NEAR = range(len(RELATION_WORDS))
MIN_COVERED = 0.8  # a region lies in another that covers so much of it


@dataclass(frozen=True)
class GraphNodes(Batch):
    """The nodes of a graph: its things, its relations, and one node for the attributes of each thing that has any.

    Each stands at two places among the things: a relation at its subject and object, another at one thing twice.
    """

    vectors: Float[Tensor, "graph node dim"]
    mask: Bool[Tensor, "graph node"]
    places: Int[Tensor, "graph node 2"]


@dataclass(frozen=True)
class GraphContext(Batch):
    """What a captioner of scene graphs attends to: a picture's nodes, and where among its regions each stands."""

    nodes: Float[Tensor, "row node dim"]
    keys: Float[Tensor, "row node attention_dim"]
    mask: Bool[Tensor, "row node"]
    places: Int[Tensor, "row node 2"]
    regions: Bool[Tensor, "row region"]
    whole: Float[Tensor, "row dim"]
    reworded: Float[Tensor, "row node dim"] | None = None  # D's reading of the nodes, where it stands beside them
    reworded_keys: Float[Tensor, "row node attention_dim"] | None = None

    def on_regions(self, weights: Float[Tensor, "row node"]) -> Float[Tensor, "row region"]:
        """Attention to a relation goes to its two things, to an attribute to its thing."""
        halves = (weights / 2 * self.mask)[:, :, None].expand(-1, -1, 2)
        return weights.new_zeros(self.regions.shape).scatter_add(1, self.places.flatten(1), halves.flatten(1))


@dataclass(frozen=True)
class SentenceGraphContext(GraphContext):
    """A sentence's nodes, which stand nowhere in a picture."""

    def on_regions(self, weights: Float[Tensor, "row node"]) -> Float[Tensor, "row region"]:
        return weights.new_zeros(self.regions.shape)


# The dictionary


def read_out(queries: Float[Tensor, "*item dim"], entries: Float[Tensor, "entry dim"]) -> Float[Tensor, "*item dim"]:
    """R(x; D) = softmax(x Dᵀ) D: the entries that x is like, each as far as it is."""
    weights = at_least_float32(queries @ entries.T).softmax(dim=-1)
    return weights.to(queries.dtype) @ entries.to(queries.dtype)


class Dictionary(nn.Module):
    """D: entries that learn what is said of what, whatever they are asked from: a sentence or a picture.

    They start between 0 and 0.01, nearly alike, and take long to part; with a `spread` they differ from the start.
    """

    def __init__(self, count: int, dim: int, spread: float = 0.0) -> None:
        super().__init__()
        start = torch.randn(count, dim) * spread if spread else torch.rand(count, dim) / 100
        self.entries = nn.Parameter(start)

    def forward(self, queries: Float[Tensor, "*item dim"]) -> Float[Tensor, "*item dim"]:
        return read_out(queries, self.entries)


# Graph convolutions


def node_mask(graph: SceneGraphBatch) -> Bool[Tensor, "graph node"]:
    return torch.cat([graph.object_mask, graph.relation_mask, graph.attribute_mask.any(dim=2)], dim=1)


def node_places(graph: SceneGraphBatch) -> Int[Tensor, "graph node 2"]:
    count, objects = graph.objects.shape
    things = torch.arange(objects, device=graph.objects.device).expand(count, -1)
    first, last = (alone[:, :, None].expand(-1, -1, 2) for alone in (things, graph.described))
    return torch.cat([first, graph.relations[:, :, :2], last], dim=1)


def without_edges(graph: SceneGraphBatch) -> SceneGraphBatch:
    """The things alone."""
    return SceneGraphBatch(
        graph.objects,
        graph.object_mask,
        graph.relations[:, :0],
        graph.relation_mask[:, :0],
        graph.described[:, :0],
        graph.attributes[:, :0],
        graph.attribute_mask[:, :0],
    )


def relu_layer(in_dim: int, dim: int, dropout: float) -> nn.Sequential:
    """A linear map, a ReLU, and forgetting in training: the form of every layer of SGAE's graphs."""
    return nn.Sequential(nn.Linear(in_dim, dim), nn.ReLU(), dropout_layer(dropout))


class SceneGraphConvolution(nn.Module):
    """One round of hearing from neighbours, by four maps of their own.

    relation:   x_r = g_r(s, o, r)
    attribute:  x_a = mean over the attributes a of a thing o of g_a(o, a)
    thing:      x_o = (g(o) + Σ g_s(o, o', r) as subject + Σ g_o(o', o, r) as object) / (1 + number of these)

    With `keep`, things and relations stay what they are and hear besides: g(o) = o, and x_r = (r + g_r(s, o, r)) / 2.
    """

    def __init__(self, in_dim: int, dim: int, dropout: float, keep: bool = False) -> None:
        super().__init__()
        self.own = None if keep else relu_layer(in_dim, dim, dropout)  # g
        self.as_subject = relu_layer(3 * in_dim, dim, dropout)  # g_s
        self.as_object = relu_layer(3 * in_dim, dim, dropout)  # g_o
        self.relation = relu_layer(3 * in_dim, dim, dropout)  # g_r
        self.attribute = relu_layer(2 * in_dim, dim, dropout)  # g_a

    def forward(
        self,
        things: Float[Tensor, "graph object in"],
        relations: Float[Tensor, "graph relation in"],
        attributes: Float[Tensor, "graph attributed attribute in"],
        graph: SceneGraphBatch,
    ) -> GraphNodes:
        subject, object_ = (place_of(graph.relations[:, :, end], graph.relation_mask, things) for end in (0, 1))
        triples = torch.cat([subject @ things, object_ @ things, relations], dim=2)
        degree = 1 + (subject + object_).sum(dim=1)
        messages = subject.mT @ self.as_subject(triples) + object_.mT @ self.as_object(triples)
        kept = things if self.own is None else self.own(things)
        objects = (kept + messages) / degree[:, :, None]
        related = self.relation(triples)
        if self.own is None:
            related = (relations + related) / 2
        said = graph.attribute_mask[..., None].to(things)
        owners = (place_of(graph.described, graph.attribute_mask.any(dim=2), things) @ things)[:, :, None]
        pairs = torch.cat([owners.expand(-1, -1, attributes.shape[2], -1), attributes], dim=3)
        qualities = (self.attribute(pairs) * said).sum(dim=2) / said.sum(dim=2).clamp(min=1)
        mask = node_mask(graph)
        vectors = torch.cat([objects, related, qualities], dim=1) * mask[:, :, None]
        return GraphNodes(vectors, mask, node_places(graph))


def place_of(
    places: Int[Tensor, "graph edge"], mask: Bool[Tensor, "graph edge"], things: Float[Tensor, "graph object in"]
) -> Float[Tensor, "graph edge object"]:
    """1 where an edge ends: times the things it fetches, transposed it delivers. Sums in one order, on any device."""
    here = torch.arange(things.shape[1], device=places.device)
    return ((places[:, :, None] == here) & mask[:, :, None]).to(things)


class Fusion(nn.Module):
    """u = ReLU(W₁ e + W₂ v) − (W₁ e − W₂ v)²: high where a word and what is seen agree.

    Squares run away when a fresh model learns fast; with `norm` every u has mean 0 and variance 1.
    """

    def __init__(self, word_dim: int, seen_dim: int, dim: int, norm: bool = False) -> None:
        super().__init__()
        self.word = nn.Linear(word_dim, dim)
        self.seen = nn.Linear(seen_dim, dim)
        self.norm = nn.LayerNorm(dim) if norm else nn.Identity()

    def forward(
        self, word: Float[Tensor, "*node word"], seen: Float[Tensor, "*node seen"]
    ) -> Float[Tensor, "*node dim"]:
        one, other = self.word(word), self.seen(seen)
        fused: Tensor = self.norm((one + other).relu() - (one - other).square())
        return fused


class PictureGraph(nn.Module):
    """The paper's multi-modal graph network: every node is fused of its word and what is seen of it, then convolved.

    A relation is seen as the mean of its two things. Where no detector names a thing, its word is read out of the table
    of words, as R(x; D) reads the dictionary: e = softmax((W v) Eᵀ) E.
    """

    def __init__(self, word_dim: int, dim: int, dropout: float, norm: bool = False) -> None:
        super().__init__()
        self.guess = nn.Linear(dim, word_dim)
        self.object = Fusion(word_dim, dim, dim, norm)
        self.relation = Fusion(word_dim, dim, dim, norm)
        self.attribute = Fusion(word_dim, dim, dim, norm)
        self.convolution = SceneGraphConvolution(dim, dim, dropout)

    def forward(
        self, regions: Float[Tensor, "image region dim"], graph: SceneGraphBatch, words: nn.Embedding, embed: Embed
    ) -> GraphNodes:
        named = graph.objects > 0
        labels = read_out(self.guess(regions), words.weight.relu())
        labels = torch.where(named[:, :, None], embed(graph.objects).to(labels), labels)
        subject, object_ = (place_of(graph.relations[:, :, end], graph.relation_mask, regions) for end in (0, 1))
        owners = place_of(graph.described, graph.attribute_mask.any(dim=2), regions) @ regions
        nodes: GraphNodes = self.convolution(
            self.object(labels, regions),
            self.relation(embed(graph.relations[:, :, 2]), (subject + object_) @ regions / 2),
            self.attribute(embed(graph.attributes), owners[:, :, None]),
            graph,
        )
        return nodes


class PlainPictureGraph(nn.Module):
    """The released code's: regions as they are, words mapped to where regions are; things need no names."""

    def __init__(self, word_dim: int, dim: int, dropout: float) -> None:
        super().__init__()
        self.word = relu_layer(word_dim, dim, dropout)
        self.convolution = SceneGraphConvolution(dim, dim, dropout, keep=True)

    def forward(
        self, regions: Float[Tensor, "image region dim"], graph: SceneGraphBatch, words: nn.Embedding, embed: Embed
    ) -> GraphNodes:
        relations, attributes = (self.word(embed(ids)) for ids in (graph.relations[:, :, 2], graph.attributes))
        nodes: GraphNodes = self.convolution(regions, relations, attributes, graph)
        return nodes


def to_sentences(dim: int, dropout: float) -> nn.Sequential:
    """From what pictures look like to what sentences do, in the released code: before D can be asked."""
    layers: list[nn.Module] = []
    for _ in range(2):
        layers += [nn.Linear(dim, dim), nn.LeakyReLU(0.1), dropout_layer(dropout)]
    return nn.Sequential(*layers, nn.Linear(dim, dim))


# Graphs from boxes


def spatial_words(vocabulary: Vocabulary) -> Int[Tensor, " kind"]:
    """The ids of these words; <unk> for those that captions never use."""
    known = ([vocabulary.id_of(word) for word in row if word in vocabulary] for row in RELATION_WORDS)
    return torch.tensor([ids[0] if ids else UNKNOWN for ids in known])


def spatial_graph(images: RegionBatch, words: Int[Tensor, " kind"], neighbours: int) -> SceneGraphBatch:
    """Every region stands to each of its nearest `neighbours` somehow; none has a name or attributes."""
    boxes, mask = images.boxes, images.mask
    count, regions = mask.shape
    nearest, there = nearest_neighbours(boxes, mask, neighbours)
    kinds = how_they_stand(boxes).gather(2, nearest)
    subjects = torch.arange(regions, device=boxes.device)[:, None].expand_as(nearest)
    relations = torch.stack([subjects, nearest, words.to(boxes.device)[kinds]], dim=3)
    none = nearest.new_zeros(count, 0)
    return SceneGraphBatch(
        nearest.new_zeros(count, regions),
        mask,
        relations.flatten(1, 2),
        there.flatten(1),
        none,
        none[:, :, None],
        none[:, :, None].bool(),
    )


def nearest_neighbours(
    boxes: Float[Tensor, "image region 4"], mask: Bool[Tensor, "image region"], neighbours: int
) -> tuple[Int[Tensor, "image region neighbour"], Bool[Tensor, "image region neighbour"]]:
    """By the distance of their centres, of equals the first; and which of them are there."""
    regions = mask.shape[1]
    centres = (boxes[:, :, :2] + boxes[:, :, 2:]) / 2
    apart = (centres[:, :, None] - centres[:, None]).square().sum(dim=3)
    itself = torch.eye(regions, dtype=torch.bool, device=boxes.device)
    apart = apart.masked_fill(itself | ~mask[:, None], float("inf"))
    distances, order = apart.sort(dim=2, stable=True)  # stable: padding must not change who comes first
    there = distances[:, :, :neighbours].isfinite() & mask[:, :, None]
    return order[:, :, :neighbours], there


def how_they_stand(boxes: Float[Tensor, "image region 4"]) -> Int[Tensor, "image region region"]:
    """The row of `RELATION_WORDS` for each pair: inside, on (touching from above), to one side, or merely near."""
    one, other = boxes[:, :, None], boxes[:, None]
    overlap = (torch.minimum(one[..., 2:], other[..., 2:]) - torch.maximum(one[..., :2], other[..., :2])).clamp(min=0)
    shared = overlap.prod(dim=-1)
    size = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)
    within = (shared >= MIN_COVERED * size[:, :, None]) & (size[:, :, None] < size[:, None]) & (shared > 0)
    right, down = ((one[..., :2] + one[..., 2:] - other[..., :2] - other[..., 2:]) / 2).unbind(dim=-1)
    touches, sideways = shared > 0, right.abs() > down.abs()
    beside = torch.where(right < 0, LEFT, RIGHT)
    over = torch.where(down < 0, ABOVE, BELOW)
    kinds = torch.where(sideways, beside, over)
    kinds = kinds.masked_fill(touches, NEAR)
    kinds = kinds.masked_fill(touches & ~sideways & (down < 0), ON)
    return kinds.masked_fill(within, IN)
