"""Up-Down VQA: Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering (Anderson, He,
Buehler, Teney, Johnson, Gould, Zhang; CVPR 2018), its answerer; and the re-implementation that most later work builds
on (`form=reference`, after Tips and Tricks for Visual Question Answering, Teney et al., CVPR 2018).

The question, read by a GRU, attends to the regions of a detector (top-down over bottom-up); what it attended to is
multiplied with the question, and every answer gets a probability of its own.

    f(x) = tanh(W x + b) ∘ σ(W′ x + b′)                                        gated tanh: f_a, f_q, f_v, f_o
    q = GRU(words)           a_i = w_a · f_a([v_i ; q])     α = softmax(a)     v̂ = Σ α_i v_i
    h = f_q(q) ∘ f_v(v̂)      p(y) = σ(W_o f_o(h))

The reference has f(x) = ReLU(g V x / ‖V‖ + b), a_i = w · (f(v_i) ∘ f′(q)) + b (`attention=product`), and two layers at
the end; it reads zeros before a question, up to `places` words.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import Answered, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.language import Vocabulary
from saccade.models.base.answerer import Answerer, AnswererConfig
from saccade.models.base.model import register
from saccade.nn.attention import masked_softmax, summed
from saccade.nn.encode import ScalarWeightNorm, Standardise, at_least_float32, dropout_layer, last_state
from saccade.nn.recurrent import SentenceGru


@dataclass(frozen=True)
class UpDownVqaConfig(AnswererConfig):
    """The paper's form. The reference's is `form=reference attention=product places=14 dim=1024`, with its dropout."""

    dim: int = 512  # of the question and of everything that follows
    form: Literal["paper", "reference"] = "paper"
    attention: Literal["concat", "product"] = "concat"  # a_i from [v_i ; q], or from a product of both
    fusion: Literal["product", "sum"] = "product"  # h; sum is ours
    question: Literal["state", "words"] = "state"  # q: the GRU's last state; words, ours: plus W_b Σ_t e_t
    maps: int = 1  # of attention, each with its own w_a; what several find stands side by side in v̂, which is ours
    gain: float = 5 / 3  # of Xavier's start of the paper's layers, which does not say how weights begin; 5/3 suits tanh
    places: int = 0  # zeros are read before a shorter question, and a longer one is cut; 0: the words alone
    attention_dropout: float = 0.0  # 0.2 in the reference
    dropout: float = 0.0  # before the last layer; 0.5 in the reference

    def __post_init__(self) -> None:
        check_ranges(self, "maps", "at least 1")


class GatedTanh(nn.Module):
    """f(x) = tanh(W x + b) ∘ σ(W′ x + b′).

    With PyTorch's own start a fortieth of the spread of the inputs comes through two layers and a product, and learning
    begins late; with Xavier's, at the gain of tanh, a seventh.
    """

    def __init__(self, in_dim: int, dim: int, gain: float) -> None:
        super().__init__()
        self.linear, self.gate = nn.Linear(in_dim, dim), nn.Linear(in_dim, dim)
        for layer in (self.linear, self.gate):
            nn.init.xavier_normal_(layer.weight, gain)

    def forward(self, inputs: Float[Tensor, "*item in"]) -> Float[Tensor, "*item dim"]:
        return torch.tanh(self.linear(inputs)) * torch.sigmoid(self.gate(inputs))


class NormedReLU(ScalarWeightNorm):
    """f(x) = ReLU(g V x / ‖V‖ + b)."""

    def forward(self, inputs: Float[Tensor, "*item in"]) -> Float[Tensor, "*item dim"]:
        return super().forward(inputs).relu()


@register(
    "updown_vqa",
    task="answering",
    title="Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering",
    venue="Anderson et al., CVPR 2018",
)
class UpDownVqa(Answerer):
    Config = UpDownVqaConfig

    def __init__(self, config: UpDownVqaConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        dim, region_dim, answers = config.dim, config.region_dim, len(config.answers)
        reference = config.form == "reference"
        layer = NormedReLU if reference else partial(GatedTanh, gain=config.gain)
        self.standardise = Standardise(region_dim) if config.standardise else None
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.gru = SentenceGru(config.word_dim, dim)
        self.bag = nn.Linear(config.word_dim, dim) if config.question == "words" else None  # W_b
        if config.attention == "concat":
            self.joined = layer(region_dim + dim, dim)  # f_a
        else:
            self.region_key, self.question_key = layer(region_dim, dim), layer(dim, dim)
        self.attention_dropout = dropout_layer(config.attention_dropout)
        maps = config.maps
        self.weigh = ScalarWeightNorm(dim, maps) if reference else nn.Linear(dim, maps, bias=False)  # w_a
        self.question, self.picture = layer(dim, dim), layer(maps * region_dim, dim)  # f_q, f_v
        wide = 2 * dim if reference else dim
        self.joint = layer(dim, wide)  # f_o
        self.dropout = dropout_layer(config.dropout)
        self.out = ScalarWeightNorm(wide, answers) if reference else nn.Linear(wide, answers)  # W_o

    def question_states(self, questions: TextBatch) -> Float[Tensor, "question word dim"]:
        """The GRU's states; with `places`, as many as those, of which the last belongs to the last word."""
        places, vectors = self.config.places, self.words(questions.tokens)
        states: Tensor
        if not places:
            states = self.gru(vectors, questions.lengths)
            return states
        lengths = questions.lengths.clamp(max=places)
        word = torch.arange(places, device=lengths.device) - (places - lengths)[:, None]  # below 0: before the question
        laid = vectors.gather(1, word.clamp(min=0)[..., None].expand(-1, -1, vectors.shape[2]))
        states = self.gru(laid * (word >= 0)[..., None], torch.full_like(lengths, places))
        return states

    def encode_questions(self, questions: TextBatch) -> Float[Tensor, "question dim"]:
        states = self.question_states(questions)
        last = at_least_float32(states[:, -1]) if self.config.places else last_state(states, questions.lengths)
        if self.bag is None:
            return last
        words = self.words(questions.tokens) * questions.mask[..., None]
        return last + at_least_float32(self.bag(words.sum(dim=1)))

    def attention_scores(
        self, regions: Float[Tensor, "question region in"], question: Float[Tensor, "question dim"]
    ) -> Float[Tensor, "question map region"]:
        if self.config.attention == "concat":
            beside = question[:, None].expand(-1, regions.shape[1], -1)
            keys = self.joined(torch.cat([regions, beside], dim=2))
        else:
            keys = self.region_key(regions) * self.question_key(question)[:, None]
        scores: Tensor = self.weigh(self.attention_dropout(keys)).mT
        return scores

    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered:
        regions = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        question = self.encode_questions(questions)  # q
        weights = masked_softmax(self.attention_scores(regions, question), images.mask[:, None])  # α
        found = summed(weights, regions)  # v̂
        read, seen = self.question(question), self.picture(found.flatten(1))
        joint = read * seen if self.config.fusion == "product" else read + seen  # h
        return Answered(at_least_float32(self.out(self.dropout(self.joint(joint)))), weights.mean(dim=1))
