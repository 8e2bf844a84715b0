"""What models give: codes of pictures and sentences, alignments of words and regions, and a captioner's states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from typing_extensions import TypeVar

from saccade.batch.base import Batch


@dataclass(frozen=True)
class ImageCode(Batch):
    """Encoded pictures: what an index stores."""

    regions: Float[Tensor, "image region dim"]
    mask: Bool[Tensor, "image region"]
    pooled: Float[Tensor, "image dim"] | None = None  # for models that compare whole pictures
    boxes: Float[Tensor, "image region 4"] | None = None  # for models that use where regions lie
    links: Float[Tensor, "image region region *kernel"] | None = None  # where regions take from each other: how much


@dataclass(frozen=True)
class TextCode(Batch):
    """Encoded sentences."""

    words: Float[Tensor, "text word dim"]
    mask: Bool[Tensor, "text word"]
    pooled: Float[Tensor, "text dim"] | None = None
    links: Bool[Tensor, "text word word"] | None = None  # for models that use how words depend on each other
    phrases: Float[Tensor, "text phrase word"] | None = None  # for models of phrases: 1 at the words of each
    nodes: Float[Tensor, "text phrase dim"] | None = None  # … and their vectors, where they are encoded as such

    @property
    def reach(self) -> Int[Tensor, " text"]:
        """How far each sentence reaches: its length, where no place before its last word is empty."""
        places = self.mask * torch.arange(1, self.mask.shape[1] + 1, device=self.mask.device)
        return places.amax(dim=1) if places.shape[1] else places.sum(dim=1)

    def trimmed(self, longest: int | None = None) -> TextCode:
        """The same sentences cut to their longest, whose length may be known: reading it from a GPU synchronises."""
        if longest is None:
            longest = int(self.reach.max()) if len(self) else 0
        links = None if self.links is None else self.links[:, :longest, :longest]
        phrases = None if self.phrases is None else self.phrases[:, :, :longest]
        return replace(self, words=self.words[:, :longest], mask=self.mask[:, :longest], links=links, phrases=phrases)


@dataclass(frozen=True)
class Alignment(Batch):
    """Which word goes with which region, for pairs of a picture and a sentence."""

    weights: Float[Tensor, "pair word region"]  # over regions if words are the queries, else over words
    score: Float[Tensor, " pair"]
    word_mask: Bool[Tensor, "pair word"]
    region_mask: Bool[Tensor, "pair region"]
    word_score: Float[Tensor, "pair word"] | None = None  # how well each word found its regions
    region_score: Float[Tensor, "pair region"] | None = None  # how well each region found its words
    steps: Float[Tensor, "pair step word region"] | None = None  # the weights of each step, where there are several
    word_gate: Float[Tensor, "pair word"] | None = None  # 0..1: how far each word lets in what it found
    region_gate: Float[Tensor, "pair region"] | None = None
    word_level: Int[Tensor, "pair word"] | None = None  # which of a backbone's layers each word was found in
    word_links: Float[Tensor, "pair word word"] | None = None  # how much the first word takes from the second
    region_links: Float[Tensor, "pair region region"] | None = None
    level_score: Float[Tensor, "pair level"] | None = None  # what each level of matching adds to the score


@dataclass(frozen=True)
class Answered(Batch):
    """What a model answers to questions, and what it attended to."""

    logits: Float[Tensor, "question answer"]  # of each answer that the model knows
    weights: Float[Tensor, "question region"]  # how much each region counted
    word_weights: Float[Tensor, "question word"] | None = None  # how much each word counted
    alignment: Float[Tensor, "question word region"] | None = None  # where each word looked, last


@dataclass(frozen=True)
class Referred(Batch):
    """Which candidate each text means, after every step of reading it; after the last in `logits`."""

    logits: Float[Tensor, "text candidate"]  # of those that are no candidates: the least there is
    steps: Float[Tensor, "text step candidate"]
    candidates: Float[Tensor, "text step candidate"] | None  # how much each was attended to
    regions: Float[Tensor, "text step region"] | None  # … and each region of the picture


@dataclass(frozen=True)
class RankedMoments(Batch):
    """When in its video each text is true: moments with a score, the best first."""

    spans: Float[Tensor, "text moment 2"]  # begin and end
    scores: Float[Tensor, "text moment"]
    mask: Bool[Tensor, "text moment"]
    curve: Float[Tensor, "text place"] | None = None  # how well each piece of the video fits, for pictures
    weights: Float[Tensor, "text level word"] | None = None  # what each level of a model read, for the same

    def scaled(self, seconds: Float[Tensor, " text"]) -> RankedMoments:
        """From shares of the videos to seconds."""
        return replace(self, spans=self.spans * seconds[:, None, None].to(self.spans))


Memory = TypeVar("Memory", bound=Batch, default=Any)  # what changes with every word; the model's own dataclass
Context = TypeVar("Context", bound=Batch, default=Any)  # what is the same at every step: regions, their keys, masks …


@dataclass(frozen=True)
class CaptionState(Batch, Generic[Memory, Context]):
    """A captioner in mid-sentence, one row a sentence."""

    memory: Memory
    context: Context

    def repeat(self, count: int) -> CaptionState[Memory, Context]:
        """Every row `count` times, one after the other: the beams or samples of a picture."""
        return self.select(torch.arange(len(self)).repeat_interleave(count)) if count > 1 else self

    def reorder(self, rows: Int[Tensor, " row"]) -> CaptionState[Memory, Context]:
        """Row i goes on from the memory of row `rows[i]`, whose context is the same."""
        return replace(self, memory=self.memory.select(rows))


@dataclass(frozen=True)
class StepOutput(Batch, Generic[Memory, Context]):
    """One step of a captioner: what the next word's logits are made of, and where it attended."""

    hidden: Float[Tensor, "row dim"]
    state: CaptionState[Memory, Context]
    weights: Float[Tensor, "row region"]
    sentinel: Float[Tensor, " row"] | None = None  # the share of attention that went to no region
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # what a paper's own loss needs, [row …] each


@dataclass(frozen=True)
class TeacherForced(Batch):
    """Captions under teacher forcing: the next word's log-probabilities after each word, and where it attended."""

    log_probabilities: Float[Tensor, "text step word"]
    weights: Float[Tensor, "text step region"]
    sentinel: Float[Tensor, "text step"] | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def nll(self, labels: Int[Tensor, "text step"], wanted: Bool[Tensor, "text step"]) -> Float[Tensor, "text step"]:
        """−log p of each label; 0 where none is wanted."""
        said = self.log_probabilities.gather(2, labels[:, :, None])[:, :, 0]
        return -said.masked_fill(~wanted, 0)
