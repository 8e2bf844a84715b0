"""Analogy: Detecting Unseen Visual Relations Using Analogies (Peyre, Laptev, Schmid, Sivic; ICCV 2019).

Four branches compare a pair of boxes i with words: the subject, the object, the predicate r, and the visual phrase,
all three words at once. A triplet t′ that was never seen gets the phrase vector of seen ones like it, moved by what
differs.

    P(b | i) = σ(w^b · v^b_i),  b in {s, r, o, sro}          S(t, i) = Π_b P(b | i)                            (1–3)
    L_b = mean over pairs and vocabulary of the binary cross-entropy of w^b · v^b;  L = L_s + L_r + L_o + L_sro   (4)
    w_t′ = w_t + Γ(t, t′),   Γ = MLP [w^s_t′ − w^s_t ; w^r_t′ − w^r_t ; w^o_t′ − w^o_t]                          (5–6)
    G(t, t′) = Σ_b α_b w^b_t · w^b_t′                        w̄_t′ = Σ_{t in N_t′} softmax(G) (w_t + Γ(t, t′))   (7–8)

Γ is learned last: the branches s, r and o stay as they are, and triplets of the batch are written as moved ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import register
from saccade.models.base.relater import (
    PairLabels,
    RegionPairs,
    Relater,
    RelaterConfig,
    SourceTriplet,
    Transfer,
    TripletCode,
)
from saccade.nn.attention import masked_softmax
from saccade.nn.encode import at_least_float32, dropout_layer, unit

BRANCHES = ("s", "r", "o", "sro")


@dataclass(frozen=True)
class AnalogyConfig(RelaterConfig):
    """The released settings for HICO-DET, on which the published figures rest."""

    region_dim: int = 1024
    word_dim: int = 300
    hidden_dim: int = 1024
    dim: int = 1024
    layers: Literal[1, 2] = 2  # of the visual branches
    spatial_hidden_dim: int = 128
    spatial_dim: int = 400
    appearance_dim: int = 300
    dropout: float = 0.5
    pixel: float = 0.0  # added to widths and heights: 1 where boxes are in pixels, as in the released code
    normalise_regions: bool = True  # to unit length, as they come in
    normalise_words: bool = True
    normalise_visual: bool = False  # v
    normalise_language: bool = True  # w
    scale: float = 1.0  # of scores before the sigmoid
    scale_transferred: bool = True  # also of moved phrases after training; not so in the released code
    mixture: Literal["s-r-o", "s-sro-o", "s-r-o-sro", "sro"] = "s-sro-o"  # the branches in S
    gamma: Literal["hybrid", "vp", "unigram"] = "hybrid"  # w^s, w^r, w^o of eq. 6: of both triplets from the phrase's
    # branch (vp, as printed), from their own branches (unigram), or the target's from its own (hybrid)
    transform: Literal["deep", "additive", "conditioned"] = "deep"
    transform_dim: int = 512
    deform: bool = True  # without: w_t as it is
    similarity: Literal["joint", "words"] = "joint"  # G compares embedded words, or the word vectors themselves
    alpha_r: float = 0.8
    alpha_s: float = 0.0
    alpha_sro: float = 0.0  # what is left of 1 is α_o
    min_occurrences: float = 10  # a source was seen more often
    shared_words: int = 0  # a source shares so many words with the target, but not all; 0: any source
    top: int | None = 5  # sources, the most similar
    least_similarity: float | None = None  # of a source
    weights: Literal["softmax", "similarity"] = "softmax"  # of sources: softmax(G), or G
    use_target: bool = False  # the target's own phrase vector is one more source, with G = 1
    normalise_sources: bool = True  # to unit length before they are added up, and the sum
    detach_language: bool = True  # the transfer's loss does not reach the embeddings of words
    transfer_weight: float = 1.0  # λ

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.alpha_r, self.alpha_s, self.alpha_sro, 1 - self.alpha_r - self.alpha_s - self.alpha_sro) < -1e-9:
            raise SaccadeError("model.alpha_r, alpha_s and alpha_sro must be zero or more, and at most 1 together")


class Projection(nn.Module):
    """Linear–ReLU–dropout–linear, or one linear layer."""

    def __init__(self, in_dim: int, hidden: int, dim: int, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        self.hidden = nn.Linear(in_dim, hidden) if layers == 2 else None
        self.dropout = dropout_layer(dropout)
        self.out = nn.Linear(hidden if layers == 2 else in_dim, dim)

    def forward(self, inputs: Float[Tensor, "*item in"]) -> Float[Tensor, "*item dim"]:
        if self.hidden is not None:
            inputs = self.dropout(self.hidden(inputs).relu())
        result: Tensor = self.out(inputs)
        return result


class PairBranch(nn.Module):
    """Where two boxes are to each other, and what is in them: the visual part of the branches r and sro."""

    def __init__(self, config: AnalogyConfig) -> None:
        super().__init__()
        c = config
        self.pixel = c.pixel
        self.spatial_hidden = nn.Linear(8, c.spatial_hidden_dim)
        self.spatial = nn.Linear(c.spatial_hidden_dim, c.spatial_dim)
        self.appearance = nn.Linear(c.region_dim, c.appearance_dim)
        both = c.spatial_dim + 2 * c.appearance_dim
        self.projection = Projection(both, c.hidden_dim, c.dim, c.layers, c.dropout)

    def forward(self, pairs: RegionPairs) -> Float[Tensor, "*pair dim"]:
        places = union_coordinates(pairs.subject_boxes, pairs.object_boxes, self.pixel).to(pairs.subjects.dtype)
        spatial = unit(self.spatial(self.spatial_hidden(places).relu()).relu())
        seen = [unit(self.appearance(one)) for one in (pairs.subjects, pairs.objects)]
        result: Tensor = self.projection(torch.cat([spatial, unit(torch.cat(seen, dim=-1))], dim=-1))
        return result


def union_coordinates(
    subjects: Float[Tensor, "*pair 4"], objects: Float[Tensor, "*pair 4"], pixel: float = 0.0
) -> Float[Tensor, "*pair 8"]:
    """x, y, width and height of both boxes from the corner of the box around them, over the square root of its area."""
    corner = torch.minimum(subjects[..., :2], objects[..., :2])
    sides = torch.maximum(subjects[..., 2:], objects[..., 2:]) - corner + pixel
    size = sides.prod(dim=-1, keepdim=True).clamp(min=1e-12).sqrt()
    placed = [
        torch.cat([box[..., :2] - corner, box[..., 2:] - box[..., :2] + pixel], -1) for box in (subjects, objects)
    ]
    return torch.cat(placed, dim=-1) / size


class Gamma(nn.Module):
    """Γ: what to add to a source's vector, from the differences of the three words and, if conditioned, itself."""

    def __init__(self, config: AnalogyConfig) -> None:
        super().__init__()
        dim, hidden = config.dim, config.transform_dim
        deep, self.conditioned = config.transform != "additive", config.transform == "conditioned"
        self.differences = None if config.transform == "deep" else nn.Linear(3 * dim, dim, bias=False)
        self.hidden = nn.Linear((2 if self.conditioned else 3) * dim, hidden, bias=False) if deep else None
        self.out = nn.Linear(hidden, dim, bias=False) if deep else None

    def forward(
        self, differences: Float[Tensor, "*source words"], source: Float[Tensor, "*source dim"]
    ) -> Float[Tensor, "*source dim"]:
        moved = differences if self.differences is None else self.differences(differences)
        if self.hidden is None or self.out is None:
            return moved
        inputs = torch.cat([source, moved], dim=-1) if self.conditioned else moved
        result: Tensor = self.out(self.hidden(inputs).relu())
        return result


@register(
    "analogy",
    task="relations",
    title="Detecting Unseen Visual Relations Using Analogies",
    venue="Peyre et al., ICCV 2019",
)
class Analogy(Relater):
    Config = AnalogyConfig
    config: AnalogyConfig

    def __init__(self, config: AnalogyConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        c = config
        boxes = {b: Projection(c.region_dim, c.hidden_dim, c.dim, c.layers, c.dropout) for b in ("s", "o")}
        self.visual = nn.ModuleDict({**boxes, "r": PairBranch(c), "sro": PairBranch(c)})
        wide = {"s": 1, "r": 1, "o": 1, "sro": 3}
        self.language = nn.ModuleDict({b: Projection(n * c.word_dim, c.word_dim, c.dim) for b, n in wide.items()})
        self.words = nn.Embedding(len(vocabulary), c.word_dim)
        self.words.weight.requires_grad_(False)
        self.gamma = Gamma(c)
        names = [name.split() or [name] for name in (*c.classes, *c.predicates)]
        share = torch.zeros(len(names), len(vocabulary))
        for row, own in zip(share, names, strict=True):
            for word in own:
                row[vocabulary.id_of(word)] += 1 / len(own)
        self.share: Tensor  # of each word in a name
        self.register_buffer("share", share, persistent=False)
        usable = [t for t, n in zip(c.triplets, c.occurrences, strict=True) if n > c.min_occurrences and t[1] > 0]
        self.candidates: Tensor  # N before it is chosen from
        self.register_buffer("candidates", torch.tensor(usable, dtype=torch.long).view(-1, 3), persistent=False)
        self.triplets: Tensor
        self.register_buffer("triplets", torch.tensor(c.triplets, dtype=torch.long).view(-1, 3), persistent=False)

    # Visual and language vectors

    def visual_vectors(self, pairs: RegionPairs, branch: str) -> Float[Tensor, "*pair dim"]:
        """v^b"""
        if self.config.normalise_regions:
            pairs = RegionPairs(unit(pairs.subjects), unit(pairs.objects), pairs.subject_boxes, pairs.object_boxes)
        given = {"s": pairs.subjects, "o": pairs.objects}.get(branch, pairs)
        vectors = at_least_float32(self.visual[branch](given))
        return unit(vectors) if self.config.normalise_visual else vectors

    @property
    def names(self) -> Float[Tensor, "name word_dim"]:
        """The word vectors of all classes, then of all predicates; of a name of several words, their mean."""
        vectors = self.share @ self.words.weight
        return unit(vectors) if self.config.normalise_words else vectors

    def _language(self, branch: str, words: Float[Tensor, "*item words"]) -> Float[Tensor, "*item dim"]:
        vectors = at_least_float32(self.language[branch](words))
        return unit(vectors) if self.config.normalise_language else vectors

    def unigrams(self, branch: str) -> Float[Tensor, "entry dim"]:
        """w^s, w^o of all classes, or w^r of all predicates"""
        return self._language(branch, self._entries(branch))

    def _entries(self, branch: str) -> Float[Tensor, "entry word_dim"]:
        classes = len(self.config.classes)
        return self.names[classes:] if branch == "r" else self.names[:classes]

    def _rows(self, triplets: Int[Tensor, "*target 3"]) -> Int[Tensor, "*target 3"]:
        """Places among all names, where predicates come after the classes."""
        return triplets + triplets.new_tensor([0, len(self.config.classes), 0])

    def phrases(self, rows: Int[Tensor, "*target 3"]) -> Float[Tensor, "*target dim"]:
        """w^sro"""
        return self._language("sro", self.names[rows].flatten(-2))

    # Scores and losses

    def logits(self, pairs: RegionPairs, branch: str) -> Float[Tensor, "pair entry"]:
        """Of the branch's whole vocabulary; that of sro are the training triplets."""
        words = self.phrases(self._rows(self.triplets)) if branch == "sro" else self.unigrams(branch)
        return self.config.scale * self.visual_vectors(pairs, branch) @ words.mT

    def encode_triplets(self, triplets: Int[Tensor, "target 3"], transfer: Transfer = "unseen") -> TripletCode:
        words = self.phrases(self._rows(triplets))
        if transfer == "none":
            return TripletCode(triplets, words, torch.full_like(words[:, 0], self.config.scale))
        moved = torch.ones_like(triplets[:, 0], dtype=torch.bool) if transfer == "all" else ~self.seen(triplets)
        scale = torch.where(moved, self.config.scale if self.config.scale_transferred else 1.0, self.config.scale)
        return TripletCode(triplets, torch.where(moved[:, None], self.transferred(triplets), words), scale)

    def score(self, pairs: RegionPairs, triplets: TripletCode) -> Float[Tensor, "pair target"]:
        """S(t, i)"""
        found: Tensor | None = None
        for branch in self.config.mixture.split("-"):
            if branch == "sro":
                own = self.phrase_probabilities(pairs, triplets)
            else:
                own = self.logits(pairs, branch).sigmoid()[..., triplets.triplets[:, BRANCHES.index(branch)]]
            found = own if found is None else found * own
        assert found is not None
        return found

    def phrase_probabilities(self, pairs: RegionPairs, triplets: TripletCode) -> Float[Tensor, "pair target"]:
        return (triplets.scale * (self.visual_vectors(pairs, "sro") @ triplets.phrases.mT)).sigmoid()

    def losses(
        self, pairs: RegionPairs, labels: PairLabels, queries: Int[Tensor, " query"] | None = None
    ) -> dict[str, Float[Tensor, ""]]:
        phrase = F.binary_cross_entropy_with_logits(self.logits(pairs, "sro"), labels.triplets)
        if queries is None:
            wanted = {"s": labels.subjects, "r": labels.predicates, "o": labels.objects}
            rest = {b: F.binary_cross_entropy_with_logits(self.logits(pairs, b), y) for b, y in wanted.items()}
            return {**rest, "sro": phrase}
        transfer = self.transfer_loss(pairs, self.triplets[queries], labels.triplets[:, queries])
        return {"sro": phrase, "transfer": self.config.transfer_weight * transfer}

    def transfer_loss(
        self, pairs: RegionPairs, triplets: Int[Tensor, "query 3"], labels: Float[Tensor, "pair query"]
    ) -> Float[Tensor, ""]:
        """L_b of the phrase branch, its words written as moved ones; in training by one random source each."""
        moved = self.transferred(triplets, one=self.training)
        logits = self.config.scale * self.visual_vectors(pairs, "sro") @ moved.mT
        return F.binary_cross_entropy_with_logits(logits, labels)

    # Transfer

    @torch.no_grad()
    def similarities(self, targets: Int[Tensor, "target 3"]) -> Float[Tensor, "target candidate"]:
        """G of every target and every candidate, α_s G_s + α_r G_r + α_o G_o + α_sro G_sro."""
        c = self.config
        alpha = {"s": c.alpha_s, "r": c.alpha_r, "o": 1 - c.alpha_r - c.alpha_s - c.alpha_sro}
        found = c.alpha_sro * (self.phrases(self._rows(targets)) @ self.phrases(self._rows(self.candidates)).mT)
        for place, (branch, share) in enumerate(alpha.items()):
            table = self.similarity_table(branch)
            found = found + share * table[targets[:, place, None], self.candidates[None, :, place]]
        return found

    def similarity_table(self, branch: str) -> Float[Tensor, "entry entry"]:
        vectors = self.unigrams(branch) if self.config.similarity == "joint" else unit(self._entries(branch))
        return vectors @ vectors.mT

    @torch.no_grad()
    def choose(
        self, targets: Int[Tensor, "target 3"]
    ) -> tuple[Int[Tensor, "target source"], Float[Tensor, "target source"], Bool[Tensor, "target source"]]:
        """N_t′: places among the candidates, the most similar first (of equals, the last), their G, and which count."""
        c = self.config
        similarity = self.similarities(targets)
        usable = torch.ones_like(similarity, dtype=torch.bool)
        if c.shared_words:
            same = (targets[:, None] == self.candidates).sum(dim=2)
            usable &= (same >= c.shared_words) & (same < 3)
        if c.least_similarity is not None:
            usable &= similarity >= c.least_similarity
        ranked = similarity.masked_fill(~usable, -torch.inf).flip(1)
        place = ranked.argsort(dim=1, descending=True, stable=True)[:, : c.top]
        place = similarity.shape[1] - 1 - place
        return place, similarity.gather(1, place), usable.gather(1, place)

    def transferred(self, targets: Int[Tensor, "target 3"], one: bool = False) -> Float[Tensor, "target dim"]:
        """w̄ of targets; the phrase's own vector where there is no source. `one`: by one source, drawn at random."""
        own = self.phrases(self._rows(targets))
        own = own.detach() if self.config.detach_language else own
        if not len(self.candidates):
            return own
        place, similarity, usable = self.choose(targets)
        if one:
            drawn = torch.rand_like(similarity).masked_fill(~usable, -1.0).argmax(dim=1, keepdim=True)
            place, similarity, usable = (given.gather(1, drawn) for given in (place, similarity, usable))
        moved = self.moved(targets, self.candidates[place])
        if self.config.normalise_sources:
            moved = unit(moved)
        if self.config.use_target:
            moved = torch.cat([moved, own[:, None]], dim=1)
        mean = torch.einsum("ts,tsd->td", self.source_weights(similarity, usable), moved)
        mean = unit(mean) if self.config.normalise_sources else mean
        return torch.where(usable.any(dim=1, keepdim=True), mean, own)

    def source_weights(
        self, similarity: Float[Tensor, "target source"], usable: Bool[Tensor, "target source"]
    ) -> Float[Tensor, "target weight"]:
        """With `use_target` the last is the target's own."""
        if self.config.use_target:
            similarity, usable = (F.pad(given, (0, 1), value=1) for given in (similarity, usable))
        return masked_softmax(similarity, usable) if self.config.weights == "softmax" else similarity * usable

    def moved(self, targets: Int[Tensor, "target 3"], sources: Int[Tensor, "target source 3"]) -> Tensor:
        """w_t + Γ(t, t′): [target source dim]"""
        vectors = self.phrases(self._rows(sources))
        vectors = vectors.detach() if self.config.detach_language else vectors
        return vectors + self.deformation(targets, sources) if self.config.deform else vectors

    def deformation(self, targets: Int[Tensor, "target 3"], sources: Int[Tensor, "target source 3"]) -> Tensor:
        """Γ: [target source dim]"""
        c = self.config
        of_target = self.word_vectors(targets, "vp" if c.gamma == "vp" else "unigram")
        of_source = self.word_vectors(sources, "unigram" if c.gamma == "unigram" else "vp")
        source = self.phrases(self._rows(sources))
        if c.detach_language:
            of_target, of_source, source = of_target.detach(), of_source.detach(), source.detach()
        result: Tensor = self.gamma((of_target[:, None] - of_source).flatten(-2), source)
        return result

    def word_vectors(self, triplets: Int[Tensor, "*target 3"], form: str) -> Float[Tensor, "*target 3 dim"]:
        """w^s, w^r, w^o, each from its own branch, or from the phrase's with the first name for the other two words."""
        if form == "unigram":
            own = [self.unigrams(branch).detach()[triplets[..., n]] for n, branch in enumerate(("s", "r", "o"))]
            return torch.stack(own, dim=-2)
        alone = torch.eye(3, dtype=torch.long, device=triplets.device)
        return self.phrases(self._rows(triplets)[..., None, :] * alone)

    @torch.no_grad()
    def sources(self, triplet: tuple[int, int, int]) -> list[SourceTriplet]:
        target = torch.tensor([triplet], device=self.candidates.device)
        place, similarity, usable = self.choose(target)
        weights = self.source_weights(similarity, usable)
        rows = zip(place[0].tolist(), similarity[0].tolist(), usable[0].tolist(), weights[0].tolist(), strict=False)
        return [
            SourceTriplet(self.named(self.candidates[n].tolist()), min(g, 1.0), w) for n, g, there, w in rows if there
        ]
