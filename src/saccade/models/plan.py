"""PLAN: Parallel Attention: A Unified Framework for Visual Object Discovery through Dialogs and Queries (Zhuang, Wu,
Shen, Reid, van den Hengel; CVPR 2018).

A text is read step by step, a word of an expression or a turn of a dialog at a time. At every step two attentions look
again: one at the regions v_i of the picture, for context, the other at the candidates p_i, to narrow them down. With
m_t what is read at step t, and h_0 = 0:

    α_ti = softmax_i w · tanh(W_v v_i + W_h h_{t−1} + b)        z_t = Σ_i α_ti v_i      h_t = LSTM([m_t ; z_t], h_{t−1})
    p_i = [u_i ; s_i ; c_i]                          what a box looks like, where it lies, its category
    β_ti = softmax_i w′ · tanh(W_p p_i + W′_h h′_{t−1} + b′)    z′_t = Σ_i β_ti p_i     h′_t = LSTM′([m_t ; z′_t], h′)
    P_i = softmax_i (W_r β_Li p_i + b_r) · (W_q h_L + b_q)

m_t is the last state of an LSTM over the words of a step. The released code (`form=reference`) has neither s_i nor c_i;
every candidate has an LSTM state h_i of its own and may have several cells x_ik:

    e_ti = Σ_d tanh(W_1 v_i)_d tanh(W_2 h_{t−1})_d            α = softmax(e)          z_t = Σ_i α_ti v_i
    e′_ti = mean_k Σ_d tanh(W′_1 x_ik)_d tanh(W′_2 h_i)_d     β = softmax(e′)         z_ti = β_ti Σ_k x_ik
    h_t = LSTM [tanh(E_1 m_t) ; tanh(E_2 z_t)]                g(z, h) = [tanh(L_2 z) ; tanh(L_1 h)]
    P_i = softmax_i g(z_L, h_L) · g′(z_Li, h_Li)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence

from saccade.batch import CandidateBatch, Referred, RegionBatch, StepBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import register
from saccade.models.base.referrer import Referrer, ReferrerConfig
from saccade.nn.attention import AdditiveAttention, attended, masked_softmax
from saccade.nn.captioners import open_forget_gates
from saccade.nn.encode import Standardise, at_least_float32, dropout_layer, last_state
from saccade.vision.boxes import GEOMETRY_DIM, corner_geometry

MOST_COUNTED = 4  # candidates beside a box
RANKS = 4 * (MOST_COUNTED + 1)  # numbers that `ranks` gives of a box


@dataclass(frozen=True)
class PlanConfig(ReferrerConfig):
    """The paper's form, with the widths of the released code."""

    dim: int = 512  # of the states of both levels
    text_dim: int = 512  # of m_t
    candidate_dim: int | None = None  # of u_i, where it is not that of the picture's regions
    attention_dim: int = 512
    referring_dim: int = 512  # in which candidates and text are compared
    category_dim: int = 256  # the paper does not say
    form: Literal["paper", "reference"] = "paper"
    levels: Literal["both", "image", "proposal"] = "both"  # one alone: the ablations
    geometry: bool = True  # s_i
    category: bool = True  # c_i
    ranks: bool = False  # s_i also says how many candidates lie left and right of a box; not in the papers
    forget_bias: float = 0.0  # added to the forget gates' at the start, so that early words last; not in the papers
    dropout: float = 0.0  # of what an LSTM reads, in training; 0.5 in the released code
    feature_scale: float = 1.0  # features are multiplied by it; 0.1 in the released code

    def __post_init__(self) -> None:
        if self.form == "reference" and self.levels != "both":
            raise SaccadeError("model.form=reference compares both levels: model.levels must be both")


class Level(NamedTuple):
    """What one level found at every step."""

    scores: Float[Tensor, "text step part"]  # e
    weights: Float[Tensor, "text step part"]  # α or β
    attended: Float[Tensor, "text step *candidate dim"]  # z
    states: Float[Tensor, "text step *candidate dim"]  # h


class PaperLevel(nn.Module):
    """Recurrent attention to the regions of a picture or to the candidates: e, α, z, h."""

    def __init__(self, in_dim: int, config: PlanConfig) -> None:
        super().__init__()
        self.attention = AdditiveAttention(in_dim, config.dim, config.attention_dim)
        self.lstm = nn.LSTMCell(config.text_dim + in_dim, config.dim)
        self.dropout = dropout_layer(config.dropout)

    def forward(
        self,
        parts: Float[Tensor, "text part in"],
        mask: Bool[Tensor, "text part"],
        read: Float[Tensor, "text step text_dim"],
    ) -> Level:
        keys = self.attention.keys(parts)
        state = cell = read.new_zeros(len(read), self.lstm.hidden_size)
        steps = []
        for heard in read.unbind(dim=1):  # m_t
            scores = self.attention.scores(state, keys)
            weights = masked_softmax(scores, mask)
            found = attended(weights, parts)
            state, cell = self.lstm(self.dropout(torch.cat([heard, found], dim=1)), (state, cell))
            steps.append((scores, weights, found, state))
        return Level(*(torch.stack(values, dim=1) for values in zip(*steps, strict=True)))


class ReferenceLevel(nn.Module):
    """The released code's: scores are products, and each of several candidates has a state of its own."""

    def __init__(self, config: PlanConfig, several: bool) -> None:
        super().__init__()
        self.several = several
        self.key = nn.Linear(config.region_dim, config.word_dim)  # W_1
        self.query = nn.Linear(config.dim, config.word_dim)  # W_2
        self.heard = nn.Linear(config.text_dim, config.word_dim)  # E_1
        self.found = nn.Linear(config.region_dim, config.word_dim)  # E_2
        self.lstm = nn.LSTMCell(2 * config.word_dim, config.dim)
        self.of_state = nn.Linear(config.dim, config.referring_dim)  # L_1
        self.of_found = nn.Linear(config.region_dim, config.referring_dim)  # L_2
        self.dropout = dropout_layer(config.dropout)

    def forward(
        self,
        parts: Float[Tensor, "text part *cell in"],
        mask: Bool[Tensor, "text part"],
        read: Float[Tensor, "text step text_dim"],
        steps: Bool[Tensor, "text step"],
    ) -> Level:
        keys = torch.tanh(self.key(parts))
        many = parts.shape[:2] if self.several else parts.shape[:1]
        state = cell = read.new_zeros(*many, self.lstm.hidden_size)
        found = []
        for heard, there in zip(read.unbind(dim=1), steps.unbind(dim=1), strict=True):
            query = torch.tanh(self.query(state))
            if self.several:
                scores = torch.einsum("tpcd,tpd->tp", keys, query) / keys.shape[2]
                weights = masked_softmax(scores, mask)
                seen = weights[..., None] * parts.sum(dim=2)
            else:
                scores = torch.einsum("tpd,td->tp", keys, query)
                weights = masked_softmax(scores, mask)
                seen = attended(weights, parts)
            said = torch.tanh(self.heard(heard)) * there[:, None]
            said = said[:, None].expand(-1, many[1], -1) if self.several else said
            inputs = self.dropout(torch.cat([said, torch.tanh(self.found(seen))], dim=-1))
            state, cell = (
                value.view(*many, -1)
                for value in self.lstm(inputs.flatten(0, -2), (state.flatten(0, -2), cell.flatten(0, -2)))
            )
            found.append((scores, weights, seen, state))
        return Level(*(torch.stack(values, dim=1) for values in zip(*found, strict=True)))

    def represent(self, level: Level) -> Float[Tensor, "text step *candidate double"]:
        """g(z, h)."""
        parts = self.of_found(level.attended), self.of_state(level.states)
        return at_least_float32(torch.cat([torch.tanh(part) for part in parts], dim=-1))


def ranks(candidates: CandidateBatch) -> Float[Tensor, "text candidate 20"]:
    """How many candidates lie left and right of each, and how many of its own category: up to four, each number as
    five of which one is 1."""
    middle, category = candidates.boxes[..., [0, 2]].mean(dim=2), candidates.categories
    there = candidates.mask[:, None, :]
    left, right = (middle[:, None, :] < middle[:, :, None]) & there, (middle[:, None, :] > middle[:, :, None]) & there
    same = (category[:, None, :] == category[:, :, None]) & (category > 0)[:, None, :]
    counts = torch.stack([left, right, left & same, right & same], dim=-1).sum(dim=2).clamp(max=MOST_COUNTED)
    return functional.one_hot(counts, MOST_COUNTED + 1).flatten(2).float()


@register(
    "plan",
    task="referring",
    title="Parallel Attention: A Unified Framework for Visual Object Discovery through Dialogs and Queries",
    venue="Zhuang et al., CVPR 2018",
)
class Plan(Referrer):
    Config = PlanConfig

    def __init__(self, config: PlanConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        reference = config.form == "reference"
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.word_bias = nn.Parameter(torch.zeros(config.word_dim)) if reference else None
        self.lstm = nn.LSTM(config.word_dim, config.text_dim, batch_first=True)
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.image: PaperLevel | ReferenceLevel | None
        self.proposal: PaperLevel | ReferenceLevel | None
        if reference:
            self.image, self.proposal = ReferenceLevel(config, False), ReferenceLevel(config, True)
            self.open_gates()
            return
        seen = config.candidate_dim or config.region_dim
        own = seen + GEOMETRY_DIM * config.geometry + RANKS * config.ranks + config.category_dim * config.category
        if config.category:
            self.categories = nn.Embedding(len(config.categories) + 1, config.category_dim)  # 0: not known
        self.image = PaperLevel(config.region_dim, config) if config.levels != "proposal" else None
        self.proposal = PaperLevel(own, config) if config.levels != "image" else None
        self.candidate_map = nn.Linear(own, config.referring_dim)  # W_r, b_r
        self.query_map = nn.Linear(config.dim, config.referring_dim)  # W_q, b_q
        self.open_gates()

    def open_gates(self) -> None:
        for lstm in (self.lstm, *(level.lstm for level in (self.image, self.proposal) if level is not None)):
            open_forget_gates(lstm, self.config.forget_bias)

    def encode_steps(self, texts: StepBatch) -> Float[Tensor, "text step text_dim"]:
        """m_t."""
        counts = texts.mask.flatten(0, 1).sum(dim=1).clamp(min=1)  # a step that is not there is one word of padding
        vectors = self.words(texts.tokens)
        if self.word_bias is not None:
            vectors = torch.tanh(vectors + self.word_bias)
        steps = (vectors * texts.mask[..., None]).flatten(0, 1)
        if steps.device.type == "cpu":  # most steps are one word: padding would be most of the work
            packed = pack_padded_sequence(steps, counts, batch_first=True, enforce_sorted=False)
            last = self.lstm(packed)[1][0][0]
        else:
            last = last_state(self.lstm(steps)[0], counts)
        return at_least_float32(last).view(*texts.tokens.shape[:2], -1)

    def encode_features(
        self, features: Float[Tensor, "text part dim"], mask: Bool[Tensor, "text part"]
    ) -> Float[Tensor, "text part dim"]:
        scaled: Tensor = features if self.standardise is None else self.standardise(features, mask)
        return scaled * float(self.config.feature_scale)

    def encode_candidates(self, candidates: CandidateBatch) -> Float[Tensor, "text candidate own"]:
        """p_i."""
        parts = [self.encode_features(candidates.features, candidates.mask)]  # u_i
        if self.config.geometry:
            parts.append(corner_geometry(candidates.boxes).to(parts[0].dtype))  # s_i
        if self.config.ranks:
            parts.append(ranks(candidates).to(parts[0].dtype))
        if self.config.category:
            parts.append(self.categories(candidates.categories))  # c_i
        return torch.cat(parts, dim=2) * candidates.mask[..., None]

    def refer(self, images: RegionBatch, candidates: CandidateBatch, texts: StepBatch) -> Referred:
        read, steps = self.encode_steps(texts), texts.steps
        regions = self.encode_features(images.features, images.mask)
        if isinstance(self.proposal, ReferenceLevel) and isinstance(self.image, ReferenceLevel):
            boxes = self.encode_features(candidates.features, candidates.mask)[:, :, None]  # of one cell each
            image = self.image(regions, images.mask, read, steps)
            proposal = self.proposal(boxes, candidates.mask, read, steps)
            logits = torch.einsum("tsd,tscd->tsc", self.image.represent(image), self.proposal.represent(proposal))
            return self.referred(logits, steps, candidates.mask, proposal.weights, image.weights)
        boxes = self.encode_candidates(candidates)
        seen = None if self.image is None else self.image(regions, images.mask, read)
        narrowed = None if self.proposal is None else self.proposal(boxes, candidates.mask, read)
        logits = self.compare(boxes, seen, narrowed)
        weights = None if narrowed is None else narrowed.weights
        return self.referred(logits, steps, candidates.mask, weights, None if seen is None else seen.weights)

    def compare(
        self, boxes: Float[Tensor, "text candidate own"], image: Level | None, proposal: Level | None
    ) -> Float[Tensor, "text step candidate"]:
        """(W_r β_i p_i + b_r) · (W_q h + b_q), where b_r says the same of all candidates.

        Without the image's level h is the candidates', without theirs β is 1.
        """
        level = image or proposal
        assert level is not None
        query = at_least_float32(self.query_map(level.states))
        keys = at_least_float32(boxes @ self.candidate_map.weight.mT)
        scores = query @ keys.mT
        if proposal is not None:
            scores = scores * proposal.weights
        return scores + (query @ self.candidate_map.bias)[..., None]

    def referred(
        self,
        logits: Float[Tensor, "text step candidate"],
        steps: Bool[Tensor, "text step"],
        mask: Bool[Tensor, "text candidate"],
        candidates: Tensor | None,
        regions: Tensor | None,
    ) -> Referred:
        """Nothing is said of padding."""
        least = torch.finfo(logits.dtype).min
        logits = logits.masked_fill(~mask[:, None], least)
        real = [None if part is None else part * steps[..., None] for part in (candidates, regions)]
        return Referred(last_state(logits, steps.sum(dim=1)), logits, *real)
