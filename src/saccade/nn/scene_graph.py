"""Graph convolutions over scene graphs: things hear from their relations, and relations and attributes from things."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from saccade.batch import Batch, SceneGraphBatch
from saccade.nn.encode import dropout_layer


@dataclass(frozen=True)
class GraphNodes(Batch):
    """The nodes of a graph: its things, its relations, and one node for the attributes of each thing that has any.

    Each stands at two places among the things: a relation at its subject and object, another at one thing twice.
    """

    vectors: Float[Tensor, "graph node dim"]
    mask: Bool[Tensor, "graph node"]
    places: Int[Tensor, "graph node 2"]


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


def bent(in_dim: int, dim: int, dropout: float) -> nn.Sequential:
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
        self.own = None if keep else bent(in_dim, dim, dropout)  # g
        self.as_subject = bent(3 * in_dim, dim, dropout)  # g_s
        self.as_object = bent(3 * in_dim, dim, dropout)  # g_o
        self.relation = bent(3 * in_dim, dim, dropout)  # g_r
        self.attribute = bent(2 * in_dim, dim, dropout)  # g_a

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
        heard = subject.mT @ self.as_subject(triples) + object_.mT @ self.as_object(triples)
        kept = things if self.own is None else self.own(things)
        objects = (kept + heard) / degree[:, :, None]
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
