"""DCN: Improved Fusion of Visual and Language Representations by Dense Symmetric Co-Attention for Visual Question
Answering (Nguyen, Okatani; CVPR 2018).

Words and regions attend to each other in every layer, both ways at once, with a few learned entries for "nowhere"; a
stack of such layers lets each side see what the other found (`nn/coattention.py` has the layer's equations).

    S_0 = W [e_t ; BiLSTM(e)_t]        I_0 = unit(W x + b)        (S_l, I_l) = CoAttention_l(S_{l−1}, I_{l−1})
    s_I = Σ_t α_t I_{L,t}              s_S = Σ_t β_t S_{L,t}                              summaries
    concat: MLP [s_I ; s_S]            sum: MLP (s_I + s_S)       answer: s_aᵀ W (s_I + s_S), s_a the encoded answer

With `levels`, a region has the features of several layers of a backbone side by side, and the question says how much of
each is looked at: I_0 = Σ_l λ_l unit(W_l x_l + b_l), λ = mean over heads of softmax over levels of MLP(question).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from saccade.batch import Answered, RegionBatch, TextBatch
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.answerer import Answerer, AnswererConfig
from saccade.models.base.model import register
from saccade.nn.coattention import CoAttention, Summary, Updates, coattend
from saccade.nn.encode import Standardise, at_least_float32, dropout_layer, unit
from saccade.nn.recurrent import SentenceLstm


@dataclass(frozen=True)
class DcnConfig(AnswererConfig):
    """The official settings with bottom-up regions. `layers=1`, `nowhere=0` and `updates=…` are the ablations."""

    dim: int = 1024  # of words
    image_dim: int = 2048  # of regions
    region_length: float = 1.0  # of I_0, the official code's, where words are some ten long; others are ours
    levels: tuple[int, ...] = ()  # widths of the backbone's layers that stand side by side in a region's features
    level_heads: int = 4
    lstm_dim: int = 450  # of each direction
    lstm_layers: int = 2
    layers: int = 5  # of co-attention
    heads: int = 4
    nowhere: int = 3
    updates: Updates = "both"
    summaries: int = 4  # maps of each side's summary
    predict: Literal["concat", "sum", "answer"] = "concat"
    word_dropout: float = 0.1  # of what S_0 is made of, and between the LSTM's layers
    dropout: float = 0.3
    initialiser: Literal["xavier", "pytorch"] = "xavier"  # of linear layers: normal, with biases of 0; or PyTorch's own

    def __post_init__(self) -> None:
        check_ranges(self, "region_length", "more than zero")
        if self.levels and sum(self.levels) != self.region_dim:
            raise SaccadeError(f"model.levels add up to {sum(self.levels)}, a region has {self.region_dim} numbers")
        if self.predict != "concat" and self.dim != self.image_dim:
            raise SaccadeError(f"predict={self.predict} adds both summaries: dim and image_dim must be equal")


class Levels(nn.Module):
    """I_0 = Σ_l λ_l unit(W_l x_l + b_l): the question chooses among a backbone's layers."""

    def __init__(self, widths: tuple[int, ...], dim: int, question_dim: int, heads: int) -> None:
        super().__init__()
        self.widths, self.heads = widths, heads
        self.maps = nn.ModuleList(nn.Linear(width, dim) for width in widths)
        half = question_dim // 2
        self.choose = nn.Sequential(nn.Linear(question_dim, half), nn.ReLU(), nn.Linear(half, heads * len(widths)))

    def weights(self, question: Float[Tensor, "question dim"]) -> Float[Tensor, "question head level"]:
        scores: Tensor = self.choose(question).unflatten(1, (self.heads, len(self.widths)))
        return at_least_float32(scores).softmax(dim=2)

    def forward(
        self, features: Float[Tensor, "question region in"], question: Float[Tensor, "question dim"]
    ) -> Float[Tensor, "question region dim"]:
        parts = zip(self.maps, torch.split(features, list(self.widths), dim=2), strict=True)
        levels = torch.stack([unit(level(part)) for level, part in parts], dim=1)
        return (levels * self.weights(question).mean(dim=1)[:, :, None, None]).sum(dim=1)


@register(
    "dcn",
    task="answering",
    title="Improved Fusion of Visual and Language Representations by Dense Symmetric Co-Attention for Visual Question "
    "Answering",
    venue="Nguyen and Okatani, CVPR 2018",
)
class Dcn(Answerer):
    Config = DcnConfig

    def __init__(self, config: DcnConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        dim, image_dim, states = config.dim, config.image_dim, 2 * config.lstm_dim
        final = config.lstm_layers * states
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.lstm = SentenceLstm(config.word_dim, config.lstm_dim, config.lstm_layers, dropout=config.word_dropout)
        self.word_dropout, self.dropout = dropout_layer(config.word_dropout), dropout_layer(config.dropout)
        self.question = nn.Linear(config.word_dim + states, dim)
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.levels = Levels(config.levels, image_dim, final, config.level_heads) if config.levels else None
        self.regions = None if config.levels else nn.Linear(config.region_dim, image_dim)
        self.layers = nn.ModuleList(
            CoAttention(image_dim, dim, config.heads, config.nowhere, config.dropout, config.updates)
            for _ in range(config.layers)
        )
        self.region_summary, self.word_summary = Summary(image_dim, config.summaries), Summary(dim, config.summaries)
        joint = dim + image_dim if config.predict == "concat" else dim
        if config.predict == "answer":
            self.answer_map = nn.Linear(joint, final, bias=False)  # W
        else:
            half = (dim + image_dim) // 2
            self.predict = nn.Sequential(
                nn.Linear(joint, half), nn.ReLU(), self.dropout, nn.Linear(half, len(config.answers))
            )
        for layer in self.modules() if config.initialiser == "xavier" else ():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def encode_questions(
        self, questions: TextBatch
    ) -> tuple[Float[Tensor, "question word dim"], Float[Tensor, "question final_dim"]]:
        """S_0, and the LSTM's last states."""
        vectors = self.words(questions.tokens) * questions.mask[..., None]
        states, final = self.lstm(vectors, questions.lengths)
        words: Tensor = self.question(self.word_dropout(torch.cat([vectors, states], dim=2)))
        return at_least_float32(words), at_least_float32(final)

    def encode_regions(
        self, images: RegionBatch, final: Float[Tensor, "question final_dim"]
    ) -> Float[Tensor, "question region dim"]:
        """I_0."""
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        if self.levels is not None:
            found: Tensor = self.levels(features, final)
        else:
            assert self.regions is not None
            found = unit(at_least_float32(self.regions(features)))
        scaled: Tensor = self.config.region_length * found
        return scaled

    def encode_answers(self, answers: TextBatch) -> Float[Tensor, "answer final_dim"]:
        """s_a: the LSTM's last states over the words of an answer."""
        return self.encode_questions(answers)[1]

    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered:
        words, final = self.encode_questions(questions)
        regions = self.encode_regions(images, final)
        last = coattend(self.layers, regions, words, images.mask, questions.mask)[-1]
        picture, region_weights = self.region_summary(last.regions, images.mask)  # s_I
        question, word_weights = self.word_summary(last.words, questions.mask)  # s_S
        return Answered(
            self.logits(picture, question),
            region_weights.mean(dim=1),
            word_weights.mean(dim=1),
            last.over_regions.mean(dim=1)[..., self.config.nowhere :] * questions.mask[..., None],
        )

    def logits(
        self, picture: Float[Tensor, "question dim"], question: Float[Tensor, "question dim"]
    ) -> Float[Tensor, "question answer"]:
        joint = torch.cat([picture, question], dim=1) if self.config.predict == "concat" else picture + question
        if self.config.predict != "answer":
            return at_least_float32(self.predict(joint))
        answers = self.encode_answers(self.read_answers(joint.device))
        return at_least_float32(self.answer_map(joint)) @ answers.mT
