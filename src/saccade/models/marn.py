"""MARN: Adversarial Multimodal Representation Learning for Click-Through Rate Prediction (Li, Wang, Tan, Zeng, Ou, Ou,
Zheng; WWW 2020).

What several modalities of an item say alike ("pink" is in the title and in the picture) must not count several times.
So every modality is split in two: what it alone says, weighed by attention, and what all say, taken with a fixed
weight. Discriminators that guess the modality pull the first apart and, through a reversed gradient, push the second
together. For modalities m = 1 … M of an item, with embeddings e^m (ids, picture, title, statistics):

    f^m = P_m e^m + a_m                                      to one width, since I is shared                    (1)
    s^m = S_m f^m + b_m,   c^m = I f^m + b                   specific and invariant part                        (2)
    g^m = tanh(W_mᵀ s^m + b_m),   s = Σ_m g^m ⊙ s^m          attention fusion, a gate for every number          (3)
    c   = 1/M Σ_m c^m,   rep = s + c                                                                            (4)

Two discriminators read c^m, each a softmax over the M modalities. D₀ says how recognisable a modality still is; what it
hardly recognises is common already, and counts more for D₁, which I tries to deceive. D₁ also reads s^m, to be told:

    L_D0 = −E log D₀^m(c^m)                                  moves D₀ alone                                     (5)
    w^m  = 1 − D₀^m(c^m),   L_D1 = −E w^m log D₁^m(c^m)      w a constant; the gradient of c is reversed        (6)
    L_Ds = −E log D₁^m(s^m)                                                                                     (7)

A user is read from behaviours with their properties p_t (kind, age) by a GRU whose update gate is scaled by how much a
behaviour has to do with the candidate, x:

    a_t = softmax_t MLP[rep_t, rep_x, rep_t ⊙ rep_x],   y_t = [rep_t, p_t]                                      (8)
    u, r = σ(W y_t + U h + b),   h̃ = tanh(W_h y_t + r ⊙ U_h h + b_h),   h ← (1 − a_t u) ⊙ h + a_t u ⊙ h̃         (9)
    p = σ(MLP[h, rep_x]),   L = L_click + λ (L_D0 + L_D1 + L_Ds)                                               (10)

The paper is read from notes that leave (1), the weight in (4), the gates of (9) and the weights in (10) open; each is a
setting here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import ClickBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.click_predictor import ClickPredictor, ClickPredictorConfig, ClickReasons
from saccade.models.base.model import register
from saccade.nn.attention import masked_softmax
from saccade.nn.encode import at_least_float32, dropout_layer


@dataclass(frozen=True)
class MarnConfig(ClickPredictorConfig):
    """`dim` is the width of s, c and rep."""

    dim: int = 256
    common: Literal["project", "pad"] = "project"  # (1): an affine map each, or zeros behind up to the widest
    common_dim: int = 256  # of f, if they are projected
    fusion: Literal["attention", "sum", "concat"] = "attention"  # (3); concat: one affine map of all f, without s and c
    gate_start: float = 0.0  # what b_m of (3) begins with, if not at random near 0, where gates let nothing through
    invariant: Literal["mean", "sum", "none"] = "mean"  # (4)
    discriminators: Literal[0, 1, 2] = 2  # 1: D₁ alone, all weights 1; 0: no adversary
    adversary: Literal["multiway", "pairwise"] = "multiway"  # pairwise: one against one, for every two modalities
    specific: bool = True  # (7)
    normalise_weights: bool = False  # (6): w to mean 1
    reversal: float = 1.0  # what the reversed gradient is multiplied by
    adversary_moves: Literal["all", "projections"] = (
        "all"  # (6–7): what learns from the discriminators: S_m and I alone,
    )
    # over which the notes take the maximum, or also what lies before them, P_m and the embeddings
    unit_parts: bool = False  # discriminators read c and s at one length, √dim: a longer c deceives nobody; not in
    # the notes
    adversarial_weight: float = 0.05  # λ
    d0_weight: float = 1.0  # within it, of each loss
    d1_weight: float = 1.0
    ds_weight: float = 1.0
    sequence: Literal["augru", "agru", "aigru", "gru", "din"] = "augru"  # (9): a scales u, is u, scales y, or is not
    # used; din: no GRU, the sum of the behaviours weighted by a
    reset: Literal["after", "before"] = "after"  # r ⊙ U_h h, or U_h (r ⊙ h)
    use_properties: bool = True  # y has p
    attention_inputs: Literal["product", "product_difference"] = "product"  # (8)
    attention_normaliser: Literal["softmax", "sigmoid", "none"] = "softmax"
    attention_dim: int = 64  # of its hidden layer
    state_dim: int = 256  # of h
    hidden_dim: int = 128  # of the last MLP
    dropout: float = 0.0  # of rep and of the last hidden layer; not in the notes

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ranges(self, "adversarial_weight d0_weight d1_weight ds_weight reversal", "zero or more")
        check_ranges(self, "dropout", "at least 0 and less than 1")
        adversary = self.discriminators or self.specific
        if len(self.modalities) < 2 and adversary:
            raise SaccadeError("one modality has nobody to be told from: give discriminators=0 specific=false")
        if self.fusion == "concat" and (adversary or self.invariant != "none"):
            raise SaccadeError(
                "fusion=concat has no specific and invariant parts: give invariant=none discriminators=0 specific=false"
            )
        if self.invariant == "none" and self.discriminators:
            raise SaccadeError("invariant=none leaves nothing to the adversaries: give discriminators=0")


class Reversal(torch.autograd.Function):
    """The identity, whose gradient comes back times −factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return -ctx.factor * gradient, None


def reversed_gradient(value: Tensor, factor: float = 1.0) -> Tensor:
    found: Tensor = Reversal.apply(value, factor)  # type: ignore[no-untyped-call]
    return found


@dataclass(frozen=True)
class Represented:
    """Items by (2–4)."""

    specific: Float[Tensor, "item modality dim"]  # s^m
    invariant: Float[Tensor, "item modality dim"]  # c^m
    gates: Float[Tensor, "item modality dim"]  # g^m
    fused: Float[Tensor, "item dim"]  # s
    shared: Float[Tensor, "item dim"]  # c

    @property
    def vectors(self) -> Float[Tensor, "item dim"]:
        """rep."""
        return self.fused + self.shared


class ItemFusion(nn.Module):
    """(1–4) of embeddings of these widths."""

    def __init__(self, widths: tuple[int, ...], config: MarnConfig) -> None:
        super().__init__()
        self.config = config
        project = config.common == "project"
        common = config.common_dim if project else max(widths)
        self.common = nn.ModuleList(nn.Linear(width, common) for width in widths) if project else None
        self.common_dim = common
        if config.fusion == "concat":
            self.joined = nn.Linear(len(widths) * common, config.dim)
            return
        self.specific = nn.ModuleList(nn.Linear(common, config.dim) for _ in widths)  # S_m
        self.invariant = nn.Linear(common, config.dim) if config.invariant != "none" else None  # I
        if config.fusion == "attention":
            self.gates = nn.ModuleList(nn.Linear(config.dim, config.dim) for _ in widths)  # W_m
            for gate in self.gates if config.gate_start else ():
                nn.init.constant_(gate.bias, config.gate_start)  # type: ignore[arg-type]

    def to_common(self, embedded: tuple[Tensor, ...]) -> Float[Tensor, "item modality common_dim"]:
        """f (1)."""
        if self.common is not None:
            return torch.stack([layer(e) for layer, e in zip(self.common, embedded, strict=True)], dim=1)
        return torch.stack([F.pad(e, (0, self.common_dim - e.shape[1])) for e in embedded], dim=1)

    def parts(self, f: Float[Tensor, "item modality common_dim"]) -> tuple[Tensor, Tensor]:
        """s^m and c^m [item modality dim] (2); c is zero where there is none."""
        specific = torch.stack([layer(f[:, m]) for m, layer in enumerate(self.specific)], dim=1)
        return specific, torch.zeros_like(specific) if self.invariant is None else self.invariant(f)

    def forward(
        self, embedded: tuple[Tensor, ...], present: Bool[Tensor, "item modality"] | None = None
    ) -> Represented:
        """Of a modality that is not `present` nothing is counted in; the others count as before."""
        f = self.to_common(embedded)
        kept = f.new_ones(f.shape[:2]) if present is None else present.to(f)
        if self.config.fusion == "concat":
            fused: Tensor = self.joined((f * kept[..., None]).flatten(1))
            none = fused.new_zeros(*f.shape[:2], fused.shape[1])
            return Represented(none, none, none, fused, torch.zeros_like(fused))
        specific, invariant = self.parts(f)
        gates = torch.ones_like(specific)
        if self.config.fusion == "attention":
            gates = torch.stack([layer(specific[:, m]).tanh() for m, layer in enumerate(self.gates)], dim=1)  # (3)
        fused = (gates * specific * kept[..., None]).sum(dim=1)
        shared = (invariant * kept[..., None]).sum(dim=1)  # (4)
        if self.config.invariant == "mean":
            shared = shared / invariant.shape[1]
        return Represented(specific, invariant, gates, fused, shared)


class Discriminator(nn.Module):
    """Guesses the modality: a softmax over all; or one against one, a sigmoid for every two of them."""

    sign: Tensor
    place: Tensor

    def __init__(self, dim: int, modalities: int, kind: Literal["multiway", "pairwise"]) -> None:
        super().__init__()
        self.kind = kind
        pairs = list(combinations(range(modalities), 2))
        self.guess = nn.Linear(dim, modalities if kind == "multiway" else len(pairs))
        if kind == "pairwise":  # of every modality: the guesses that it takes part in, and on which side
            own = [[n for n, pair in enumerate(pairs) if m in pair] for m in range(modalities)]
            sides = [[1.0 if pairs[n][0] == m else -1.0 for n in own[m]] for m in range(modalities)]
            self.register_buffer("place", torch.tensor(own), persistent=False)
            self.register_buffer("sign", torch.tensor(sides), persistent=False)

    def forward(self, parts: Float[Tensor, "item modality dim"]) -> Float[Tensor, "item modality modality"]:
        """D(x) of all modalities, where it is a softmax."""
        return at_least_float32(self.guess(parts)).softmax(dim=-1)

    def own_log(self, parts: Float[Tensor, "item modality dim"]) -> Float[Tensor, "item modality guess"]:
        """log D^m(x^m): of one guess, or of each guess between m and another."""
        logits = at_least_float32(self.guess(parts))
        if self.kind == "multiway":
            return logits.log_softmax(dim=-1).diagonal(dim1=1, dim2=2)[..., None]
        return F.logsigmoid(logits.gather(2, self.place.expand(len(parts), -1, -1)) * self.sign)


@dataclass(frozen=True)
class Discriminated:
    """(5–7) of items, each of which counts as often as it occurs."""

    weights: Float[Tensor, "item modality guess"] | None  # w; None: all are 1
    losses: dict[str, Float[Tensor, ""]]


class Discriminators(nn.Module):
    """D₀ and D₁, whatever is there of them."""

    def __init__(self, modalities: int, config: MarnConfig) -> None:
        super().__init__()
        self.config = config
        make = partial(Discriminator, config.dim, modalities, config.adversary)
        self.first = make() if config.discriminators == 2 else None  # D₀
        self.second = make() if config.discriminators or config.specific else None  # D₁

    def seen(self, parts: Float[Tensor, "item modality dim"]) -> Float[Tensor, "item modality dim"]:
        """As the discriminators read them."""
        return F.normalize(parts, dim=-1) * parts.shape[-1] ** 0.5 if self.config.unit_parts else parts

    def forward(self, items: Represented, counts: Float[Tensor, " item"]) -> Discriminated:
        share = counts / counts.sum()

        def mean(values: Float[Tensor, "item modality guess"]) -> Float[Tensor, ""]:
            return (values.mean(dim=(1, 2)) * share).sum()

        invariant, specific = (self.seen(parts) for parts in (items.invariant, items.specific))
        losses: dict[str, Tensor] = {}
        weights = None
        if self.first is not None:
            own = self.first.own_log(invariant.detach())
            losses["d0"] = -mean(own)  # (5)
            weights = 1 - own.detach().exp()
            if self.config.normalise_weights:
                weights = weights / mean(weights)
        if self.second is not None and self.config.discriminators:
            own = self.second.own_log(reversed_gradient(invariant, self.config.reversal))
            losses["d1"] = -mean(own if weights is None else weights * own)  # (6)
        if self.second is not None and self.config.specific:
            losses["ds"] = -mean(self.second.own_log(specific))  # (7)
        return Discriminated(weights, losses)


class Behaviours(nn.Module):
    """(8–9): a user's behaviours as one vector, for a candidate."""

    def __init__(self, dim: int, property_dim: int, config: MarnConfig) -> None:
        super().__init__()
        self.config = config
        inputs = dim * (4 if config.attention_inputs == "product_difference" else 3)
        self.attend = nn.Linear(inputs, config.attention_dim)
        self.weigh = nn.Linear(config.attention_dim, 1)
        given = dim + (property_dim if config.use_properties else 0)
        self.dim = given if config.sequence == "din" else config.state_dim
        if config.sequence != "din":
            self.inputs = nn.Linear(given, 3 * config.state_dim)  # W and b: update, reset, new
            self.states = nn.Linear(config.state_dim, 3 * config.state_dim, bias=False)  # U

    def attention(
        self,
        history: Float[Tensor, "impression behaviour dim"],
        mask: Bool[Tensor, "impression behaviour"],
        candidate: Float[Tensor, "impression dim"],
    ) -> Float[Tensor, "impression behaviour"]:
        """a (8)."""
        other = candidate[:, None].expand_as(history)
        parts = [history, other, history * other]
        if self.config.attention_inputs == "product_difference":
            parts.append(history - other)
        scores = at_least_float32(self.weigh(self.attend(torch.cat(parts, dim=-1)).relu())[..., 0])
        if self.config.attention_normaliser == "softmax":
            return masked_softmax(scores, mask) * mask
        return (scores.sigmoid() if self.config.attention_normaliser == "sigmoid" else scores) * mask

    def forward(
        self,
        history: Float[Tensor, "impression behaviour dim"],
        properties: Float[Tensor, "impression behaviour property_dim"],
        mask: Bool[Tensor, "impression behaviour"],
        weights: Float[Tensor, "impression behaviour"],
    ) -> Float[Tensor, "impression behaviour state_dim"]:
        """The states after each behaviour (of DIN, its sum so far); padding changes none."""
        given = torch.cat([history, properties], dim=-1) if self.config.use_properties else history
        a = weights.to(given)[..., None]
        kind = self.config.sequence
        if kind == "din":
            return (a * given).cumsum(dim=1)
        gates = self.inputs(a * given if kind == "aigru" else given)
        state = given.new_zeros(len(given), self.config.state_dim)
        states = []
        for there, own, weight in zip(mask[..., None].unbind(1), gates.unbind(1), a.unbind(1), strict=True):
            state = torch.where(there, self.step(own, weight, state), state)
            states.append(state)
        return torch.stack(states, dim=1) if states else given.new_zeros(len(given), 0, self.dim)

    def step(self, gates: Tensor, a: Float[Tensor, "impression 1"], state: Tensor) -> Tensor:
        """(9)."""
        update, reset, new = gates.chunk(3, dim=1)
        if self.config.reset == "after":
            of_update, of_reset, of_new = self.states(state).chunk(3, dim=1)
            reset = (reset + of_reset).sigmoid()
            new = (new + reset * of_new).tanh()
        else:
            u, r, h = self.states.weight.chunk(3)
            of_update = F.linear(state, u)
            reset = (reset + F.linear(state, r)).sigmoid()
            new = (new + F.linear(reset * state, h)).tanh()
        update = (update + of_update).sigmoid()
        update = a if self.config.sequence == "agru" else a * update if self.config.sequence == "augru" else update
        return (1 - update) * state + update * new


@register(
    "marn",
    task="clicks",
    title="Adversarial Multimodal Representation Learning for Click-Through Rate Prediction",
    venue="Li et al., WWW 2020",
)
class Marn(ClickPredictor):
    Config = MarnConfig

    def __init__(self, config: MarnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.fusion = ItemFusion(self.embed.widths, config)
        self.discriminators = Discriminators(len(config.modalities), config)
        self.behaviours = Behaviours(config.dim, self.properties.dim, config)
        self.hidden = nn.Linear(self.behaviours.dim + config.dim, config.hidden_dim)
        self.click = nn.Linear(config.hidden_dim, 1)
        self.dropout = dropout_layer(config.dropout)

    def represent(self, batch: ClickBatch, present: Tensor | None = None) -> Represented:
        assert batch.items is not None
        found: Represented = self.fusion(self.embed(batch.items), present)
        return found

    def predict(
        self, batch: ClickBatch, vectors: Float[Tensor, "item dim"], candidate: Float[Tensor, "impression dim"]
    ) -> tuple[Float[Tensor, " impression"], Float[Tensor, "impression behaviour"]]:
        """The logit of p (10), and a (8)."""
        history = F.embedding(batch.history, self.dropout(vectors))
        candidate = self.dropout(candidate)
        weights = self.behaviours.attention(history, batch.mask, candidate)
        properties = self.properties(batch.kinds, batch.ages)
        states = self.behaviours(history, properties, batch.mask, weights)
        last = states[:, -1] if states.shape[1] else states.new_zeros(len(candidate), self.behaviours.dim)
        hidden = self.dropout(self.hidden(torch.cat([last, candidate.to(last)], dim=1)).relu())
        return at_least_float32(self.click(hidden)[:, 0]), weights

    def click_logits(self, batch: ClickBatch) -> Float[Tensor, " impression"]:
        vectors = self.represent(batch).vectors
        return self.predict(batch, vectors, F.embedding(batch.candidate, vectors))[0]

    def discriminator_inputs(self, batch: ClickBatch, items: Represented) -> Represented:
        """Items as the discriminators read them: by `adversary_moves`, of f that does not learn from them."""
        if self.config.adversary_moves == "all" or self.config.fusion == "concat":
            return items
        assert batch.items is not None
        specific, invariant = self.fusion.parts(self.fusion.to_common(self.embed(batch.items)).detach())
        return replace(items, specific=specific, invariant=invariant)

    def losses(self, batch: ClickBatch) -> dict[str, Float[Tensor, ""]]:
        """Each times its weight."""
        items, config = self.represent(batch), self.config
        vectors = items.vectors
        logits = self.predict(batch, vectors, F.embedding(batch.candidate, vectors))[0]
        told: Discriminated = self.discriminators(self.discriminator_inputs(batch, items), batch.counts)
        factors = {"d0": config.d0_weight, "d1": config.d1_weight, "ds": config.ds_weight}
        own = {name: config.adversarial_weight * factors[name] * loss for name, loss in told.losses.items()}
        return {"click": self.click_loss(logits, batch.clicked), **own}

    def reasons(self, batch: ClickBatch) -> ClickReasons:
        """A modality's effect: the candidate without it, the history as it is."""
        items = self.represent(batch)
        vectors, chosen = items.vectors, batch.candidate
        logits, weights = self.predict(batch, vectors, vectors[chosen])
        lengths = torch.cat([items.gates * items.specific, items.shared[:, None]], dim=1).norm(dim=2)[chosen]
        gates = items.gates.mean(dim=2)[chosen]
        effects = []
        count = len(self.config.modalities)
        for m in range(count):
            present = torch.ones(1, count, dtype=torch.bool, device=logits.device)
            present[0, m] = False
            without = self.represent(batch, present).vectors[chosen]
            effects.append(logits - self.predict(batch, vectors, without)[0])
        parts = lengths / lengths.sum(dim=1, keepdim=True).clamp(min=torch.finfo(lengths.dtype).tiny)
        if self.config.fusion != "attention":
            gates = torch.full_like(gates, torch.nan)
        return ClickReasons(logits, parts, gates, torch.stack(effects, dim=1), weights)
