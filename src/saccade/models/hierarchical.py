"""Hierarchical multi-task representation: Multi-Task Learning of Hierarchical Vision-Language Representation (Nguyen,
Okatani; CVPR 2019).

One stack of dense co-attention layers (`nn/coattention.py`) serves three tasks, which branch off at layers of their
own: retrieval low, phrase grounding in the middle, questions at the top. S_l and I_l are words and regions after layer
l; v_S and v_I are their summaries, of which every task has its own.

    retrieval    σ(v_Iᵀ W v_S)
    questions    σ(MLP [v_I ; v_S]), or for any answer, a the mean of its word vectors: σ(aᵀ W (v_I + v_S));
                 ours: σ(MLP (ReLU(W_I v_I) ∘ ReLU(W_S v_S)))
    grounding    p = mean of S_l over the words of a phrase,   σ(pᵀ W I_t) for every region t
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from saccade.batch import Alignment, Answered, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.answerer import Answerer, AnswererConfig
from saccade.models.base.grounder import Grounder
from saccade.models.base.matcher import Matcher
from saccade.models.base.model import Model, register
from saccade.nn.attention import summed
from saccade.nn.coattention import CoAttended, CoAttention, Summary, coattend
from saccade.nn.encode import Standardise, at_least_float32, dropout_layer, mean_state
from saccade.nn.recurrent import SentenceLstm
from saccade.ops.all_pairs import all_pairs

BRANCHES = {"matching": "retrieval_layer", "grounding": "grounding_layer", "answering": "answering_layer"}
PROTOCOLS: dict[str, type[Model]] = {"matching": Matcher, "grounding": Grounder, "answering": Answerer}


@dataclass(frozen=True)
class HierarchicalConfig(AnswererConfig):
    """The encoder's settings are DCN's; the paper's search put retrieval low, grounding next, questions on top."""

    parts: tuple[str, ...] = tuple(BRANCHES)  # the tasks that it has a branch for
    dim: int = 1024
    lstm_dim: int = 450  # of each direction
    layers: int = 5
    heads: int = 4
    nowhere: int = 3
    summaries: int = 4
    summary: Literal["mean", "apart"] = "mean"  # of the maps of a question; what each found side by side is ours
    retrieval_layer: int = 2  # after which each task branches off, from 1
    grounding_layer: int = 3
    answering_layer: int = 5
    predict: Literal["closed", "product", "open"] = "closed"  # a known answer; the same, ours; any, by its words
    word_dropout: float = 0.1
    dropout: float = 0.3

    def __post_init__(self) -> None:
        for name in BRANCHES.values():
            if not 1 <= getattr(self, name) <= self.layers:
                raise SaccadeError(f"model.{name} must be from 1 to {self.layers}, not {getattr(self, name)}")


class Branch(nn.Module):
    """A task's own summaries of both sides."""

    def __init__(self, dim: int, maps: int, apart: bool = False) -> None:
        super().__init__()
        self.regions, self.words = Summary(dim, maps, apart), Summary(dim, maps, apart)

    def forward(
        self, found: CoAttended, region_mask: Bool[Tensor, "item region"], word_mask: Bool[Tensor, "item word"]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """v_I, v_S, and the weights of both, averaged over maps."""
        picture, region_weights = self.regions(found.regions, region_mask)
        sentence, word_weights = self.words(found.words, word_mask)
        return picture, sentence, region_weights.mean(dim=1), word_weights.mean(dim=1)


class GatedPair(nn.Module):
    """ReLU(W_I v_I + b_I) ∘ ReLU(W_S v_S + b_S): the question says what counts of what was found, as Up-Down has it."""

    def __init__(self, dim: int, joint_dim: int) -> None:
        super().__init__()
        self.picture, self.question = nn.Linear(dim, joint_dim), nn.Linear(dim, joint_dim)

    def forward(
        self, picture: Float[Tensor, "question dim"], question: Float[Tensor, "question dim"]
    ) -> Float[Tensor, "question joint_dim"]:
        gated: Tensor = self.picture(picture).relu() * self.question(question).relu()
        return gated


@register(
    "hierarchical",
    task="joint",
    title="Multi-Task Learning of Hierarchical Vision-Language Representation",
    venue="Nguyen and Okatani, CVPR 2019",
)
class Hierarchical(Answerer, Matcher, Grounder):  # type: ignore[misc]  # called, it answers
    Config = HierarchicalConfig
    intended_use = "To rank pictures by sentences, to find what phrases mean, and to answer questions, and to show why."

    def __init__(self, config: HierarchicalConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        if "answering" in config.parts:
            super().__init__(config, vocabulary, extractor)
        else:  # without answers to choose from
            Model.__init__(self, config, vocabulary, extractor)
        if len(config.parts) == 1:
            self.intended_use = PROTOCOLS[config.parts[0]].intended_use
        dim, answers = config.dim, len(config.answers)
        self.words = nn.Embedding(len(vocabulary), config.word_dim)
        self.lstm = SentenceLstm(config.word_dim, config.lstm_dim, 1)
        self.word_dropout = dropout_layer(config.word_dropout)
        self.sentence = nn.Linear(config.word_dim + 2 * config.lstm_dim, dim)
        self.standardise = Standardise(config.region_dim) if config.standardise else None
        self.regions = nn.Linear(config.region_dim, dim)
        self.layers = nn.ModuleList(
            CoAttention(dim, dim, config.heads, config.nowhere, config.dropout) for _ in range(config.layers)
        )
        if "matching" in config.parts:
            self.retrieval = Branch(dim, config.summaries)
            self.retrieval_map = nn.Linear(dim, dim, bias=False)  # W of retrieval
        if "grounding" in config.parts:
            self.grounding_map = nn.Linear(dim, dim, bias=False)  # W of grounding
        if "answering" in config.parts:
            self.answering = Branch(dim, config.summaries, config.summary == "apart")
            width = self.answering.words.dim
            if config.predict == "open":
                self.answer_map = nn.Linear(width, config.word_dim, bias=False)  # W of answers
            else:
                self.gated = GatedPair(width, 2 * dim) if config.predict == "product" else None
                joint = 2 * width if self.gated is None else 2 * dim
                self.predict = nn.Sequential(nn.Linear(joint, dim), nn.ReLU(), nn.Linear(dim, answers))

    @property
    def matches(self) -> bool:
        return "matching" in self.config.parts

    @property
    def grounds(self) -> bool:
        return "grounding" in self.config.parts

    def branch_layers(self, part: str) -> nn.ModuleList:
        """The layers below a branch. Raises: SaccadeError if the model has no such branch."""
        if part not in self.config.parts:
            raise SaccadeError(f"this model was trained without {part}: its tasks are {', '.join(self.config.parts)}")
        found: nn.ModuleList = self.layers[: getattr(self.config, BRANCHES[part])]
        return found

    def encode_texts(self, texts: TextBatch) -> TextCode:
        """S_0."""
        vectors = self.words(texts.tokens) * texts.mask[..., None]
        states, _ = self.lstm(vectors, texts.lengths)
        words = self.sentence(self.word_dropout(torch.cat([vectors, states], dim=2)))
        return TextCode(at_least_float32(words), texts.mask)

    def encode_images(self, images: RegionBatch) -> ImageCode:
        """I_0."""
        features = images.features if self.standardise is None else self.standardise(images.features, images.mask)
        return ImageCode(at_least_float32(self.regions(features)), images.mask)

    def encode(self, images: RegionBatch, texts: TextBatch, part: str) -> CoAttended:
        """Picture p with text p, up to the layer where a task branches off."""
        return self.coattend(self.encode_images(images), self.encode_texts(texts), part)

    def coattend(self, images: ImageCode, texts: TextCode, part: str) -> CoAttended:
        return coattend(self.branch_layers(part), images.regions, texts.words, images.mask, texts.mask)[-1]

    def match(self, images: ImageCode, texts: TextCode) -> tuple[CoAttended, Float[Tensor, " pair"]]:
        """Picture p with text p: what they found in each other, and the logit of belonging together."""
        found = self.coattend(images, texts, "matching")
        picture, sentence, *_ = self.retrieval(found, images.mask, texts.mask)
        return found, self.match_logits(picture, sentence)

    def pair(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """The probability that a picture belongs to a text, of some pictures with some texts."""
        image, text = (torch.arange(len(side), device=images.mask.device) for side in (images, texts))
        pairs = images.select(image.repeat_interleave(len(text))), texts.select(text.repeat(len(image)))
        return self.match(*pairs)[1].sigmoid().view(len(image), len(text))

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        self.branch_layers("matching")
        if torch.is_grad_enabled():  # whole: a tile that is computed again would have another dropout
            return self.pair(images, texts)
        return all_pairs(self.pair, images, texts, self.budget)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        found, logits = self.match(images, texts)
        return Alignment(self.word_attention(found, texts.mask), logits.sigmoid(), texts.mask, images.mask)

    def locate(self, images: ImageCode, texts: TextCode) -> Alignment:
        """As `align`, what went nowhere shared out among the regions."""
        found = self.align(images, texts)
        return replace(found, weights=found.weights / found.weights.sum(dim=2, keepdim=True).clamp(min=1e-12))

    def word_attention(self, found: CoAttended, mask: Bool[Tensor, "item word"]) -> Float[Tensor, "item word region"]:
        """Where each word looked last; what went nowhere is left out."""
        return found.over_regions.mean(dim=1)[..., self.config.nowhere :] * mask[..., None]

    def match_logits(
        self, picture: Float[Tensor, "pair dim"], sentence: Float[Tensor, "pair dim"]
    ) -> Float[Tensor, " pair"]:
        score: Tensor = (picture * self.retrieval_map(sentence)).sum(dim=1)
        return score

    def ground(
        self, images: RegionBatch, texts: TextBatch, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase region"]:
        """The logit of every region being what a phrase of its text means; `phrases` has 1 at the words of each."""
        return self.ground_logits(self.encode(images, texts, "grounding"), phrases)

    def phrase_vectors(
        self, found: CoAttended, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase dim"]:
        return summed(phrases / phrases.sum(dim=2, keepdim=True).clamp(min=1), found.words)

    def ground_logits(
        self, found: CoAttended, phrases: Float[Tensor, "pair phrase word"]
    ) -> Float[Tensor, "pair phrase region"]:
        keys: Tensor = self.grounding_map(found.regions)
        return self.phrase_vectors(found, phrases) @ keys.mT

    def answer(self, images: RegionBatch, questions: TextBatch) -> Answered:
        found = self.encode(images, questions, "answering")
        picture, question, weights, word_weights = self.answering(found, images.mask, questions.mask)
        logits = self.answer_logits(picture, question)
        return Answered(logits, weights, word_weights, self.word_attention(found, questions.mask))

    def answer_logits(
        self, picture: Float[Tensor, "question dim"], question: Float[Tensor, "question dim"]
    ) -> Float[Tensor, "question answer"]:
        if self.config.predict != "open":
            joint = torch.cat([picture, question], dim=1) if self.gated is None else self.gated(picture, question)
            return at_least_float32(self.predict(joint))
        answers = self.read_answers(picture.device)
        vectors = self.words(answers.tokens) * answers.mask[..., None]
        return self.open_logits(picture, question, mean_state(vectors, answers.lengths))

    def open_logits(
        self,
        picture: Float[Tensor, "question dim"],
        question: Float[Tensor, "question dim"],
        answers: Float[Tensor, "answer word_dim"],
    ) -> Float[Tensor, "question answer"]:
        """Of any answers, as vectors."""
        return at_least_float32(self.answer_map(picture + question)) @ answers.mT
