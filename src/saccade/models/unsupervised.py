"""Unsupervised Image Captioning (Feng, Ma, Liu, Luo; CVPR 2019): pictures here, sentences there, and no pair.

A generator describes a picture. A discriminator reads its sentence word by word against those of a corpus, and from its
last state the picture's vector must be reconstructed. A visual concept detector rewards the names of what it found. In
turn the generator must reconstruct any sentence of the corpus from the discriminator's last state. With f the picture's
vector and s_1 … s_n its sentence (§ 3 of the paper; `docs/systems/unsupervised.md` has all):

    generator       x_{−1} = f = unit(W v),  x_t = E s_t,  h_t = LSTM(x_t, h_{t−1}),  p_{t+1} = softmax(Eᵀ h_t + b)
    discriminator   q_t = σ(w · h'_t),  h'_t = LSTM'(E' s_t, h'_{t−1});  f' = unit(W' h'_n)
    rewards         r_t = log q_t + λ_c Σ_i [s_t = c_i] v_i,  and for the whole  −λ_im ‖f − f'‖²
    generator       −Σ_t (R_t − b_t) log p_t(s_t) + λ_sen L_sen,  R_t = −λ_im ‖f − f'‖² + Σ_{s≥t} γ^{s−t} r_s
    discriminator   −mean log q_t(written) − mean log(1 − q_t(generated)) + λ_im ‖f − f'‖²
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import END, Batch, CaptionState, RegionBatch, StepOutput, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.captioner import Captioner
from saccade.models.base.model import register
from saccade.nn.captioners import LstmMemory, start_lstm
from saccade.nn.encode import at_least_float32, dropout_layer, last_state, unit

EPSILON = 1e-7  # added to q before its logarithm


@dataclass(frozen=True)
class UnsupervisedConfig:
    """The official settings. A weight of zero leaves its part out: adversarial training alone has all three at zero."""

    region_dim: int = 1536
    dim: int = 512  # of words and of both LSTMs, which share it
    dropout: float = 0.2  # of an LSTM's inputs and outputs
    concept_weight: float = 10.0  # λ_c
    image_weight: float = 100.0  # λ_im, on the mean over the vector's numbers: 0.2 on the squared length for 512
    sentence_weight: float = 1.0  # λ_sen
    discount: float = 0.9  # γ
    largest_advantage: float = 5.0  # R − b is cut to ± this
    smoothing: float = 0.25  # of the discriminator's labels: written sentences have 1 − smoothing / 2
    baseline_mask: Literal["said", "own"] = "said"  # the greedy sentence counts up to the other's end, or its own
    first_momentum: float = 0.5  # β₁ of Adam
    concept_reader: bool = True  # encodes concepts as sentences' starts: for the initialisation only
    initialiser: Literal["xavier", "pytorch"] = "xavier"  # of f, q and f': uniform, with biases of 0; or PyTorch's own

    def __post_init__(self) -> None:
        for name in ("concept_weight", "image_weight", "sentence_weight", "largest_advantage"):
            if not getattr(self, name) >= 0:
                raise SaccadeError(f"{name} must be zero or more, not {getattr(self, name)}")
        for name in ("discount", "smoothing"):
            if not 0 <= getattr(self, name) <= 1:
                raise SaccadeError(f"{name} must be between 0 and 1, not {getattr(self, name)}")
        if not 0 <= self.first_momentum < 1:
            raise SaccadeError(f"first_momentum must be at least 0 and less than 1, not {self.first_momentum}")


@dataclass(frozen=True)
class CriticOutput(Batch):
    """The discriminator's output."""

    logits: Float[Tensor, "text step"]  # after each word: above zero, a person wrote it
    mask: Bool[Tensor, "text step"]
    recalled: Float[Tensor, "text dim"]  # f', of length one


class SentenceReader(nn.Module):
    """h_t = LSTM(w_t, h_{t−1}), with dropout of inputs and outputs but not of the recurrent state."""

    def __init__(self, vocabulary: int, dim: int, dropout: float = 0.2) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.lstm = nn.LSTM(dim, dim, batch_first=True)
        self.dropout = dropout_layer(dropout)
        start_lstm(self.lstm)
        nn.init.uniform_(self.embed.weight, -0.08, 0.08)

    def forward(
        self, words: Int[Tensor, "text step"], mask: Bool[Tensor, "text step"]
    ) -> Float[Tensor, "text step dim"]:
        """The states; zero at padding."""
        states = self.dropout(self.lstm(self.dropout(self.embed(words)))[0])
        return at_least_float32(states) * mask[:, :, None]

    def whole(self, words: Int[Tensor, "text step"], mask: Bool[Tensor, "text step"]) -> Float[Tensor, "text dim"]:
        """The last state, of length one."""
        return unit(last_state(self(words, mask), mask.sum(dim=1)))


class SentenceCritic(SentenceReader):
    """The discriminator: q_t after each word, and f' after the last."""

    def __init__(self, vocabulary: int, dim: int, dropout: float = 0.2) -> None:
        super().__init__(vocabulary, dim, dropout)
        self.natural = nn.Linear(dim, 1)
        self.recall = nn.Linear(dim, dim)

    def score(self, words: Int[Tensor, "text step"], mask: Bool[Tensor, "text step"]) -> CriticOutput:
        states = self(words, mask)
        recalled = unit(self.recall(last_state(states, mask.sum(dim=1))))
        return CriticOutput(at_least_float32(self.natural(states))[:, :, 0], mask, recalled)


@dataclass(frozen=True)
class MeanContext(Batch):
    weights: Float[Tensor, "row region"]  # of the regions in their mean


@dataclass(frozen=True)
class Rollout(Batch):
    """Generated sentences, and what is known of their pictures without captions."""

    words: Int[Tensor, "image step"]  # without <start>; what follows <end> does not count
    pictures: Float[Tensor, "image dim"] | None  # f; none where the generator started from noise
    concepts: Int[Tensor, "image concept"]
    scores: Float[Tensor, "image concept"]  # v, zero at padding


State = CaptionState[LstmMemory, MeanContext]


@register(
    "unsupervised", task="unpaired_captioning", title="Unsupervised Image Captioning", venue="Feng et al., CVPR 2019"
)
class Unsupervised(Captioner[LstmMemory, MeanContext]):
    Config = UnsupervisedConfig

    def __init__(self, config: UnsupervisedConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        size, dim = len(vocabulary), config.dim
        self.project = nn.Linear(config.region_dim, dim)
        self.embed = nn.Embedding(size, dim)
        self.bias = nn.Parameter(torch.zeros(size))
        self.cell = nn.LSTMCell(dim, dim)
        self.dropout = dropout_layer(config.dropout)
        self.critic = SentenceCritic(size, dim, config.dropout)
        self.reader = SentenceReader(size, dim, config.dropout) if config.concept_reader else None
        nn.init.uniform_(self.embed.weight, -0.08, 0.08)
        start_lstm(self.cell)
        linear = (self.project, self.critic.natural, self.critic.recall)
        for layer in linear if config.initialiser == "xavier" else ():
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def encode_images(self, images: RegionBatch) -> tuple[Float[Tensor, "image dim"], Float[Tensor, "image region"]]:
        """f, and the weights of the regions in their mean."""
        shares = (images.mask / images.mask.sum(dim=1, keepdim=True).clamp(min=1)).to(images.features.dtype)
        mean = torch.bmm(shares[:, None], images.features)[:, 0]
        return unit(self.project(mean)), shares

    def start(self, images: RegionBatch) -> State:
        return self.start_from(*self.encode_images(images))

    def start_from(
        self, vectors: Float[Tensor, "row dim"], weights: Float[Tensor, "row region"] | None = None
    ) -> State:
        """The state after x_{−1}: a picture's f, the f' of a sentence, a set of concepts, or noise."""
        memory = LstmMemory(*self.cell(self.dropout(vectors)))
        return CaptionState(memory, MeanContext(vectors.new_zeros(len(vectors), 1) if weights is None else weights))

    def step(self, words: Int[Tensor, " row"], state: State) -> StepOutput[LstmMemory, MeanContext]:
        memory, context = state.memory, state.context
        hidden, cell = self.cell(self.dropout(self.embed(words)), (memory.hidden, memory.cell))
        return StepOutput(self.dropout(hidden), CaptionState(LstmMemory(hidden, cell), context), context.weights)

    def logits(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        return F.linear(hidden, self.embed.weight, self.bias)

    # The two players. Each loss reaches its own player's weights only, so that one optimiser serves both.

    def generator_loss(
        self, log_probabilities: Float[Tensor, "image step"], rollout: Rollout, greedy: Int[Tensor, "image step"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Policy gradient with the greedy sentence's returns as the baseline; and the mean return, to be logged."""
        with torch.no_grad():
            mask = up_to_end(rollout.words)
            earned = self.returns(rollout, mask)
            own = Rollout(greedy, rollout.pictures, rollout.concepts, rollout.scores)
            baseline = self.returns(own, mask if self.config.baseline_mask == "said" else up_to_end(greedy))
            limit = self.config.largest_advantage
            advantage = (earned - baseline).clamp(-limit, limit)
        return -(log_probabilities * advantage)[mask].mean(), earned[:, 0].mean()

    def returns(self, rollout: Rollout, mask: Bool[Tensor, "image step"]) -> Float[Tensor, "image step"]:
        """R_t; the discriminator reads a sentence to its own end, rewards count where `mask` is True."""
        judged = self.critic.score(rollout.words, up_to_end(rollout.words))
        natural = (judged.logits.sigmoid() + EPSILON).log()
        named = first_mentions(rollout.words, mask, rollout.concepts, rollout.scores)
        rewards = (natural + self.config.concept_weight * named) * mask
        earned = discounted(rewards, self.config.discount)
        if rollout.pictures is None:
            return earned
        return earned - self.forgotten(rollout.pictures, judged.recalled)[:, None] * mask

    def forgotten(
        self, pictures: Float[Tensor, "image dim"], recalled: Float[Tensor, "image dim"]
    ) -> Float[Tensor, " image"]:
        """λ_im ‖f − f'‖² / dim."""
        distance: Tensor = (pictures - recalled).square().mean(dim=1)
        return distance * float(self.config.image_weight)

    def discriminator_losses(self, written: TextBatch, rollout: Rollout) -> dict[str, Float[Tensor, ""]]:
        """Written sentences against generated ones, and the reconstruction of the picture."""
        real = self.critic.score(written.tokens[:, 1:], written.mask[:, 1:])
        fake = self.critic.score(rollout.words, up_to_end(rollout.words))
        wanted = torch.full_like(real.logits, 1 - self.config.smoothing / 2)[real.mask]
        loss = F.binary_cross_entropy_with_logits(real.logits[real.mask], wanted)
        loss = loss + F.softplus(fake.logits[fake.mask]).mean()
        if rollout.pictures is None or not self.config.image_weight:
            return {"adversarial_loss": loss}
        return {"adversarial_loss": loss, "image_loss": self.forgotten(rollout.pictures.detach(), fake.recalled).mean()}

    def sentence_loss(
        self, sentences: TextBatch, vectors: Float[Tensor, "text dim"], counted: Bool[Tensor, " text"] | None = None
    ) -> Float[Tensor, ""]:
        """L_sen: −log p of the sentences' words, generated from `vectors`; the mean over the words that count."""
        forced = self.teacher_force(self.start_from(vectors), sentences.tokens[:, :-1])
        wanted = sentences.mask[:, 1:] if counted is None else sentences.mask[:, 1:] & counted[:, None]
        return forced.nll(sentences.tokens[:, 1:], wanted).sum() / wanted.sum().clamp(min=1)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """With the paper's momentum; Adam skips weights that a step's loss does not reach."""
        return [{**group, "betas": (self.config.first_momentum, 0.999)} for group in super().parameter_groups()]


def up_to_end(words: Int[Tensor, "text step"]) -> Bool[Tensor, "text step"]:
    """Which words count of sentences without <start>: up to the first <end>, or all where there is none."""
    ends = (words == END).int()
    return (torch.cumsum(ends, dim=1) - ends) == 0


def discounted(rewards: Float[Tensor, "row step"], discount: float) -> Float[Tensor, "row step"]:
    """R_t = Σ_{s ≥ t} γ^(s−t) r_s."""
    steps = torch.arange(rewards.shape[1], device=rewards.device, dtype=rewards.dtype)
    later = steps[:, None] - steps  # [s, t]
    shares = (discount ** later.clamp(min=0)).masked_fill(later < 0, 0)
    return (rewards[:, :, None] * shares).sum(dim=1)  # not as a product of matrices: mixed precision would round it


def first_mentions(
    words: Int[Tensor, "row step"],
    mask: Bool[Tensor, "row step"],
    concepts: Int[Tensor, "row concept"],
    scores: Float[Tensor, "row concept"],
) -> Float[Tensor, "row step"]:
    """Each concept's score where it is first named, in the part of the sentence that counts; padding has no score."""
    named = (words[:, :, None] == concepts[:, None]) & mask[:, :, None]
    first = named & (named.cumsum(dim=1) == 1)
    return (first * scores[:, None]).sum(dim=2)
