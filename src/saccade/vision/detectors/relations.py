"""The heads of a detector that know the class: what a region is like, and which predicate holds between two.

    p(predicate of i and j) = softmax(W relu(S [vᵢ; e(classᵢ)] + O [vⱼ; e(classⱼ)] + G gᵢⱼ))

v are the regions' vectors, e embeddings of their classes (the true ones in training, the best guesses after), g how
their boxes lie to each other. "None" is the first predicate: of most pairs nobody says anything.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.boxes import UNKNOWN, iou, pick
from saccade.vision.detectors.rpn import encode, mean_surprise, mean_where

PAIR_GEOMETRY_DIM, MAX_PAIR_CHANGE = 9, 4.0
NONE_WEIGHT = 0.1  # of a thing without attributes: nobody has said that it has none
UNRELATED_WEIGHT = 0.5  # of the pairs of things of which nothing is said, beside those of which something is


class AttributeHead(nn.Module):
    """Attributes depend on the class: the vector and an embedding of the class, then one hidden layer."""

    def __init__(self, dim: int, class_dim: int, hidden: int, classes: int, attributes: int) -> None:
        super().__init__()
        self.class_vectors = nn.Embedding(1 + classes, class_dim)
        self.hidden = nn.Linear(dim + class_dim, hidden)
        self.out = nn.Linear(hidden, 1 + attributes)
        nn.init.normal_(self.class_vectors.weight, std=0.1)

    def forward(
        self, vectors: Float[Tensor, "*region dim"], labels: Int[Tensor, "*region"]
    ) -> Float[Tensor, "*region attribute"]:
        known = self.class_vectors(labels)
        logits: Tensor = self.out(functional.relu(self.hidden(torch.cat([vectors, known], dim=-1))))
        return logits


def attribute_loss(
    logits: Float[Tensor, "image region attribute"],
    wanted: Int[Tensor, "image region some"],
    positive: Bool[Tensor, "image region"],
) -> Float[Tensor, ""]:
    """Softmax cross entropy against the mean over a thing's attributes: what drawing one of them gives on average.

    A thing without any is taught "none", lightly: most attributes are merely not mentioned.
    """
    has = (wanted != UNKNOWN).any(dim=-1)
    each, _ = mean_surprise(logits, torch.where(has[..., None], wanted, 0))
    weight = torch.where(has, 1.0, NONE_WEIGHT) * positive
    return (each * weight).sum() / weight.sum().clamp(min=1)


class RelationHead(nn.Module):
    """Which predicate holds between two regions: by their vectors, their classes, and how their boxes lie.

    What each region brings is computed once, and added for every pair.
    """

    def __init__(self, dim: int, class_dim: int, hidden: int, classes: int, predicates: tuple[str, ...]) -> None:
        super().__init__()
        self.class_vectors = nn.Embedding(1 + classes, class_dim)
        inputs = dim + class_dim
        self.subject, self.object = nn.Linear(inputs, hidden), nn.Linear(inputs, hidden, bias=False)
        self.geometry = nn.Linear(PAIR_GEOMETRY_DIM, hidden, bias=False)
        self.out = nn.Linear(hidden, 1 + len(predicates))
        nn.init.normal_(self.class_vectors.weight, std=0.1)
        self.mirrored: Tensor  # the predicate of the same pair in a mirrored picture: left is right
        self.register_buffer("mirrored", mirrored_predicates(predicates), persistent=False)

    def forward(
        self,
        vectors: Float[Tensor, "image region dim"],
        labels: Int[Tensor, "image region"],
        boxes: Float[Tensor, "image region 4"],
    ) -> Float[Tensor, "image subject object predicate"]:
        known = torch.cat([vectors, self.class_vectors(labels)], dim=-1)
        hidden = self.subject(known)[:, :, None] + self.object(known)[:, None] + self.geometry(pair_geometry(boxes))
        logits: Tensor = self.out(functional.relu(hidden))
        return logits


def mirrored_predicates(predicates: tuple[str, ...]) -> Int[Tensor, " predicate"]:
    """The number of each predicate ("none" first) when left and right change places."""
    sides = {"left": "right", "right": "left"}
    number = {name: i for i, name in enumerate(predicates, 1)}
    swapped = [" ".join(sides.get(word, word) for word in name.split()) for name in predicates]
    return torch.tensor([0, *(number.get(other, UNKNOWN) for other in swapped)])


def pair_geometry(boxes: Float[Tensor, "image region 4"]) -> Float[Tensor, "image subject object 9"]:
    """The change from each box to each other as the RPN writes it, the change back, and their overlap."""
    boxes = boxes.float()
    pairs = (*boxes.shape[:2], boxes.shape[1], 4)
    subject, other = boxes[:, :, None].expand(pairs), boxes[:, None].expand(pairs)
    changes = torch.cat([encode(other, subject), encode(subject, other)], dim=-1)
    return torch.cat([changes.clamp(-MAX_PAIR_CHANGE, MAX_PAIR_CHANGE), iou(boxes, boxes)[..., None]], dim=-1)


def relation_loss(
    logits: Float[Tensor, "image subject object predicate"],
    relations: Int[Tensor, "image relation 3"],
    real: Bool[Tensor, "image thing"],
) -> Float[Tensor, ""]:
    """Cross entropy of the stated predicates; pairs of which nothing is said are taught "none", at half the weight."""
    surprise = -logits.log_softmax(dim=-1)
    stated = stated_predicates(relations, real, logits.shape[-1])
    among = real[:, :, None] & real[:, None, :] & ~torch.eye(real.shape[1], dtype=torch.bool, device=real.device)
    silent = among & ~stated.any(dim=-1)
    return mean_where(surprise, stated) + UNRELATED_WEIGHT * mean_where(surprise[..., 0], silent)


def stated_predicates(
    relations: Int[Tensor, "image relation 3"], real: Bool[Tensor, "image thing"], predicates: int
) -> Bool[Tensor, "image subject object predicate"]:
    """Relations as a table; those with a thing that is not there, or without a known predicate, are left out."""
    images, things = real.shape
    subject, other, predicate = relations.clamp(min=0).unbind(dim=-1)
    known = (relations[..., 2] > 0) & pick(real, subject) & pick(real, other)
    table = torch.zeros(images, things * things * predicates, dtype=torch.int32, device=real.device)
    place = (subject * things + other) * predicates + predicate
    return table.scatter_reduce(1, place, known.int(), "amax").view(images, things, things, predicates) > 0
