"""NS-CL: The Neuro-Symbolic Concept Learner (Mao, Gan, Kohli, Tenenbaum, Wu; ICLR 2019).

An attribute is a linear map of regions, a concept a direction in the space of the attribute that it belongs to. Words
and vision meet in programs: a question's program is executed on logits of regions (`saccade.nn.programs`), and only its
answer is taught.

    u_a(o) = W_a o + c_a                                                  attribute a of region o
    sim(o, k) = ln Σ_a exp[(cos(u_a(o), v_ka) − 1 + γ) / γτ + ln β_ka]    concept k, with β_k = softmax(b_k)
    same(o, o', a) = (cos(u_a(o), u_a(o')) − 1 + γ') / γ'τ                both share a
    query(o, a)_k = (cos(u_a(o), v_ka) − 1 + γ) / γτ + ln β_ka            k as the value of a

γ = 0.85, γ' = 0.5, τ = 0.25; b_k says which attribute k belongs to, known (±100) or learned. Relations are concepts
of pairs of regions, in the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from saccade.batch import RegionBatch
from saccade.language import Vocabulary
from saccade.models.base.concepts import ConceptConfig, ConceptLearner, ConceptScene, PairLinear
from saccade.models.base.model import register
from saccade.nn.encode import unit

MARGIN, SAME_MARGIN, TEMPERATURE = 0.85, 0.5, 0.25  # γ, γ', τ
KNOWN = 100.0  # ± this is b_k of a concept whose attribute is known


@dataclass(frozen=True)
class NsclConfig(ConceptConfig):
    region_dim: int = 256
    dim: int = 64  # of the attributes' spaces
    pair_dim: int | None = None  # of features of pairs that come from elsewhere; None: two regions and their boxes
    relation_dim: int = 64
    relation_kinds: int = 1  # attributes of pairs
    belonging: Literal["known", "learned"] = "known"  # which attribute a concept belongs to


class Concepts(nn.Module):
    """Attributes as linear maps, concepts as directions in each attribute's space."""

    def __init__(self, operators: Iterable[nn.Module], dim: int, concepts: int) -> None:
        super().__init__()
        self.operators = nn.ModuleList(operators)
        attributes = len(self.operators)
        self.vectors = nn.Parameter(torch.randn(concepts, attributes, dim))
        self.belong = nn.Parameter(torch.randn(concepts, attributes) * 0.1)

    def mapped(self, *inputs: Tensor) -> Float[Tensor, "attribute *item space"]:
        """u_a, of length one."""
        return unit(torch.stack([operator(*inputs) for operator in self.operators]))

    def log_shares(self) -> Float[Tensor, "concept attribute"]:
        """ln β."""
        return self.belong.log_softmax(dim=1)


def similarity(cosine: Tensor, margin: float = MARGIN) -> Tensor:
    return (cosine - 1 + margin) / margin / TEMPERATURE


@register(
    "nscl",
    task="concepts",
    title="The Neuro-Symbolic Concept Learner",
    venue="Mao et al., ICLR 2019",
)
class Nscl(ConceptLearner):
    Config = NsclConfig
    config: NsclConfig

    def __init__(self, config: NsclConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        maps = (nn.Linear(config.region_dim, config.dim) for _ in config.attributes)
        self.regions = Concepts(maps, config.dim, len(config.concepts))
        if config.relations:
            kinds, dim = config.relation_kinds, config.relation_dim
            given = config.pair_dim
            pair_maps = (
                PairLinear(config.region_dim, dim) if given is None else nn.Linear(given, dim) for _ in range(kinds)
            )
            self.pairs = Concepts(pair_maps, dim, len(config.relations))
            self.pairs.belong.requires_grad_(kinds > 1)
        if config.belonging == "known":
            with torch.no_grad():
                self.regions.belong.copy_(torch.where(self.members.T, KNOWN, -KNOWN))
            self.regions.belong.requires_grad_(False)

    def encode_scene(self, regions: RegionBatch) -> NsclScene:
        return NsclScene(self, regions.features, regions)


class NsclScene(ConceptScene):
    def __init__(self, model: Nscl, objects: Float[Tensor, "image region dim"], regions: RegionBatch) -> None:
        super().__init__(model, objects, regions)
        self.model = model
        self.mapped = model.regions.mapped(objects)  # u
        self.pairs: Tensor | None = None  # features of pairs, where they are not made of regions and boxes

    @cached_property
    def cosines(self) -> Float[Tensor, "attribute image region concept"]:
        """cos(u_a(o), v_ka), of all regions with all concepts: one product of matrices for each attribute."""
        vectors = unit(self.model.regions.vectors).permute(1, 2, 0)
        return torch.bmm(self.mapped.flatten(1, 2), vectors).view(*self.mapped.shape[:3], -1)

    def concepts(self, image: Int[Tensor, " row"], concept: Int[Tensor, " row"]) -> Float[Tensor, "row region"]:
        by_concept = self.cosines.permute(1, 3, 0, 2)  # [image concept attribute region]
        rows = by_concept.flatten(0, 1).index_select(0, image * by_concept.shape[1] + concept)
        shares = self.model.regions.log_shares().index_select(0, concept)
        return (similarity(rows) + shares[:, :, None]).logsumexp(dim=1)

    def relations(
        self, image: Int[Tensor, " row"], relation: Int[Tensor, " row"]
    ) -> Float[Tensor, "row region region"]:
        given = (self.objects, self.regions.boxes) if self.pairs is None else (self.pairs,)
        mapped = self.model.pairs.mapped(*(each.index_select(0, image) for each in given))
        vectors = unit(self.model.pairs.vectors).index_select(0, relation)
        shares = self.model.pairs.log_shares().index_select(0, relation)
        cosine = torch.einsum("arijs,ras->rija", mapped, vectors)
        return (similarity(cosine) + shares[:, None, None]).logsumexp(dim=3)

    def same(self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]) -> Float[Tensor, "row region region"]:
        mapped = self.mapped.flatten(0, 1).index_select(0, attribute * self.mapped.shape[1] + image)
        return similarity(torch.bmm(mapped, mapped.mT), SAME_MARGIN)

    def query(self, image: Int[Tensor, " row"], attribute: Int[Tensor, " row"]) -> Float[Tensor, "row region concept"]:
        rows = self.cosines.flatten(0, 1).index_select(0, attribute * self.cosines.shape[1] + image)
        shares = self.model.regions.log_shares().T.index_select(0, attribute)
        return similarity(rows) + shares[:, None]
