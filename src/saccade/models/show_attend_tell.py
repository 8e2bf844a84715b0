"""Show, Attend and Tell: Neural Image Caption Generation with Visual Attention (Xu, Ba, Kiros, Cho, Courville,
Salakhutdinov, Zemel, Bengio; ICML 2015).

Before each word the captioner attends to the picture again: its state is the query, the regions are the context, and
the word is predicted from both. Soft attention is the mean of the regions with weights α; hard attention takes one
region, drawn from α, and learns by REINFORCE. With a the regions, y the words and E their vectors:

    h₀, c₀ = f(mean a)                                                                           § 3.1.2
    e_ti   = f_att(a_i, h_{t−1}),  α_t = softmax(e_t)                                            eq. 4–5
    ẑ_t    = Σ_i s_ti a_i;   soft: s = α;   hard: s ~ Multinoulli(α)                             eq. 6, 8–9, 13
    ẑ_t    = β_t ẑ_t,  β_t = σ(f_β(h_{t−1}))                                                     § 4.2.1
    h_t    = LSTM([E y_{t−1}; ẑ_t], h_{t−1})                                                     eq. 1–3
    p(y_t) ∝ exp(L_o (E y_{t−1} + L_h h_t + L_z ẑ_t))                                            eq. 7
    soft   = −log p(y) + λ Σ_i (1 − Σ_t α_ti)²                                                   eq. 14
    hard   = −log p(y | s) − λ_r (log p(y | s) − b) log p(s) − λ_e H[s],  b ← 0.9 b + 0.1 log p(y | s)    eq. 11–12

`docs/systems/show_attend_tell.md` has them in full, and where the two well-known codes differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import CaptionState, RegionBatch, StepOutput, TeacherForced
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.captioner import Captioner
from saccade.models.base.model import register
from saccade.nn.attention import Activation, AdditiveAttention, attended, masked_softmax
from saccade.nn.captioners import LstmMemory, RegionContext, mean_region
from saccade.nn.encode import at_least_float32

Reward = Literal["caption", "mean", "word"]


@dataclass(frozen=True)
class ShowAttendTellConfig:
    """The paper's form, in the sizes of the authors' code for COCO."""

    region_dim: int = 2048  # D; 512 in the paper
    word_dim: int = 512  # m
    dim: int = 1800  # n
    attention: Literal["soft", "hard", "none"] = "soft"  # none: the mean of the regions, whatever the word
    attention_dim: int = 512
    attention_layers: int = 2  # of the keys, the first linear, the others tanh
    activation: Activation = "tanh"  # of f_att
    gate: Literal["scalar", "vector", "none"] = "scalar"  # β; a vector has one for every channel
    first_layers: int = 2  # of f_init, the last included
    first_tanh: bool = True  # at the end of f_init
    deep_output: bool = True  # eq. 7 with a tanh; off: from h alone
    output_layers: int = 1  # more: ReLU layers between that and L_o
    word_shortcut: bool = True  # E y_{t−1} in eq. 7
    context_shortcut: bool = True  # ẑ_t in eq. 7
    word_init_std: float = 0.01  # of the initial word vectors, as in the authors' code
    dropout: float = 0.5
    coverage: float = 1.0  # λ of the doubly stochastic penalty; soft attention only
    coverage_over: Literal["caption", "mean"] = "caption"  # mean: over captions and regions, as in the tutorial
    semi_sampling: float = 0.5  # hard: the share of pictures trained with sampled regions, the rest with expected ones
    reward: Reward = "caption"  # hard: −log p of the whole caption; of its words in the mean; of each word for its draw
    reinforce: float = 0.1  # λ_r
    entropy: float = 0.002  # λ_e
    baseline_memory: float = 0.9  # of b
    at_test: Literal["expected", "likeliest"] = "expected"  # hard, once trained: ẑ = Σ α a, or the region of largest α

    def __post_init__(self) -> None:
        for name in ("attention_layers", "first_layers", "output_layers"):
            if getattr(self, name) < 1:
                raise SaccadeError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("dropout", "semi_sampling", "baseline_memory"):
            if not 0 <= getattr(self, name) <= 1:
                raise SaccadeError(f"{name} must be between 0 and 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class SampledRegionContext(RegionContext):
    """Also which pictures train with sampled regions in this step, where attention is hard."""

    sampled: Bool[Tensor, " row"]


State = CaptionState[LstmMemory, SampledRegionContext]


@register(
    "show_attend_tell",
    task="captioning",
    title="Show, Attend and Tell: Neural Image Caption Generation with Visual Attention",
    venue="Xu et al., ICML 2015",
)
class ShowAttendTell(Captioner[LstmMemory, SampledRegionContext]):
    Config = ShowAttendTellConfig
    config: ShowAttendTellConfig
    baseline: Tensor

    def __init__(self, config: ShowAttendTellConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        region, word, dim = config.region_dim, config.word_dim, config.dim
        self.first = nn.ModuleList(nn.Linear(region, region) for _ in range(config.first_layers - 1))
        self.first_hidden, self.first_cell = nn.Linear(region, dim), nn.Linear(region, dim)
        sizes = region, dim, config.attention_dim
        layers = config.activation, config.attention_layers
        self.look = AdditiveAttention(*sizes, *layers) if config.attention != "none" else None  # f_att
        self.gate = nn.Linear(dim, {"scalar": 1, "vector": region}[config.gate]) if config.gate != "none" else None
        self.embed = nn.Embedding(len(vocabulary), word)  # E
        with torch.no_grad():
            self.embed.weight *= config.word_init_std
        self.lstm = nn.LSTMCell(word + region, dim)
        self.dropout = nn.Dropout(config.dropout)
        self.of_hidden = self.of_context = None
        if config.deep_output:
            self.of_hidden = nn.Linear(dim, word)  # L_h
            self.of_context = nn.Linear(region, word, bias=False) if config.context_shortcut else None  # L_z
        out_dim = word if config.deep_output else dim
        self.output = nn.ModuleList(nn.Linear(out_dim, out_dim) for _ in range(config.output_layers - 1))
        self.say = nn.Linear(out_dim, len(vocabulary))  # L_o
        if config.attention == "hard":
            self.register_buffer("baseline", torch.zeros(()))  # b
        self.chance: Callable[..., Tensor] = torch.rand  # where draws come from

    def start(self, images: RegionBatch) -> State:
        regions, mask = images.features, images.mask
        whole = mean_region(regions, mask)
        for layer in self.first:
            whole = self.dropout(layer(whole).relu())
        state = [at_least_float32(layer(whole)) for layer in (self.first_hidden, self.first_cell)]
        memory = LstmMemory(*(part.tanh() if self.config.first_tanh else part for part in state))  # § 3.1.2
        keys = regions.new_zeros(*mask.shape, 0) if self.look is None else self.look.keys(regions)
        sampled = torch.zeros_like(mask[:, 0])
        if self.training and self.config.attention == "hard":
            sampled = self.chance(len(mask), device=mask.device) < self.config.semi_sampling
        return CaptionState(memory, SampledRegionContext(regions, keys, mask, sampled))

    def step(self, words: Int[Tensor, " row"], state: State) -> StepOutput[LstmMemory, SampledRegionContext]:
        memory, context = state.memory, state.context
        if self.look is None:
            weights = masked_softmax(memory.hidden.new_zeros(context.mask.shape), context.mask)
        else:
            weights = self.look(memory.hidden, context.keys, context.mask)  # eq. 4–5
        taken = self._taken(weights, context)  # s
        found = attended(taken, context.regions)  # eq. 6, 8–9, 13
        if self.gate is not None:
            found = self.gate(memory.hidden).sigmoid() * found  # § 4.2.1
        word = self.embed(words)
        hidden, cell = self.lstm(torch.cat([word, found], dim=1), (memory.hidden, memory.cell))  # eq. 1–3
        memory = LstmMemory(at_least_float32(hidden), at_least_float32(cell))
        outputs = torch.cat([hidden, found, word], dim=1) if self.config.deep_output else hidden
        extras = {"taken": taken.detach()} if self.config.attention == "hard" else {"there": context.mask}
        return StepOutput(outputs, CaptionState(memory, context), weights, extras=extras)

    def logits(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        """Eq. 7, of all steps at once."""
        config = self.config
        if self.of_hidden is not None:
            state, context, word = torch.split(hidden, [config.dim, config.region_dim, config.word_dim], dim=-1)
            hidden = self.of_hidden(self.dropout(state))
            if config.word_shortcut:
                hidden = hidden + word
            if self.of_context is not None:
                hidden = hidden + self.of_context(context)
            hidden = hidden.tanh()
        hidden = self.dropout(hidden)
        for layer in self.output:
            hidden = self.dropout(layer(hidden).relu())
        logits: Tensor = self.say(hidden)
        return logits

    def own_losses(
        self,
        forced: TeacherForced,
        labels: Int[Tensor, "text step"],
        nll: Float[Tensor, "text step"],
        wanted: Bool[Tensor, "text step"],
    ) -> dict[str, Float[Tensor, ""]]:
        """The paper's sums over a caption, given for each word, as the cross-entropy beside them is."""
        config, words = self.config, wanted.sum()
        if config.attention == "soft" and config.coverage:
            there = forced.extras["there"][:, 0]
            uneven = unevenness(forced.weights, wanted, there).sum(dim=1)
            share = uneven.sum() / words
            if config.coverage_over == "mean":
                share = (uneven / there.sum(dim=1).clamp(min=1)).mean()
            return {"coverage_loss": config.coverage * share}
        if config.attention != "hard" or not self.training:
            return {}
        cost, baseline = nll.detach(), torch.zeros_like(self.baseline)  # −log p(y | s) of each word,
        if config.reward != "word":  # or of the caption, as a sum or in the mean
            cost, baseline = cost.sum(dim=1, keepdim=True), self.baseline.clone()
            if config.reward == "mean":
                cost = cost / wanted.sum(dim=1, keepdim=True).clamp(min=1)
            self.baseline.copy_(torch.lerp(cost.mean().to(baseline), baseline, config.baseline_memory))
        logs = forced.weights.clamp(min=torch.finfo(forced.weights.dtype).tiny).log()
        drawn = (cost - baseline) * (forced.extras["taken"] * logs).sum(dim=2)  # its gradient is REINFORCE's
        negative_entropy = (forced.weights * logs).sum(dim=2)
        return {
            "reinforce_loss": config.reinforce * (drawn * wanted).sum() / words,  # eq. 12
            "entropy_loss": config.entropy * (negative_entropy * wanted).sum() / words,
        }

    def _taken(
        self, weights: Float[Tensor, "row region"], context: SampledRegionContext
    ) -> Float[Tensor, "row region"]:
        """s: the weight of each region. No gradient goes through a draw."""
        if self.config.attention != "hard":
            return weights
        if self.training:
            drawn = draw(weights.detach(), self.chance(len(weights), device=weights.device))
            return torch.where(context.sampled[:, None], drawn, weights)
        if self.config.at_test == "likeliest":
            return F.one_hot(weights.argmax(dim=1), weights.shape[1]).to(weights)
        return weights


def draw(weights: Float[Tensor, "row region"], chance: Float[Tensor, " row"]) -> Float[Tensor, "row region"]:
    """One region for each row, as a one-hot: the first whose cumulative share reaches a number drawn from 0…1."""
    reached = weights.cumsum(dim=1)
    place = (reached < chance.to(weights)[:, None] * reached[:, -1:]).sum(dim=1)
    return F.one_hot(place, weights.shape[1]).to(weights)


def unevenness(
    weights: Float[Tensor, "text step region"], wanted: Bool[Tensor, "text step"], there: Bool[Tensor, "text region"]
) -> Float[Tensor, "text region"]:
    """(1 − Σ_t α_ti)²: every region should get a total weight of one."""
    return (1 - (weights * wanted[:, :, None]).sum(dim=1)).square() * there
