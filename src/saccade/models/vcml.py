"""VCML: Visual Concept-Metaconcept Learning (Han, Mao, Gan, Tenenbaum, Wu; NeurIPS 2019).

Concepts and objects are half-spaces of one space under a normal distribution, so that "this is red" and "red is the
same kind of thing as green" are both statements about volumes, and what is learned of one helps the other.

    V(x) = {z : (z − x)·x > 0},   z ~ N(0, I)
    Pr(x) = ½ [1 − erf(‖x‖ / √2)] = Φ(−‖x‖)
    Pr(x, y) = ∫_{‖x‖}^∞ φ(u) Φ((c u − ‖y‖) / √(1 − c²)) du,   c = cos(x, y)
    object o has concept k:   logit Pr(k | o)
    g₁(a, b) = logit Pr(a | b),   g₂(a, b) = ln Pr(a, b) / (Pr(a) Pr(b))
    MetaVerify(a, b, m) = f_m(g₁(a, b), g₁(b, a), g₂(a, b)),   f_m a small network for each metaconcept m

Programs of visual questions are executed as in NS-CL (`saccade.nn.programs`); exist = scale · (max + offset).

The joint volume is exact (`saccade.nn.halfspaces`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.batch import RegionBatch, padded_ids
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.concepts import (
    METACONCEPTS,
    NO_VALUE,
    ConceptConfig,
    ConceptLearner,
    ConceptScene,
    PairLinear,
)
from saccade.models.base.model import register
from saccade.nn.halfspaces import Volumes, lengths_and_gap, logit_of_ln, together, unit_and_length, volumes


@dataclass(frozen=True)
class VcmlConfig(ConceptConfig):
    """The paper's settings."""

    region_dim: int = 512
    hidden: int = 100  # units between a region and its vector; 0: a linear map
    dim: int = 50  # of half-spaces
    metaconcept_hidden: int = 10  # units of f_m; 0: a linear map
    metaconcept_net: Literal["separate", "shared"] = "separate"  # shared: the release's one network with five outputs
    third_input: Literal["ratio", "logit"] = "ratio"  # g₂; logit: the release's ln p/(1 − p) with g₂ as ln p
    input_order: Literal["paper", "release"] = "paper"  # logit Pr(a|b) first; release: logit Pr(b|a) first
    volume: Literal["exact", "grid"] = "exact"  # grid: the release's rectangle rule
    grid_points: int = 100000
    grid_end: float = 400.0
    metaconcept_penalty: float = 0.0  # on the squares of the weights of f_m
    object_penalty: float = 0.0  # on the squared lengths of a picture's objects, added up

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "hidden metaconcept_hidden metaconcept_penalty object_penalty", "zero or more")
        check_ranges(self, "grid_end", "more than zero")
        if self.grid_points < 2:
            raise SaccadeError(f"grid_points must be at least 2, not {self.grid_points}")


def two_layers(inputs: int, hidden: int, outputs: int) -> nn.Module:
    if not hidden:
        return nn.Linear(inputs, outputs)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.LeakyReLU(), nn.Linear(hidden, outputs))


@register(
    "vcml",
    task="concepts",
    title="Visual Concept-Metaconcept Learning",
    venue="Han et al., NeurIPS 2019",
)
class Vcml(ConceptLearner):
    Config = VcmlConfig
    config: VcmlConfig
    scene_logit = 100.0

    def __init__(self, config: VcmlConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.object_net = two_layers(config.region_dim, config.hidden, config.dim)
        self.concept_vectors = nn.Embedding(len(config.concepts), config.dim)
        self.exist_offset, self.exist_scale = nn.Parameter(torch.tensor(0.0)), nn.Parameter(torch.tensor(1.0))
        if config.metaconcept_net == "shared":
            self.metaconcept_net: nn.Module = two_layers(3, config.metaconcept_hidden, len(METACONCEPTS))
        else:
            nets = {kind: two_layers(3, config.metaconcept_hidden, 1) for kind in METACONCEPTS}
            self.metaconcept_net = nn.ModuleDict(nets)
        if config.relations:  # half-spaces too, of pairs
            width = config.hidden or config.dim
            self.pair_layer = PairLinear(config.region_dim, width)
            self.pair_net = nn.Sequential(nn.LeakyReLU(), two_layers(width, width, config.dim))
            self.relation_vectors = nn.Embedding(len(config.relations), config.dim)
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.kaiming_normal_(weight)
            elif weight.dim() == 1:
                nn.init.normal_(weight, 0, 1e-4)
        members = [row.nonzero()[:, 0].tolist() for row in self.members]
        values, mask = padded_ids(members)
        self.values: Int[Tensor, "attribute value"]  # the concepts of each attribute; padding is the number after all
        self.register_buffer("values", values.masked_fill(~mask, len(config.concepts)), persistent=False)

    def volumes(self, a: Float[Tensor, "*pair"], b: Float[Tensor, "*pair"], gap: Float[Tensor, "*pair"]) -> Volumes:
        return volumes(a, b, gap, self.config.volume, (self.config.grid_points, self.config.grid_end))

    def encode_scene(self, regions: RegionBatch) -> VcmlScene:
        return VcmlScene(self, self.object_net(regions.features), regions)

    def metaconcept_inputs(self, first: Int[Tensor, "*pair"], second: Int[Tensor, "*pair"]) -> Float[Tensor, "*pair 3"]:
        """g₁(a, b), g₁(b, a), g₂(a, b)."""
        found = self.volumes(*lengths_and_gap(self.concept_vectors(first), self.concept_vectors(second)))
        ratio = found.ratio if self.config.third_input == "ratio" else logit_of_ln(found.ratio)
        order = (found.x_given_y, found.y_given_x)
        return torch.stack([*(order if self.config.input_order == "paper" else order[::-1]), ratio], dim=-1)

    def metaconcepts(
        self, first: Int[Tensor, "*pair"], second: Int[Tensor, "*pair"]
    ) -> Float[Tensor, "*pair metaconcept"]:
        inputs = self.metaconcept_inputs(first, second).to(self.concept_vectors.weight.dtype)
        if isinstance(self.metaconcept_net, nn.ModuleDict):
            return torch.cat([net(inputs) for net in self.metaconcept_net.values()], dim=-1)
        logits: Tensor = self.metaconcept_net(inputs)
        return logits

    def probabilities(self) -> Float[Tensor, "concept given"]:
        vectors = self.concept_vectors.weight
        return self.volumes(*lengths_and_gap(vectors[:, None], vectors)).x_given_y.sigmoid().to(vectors.dtype)

    def own_losses(self, scene: ConceptScene | None = None) -> dict[str, Float[Tensor, ""]]:
        """The penalties whose weight is above zero."""
        losses: dict[str, Tensor] = {}
        if self.config.metaconcept_penalty:
            squares = torch.stack([weight.square().sum() for weight in self.metaconcept_net.parameters()]).sum()
            losses["metaconcept_penalty"] = self.config.metaconcept_penalty * squares
        if self.config.object_penalty and scene is not None:
            lengths = scene.objects.square().sum(dim=2).masked_fill(~scene.mask, 0)
            losses["object_penalty"] = self.config.object_penalty * lengths.sum(dim=1).mean()
        return losses


class VcmlScene(ConceptScene):
    def __init__(self, model: Vcml, objects: Float[Tensor, "image region dim"], regions: RegionBatch) -> None:
        super().__init__(model, objects, regions)
        self.model = model

    def logits(
        self, x: Float[Tensor, "row item dim"], y: Float[Tensor, "row value dim"]
    ) -> Float[Tensor, "row item value"]:
        """logit Pr(y | x) of all items with all values of their row."""
        (x, a), (y, b) = unit_and_length(x), unit_and_length(y)
        gap = (1 - torch.bmm(x, y.mT)).clamp(min=0)
        return self.model.volumes(*together(a[:, :, None], b[:, None], gap)).y_given_x.to(self.objects.dtype)

    def concepts(self, image: Int[Tensor, " row"], concept: Int[Tensor, " row"]) -> Float[Tensor, "row region"]:
        return self.logits(self.objects.index_select(0, image), self.model.concept_vectors(concept)[:, None])[:, :, 0]

    def relations(
        self, image: Int[Tensor, " row"], relation: Int[Tensor, " row"]
    ) -> Float[Tensor, "row region region"]:
        given = (self.regions.features, self.regions.boxes)
        pairs = self.model.pair_net(self.model.pair_layer(*(each.index_select(0, image) for each in given)))
        logits = self.logits(pairs.flatten(1, 2), self.model.relation_vectors(relation)[:, None])
        return logits.view(pairs.shape[:3])

    def value_logits(
        self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]
    ) -> tuple[Float[Tensor, "row region value"], Int[Tensor, "row value"]]:
        """Of the concepts that are values of the attribute, and which these are."""
        values = self.model.values[attribute]
        last = len(self.model.config.concepts)
        vectors = self.model.concept_vectors(values.clamp(max=last - 1))
        logits = self.logits(self.objects.index_select(0, image), vectors)
        return logits.masked_fill((values == last)[:, None], NO_VALUE), values

    def same(self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]) -> Float[Tensor, "row region region"]:
        """The logit of Σ_k p_ik p_jk, with p_i = softmax of the logits of the attribute's values."""
        shares = self.value_logits(image, attribute)[0].softmax(dim=2)
        return torch.bmm(shares, shares.mT).logit(eps=1e-6)

    def query(self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]) -> Float[Tensor, "row region concept"]:
        logits, values = self.value_logits(image, attribute)
        count = len(self.model.config.concepts)
        table = logits.new_full((*logits.shape[:2], count + 1), NO_VALUE)
        return table.scatter(2, values[:, None].expand_as(logits), logits)[:, :, :count]

    def exist(self, largest: Float[Tensor, " row"]) -> Float[Tensor, " row"]:
        return (largest + self.model.exist_offset) * self.model.exist_scale
