"""What models read: pictures as sets of regions or as pixels, videos as sequences of frames, scene graphs, sentences as
word ids, and pairs; of referring, candidates to choose from and texts that are read step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from saccade.batch.base import Batch


@dataclass(frozen=True)
class SceneGraphBatch(Batch):
    """Scene graphs of sentences or pictures: things, how they stand to each other, and what they are like, as word ids.

    The things of a picture are its regions, in their order; id 0 is a thing without a name.
    """

    objects: Int[Tensor, "graph object"]
    object_mask: Bool[Tensor, "graph object"]
    relations: Int[Tensor, "graph relation 3"]  # the places of subject and object, and a word
    relation_mask: Bool[Tensor, "graph relation"]
    described: Int[Tensor, "graph attributed"]  # the place of each thing that has attributes
    attributes: Int[Tensor, "graph attributed attribute"]  # its words
    attribute_mask: Bool[Tensor, "graph attributed attribute"]


@dataclass(frozen=True)
class RegionBatch(Batch):
    """Pictures as sets of regions."""

    features: Float[Tensor, "image region dim"]
    mask: Bool[Tensor, "image region"]
    boxes: Float[Tensor, "image region 4"]  # x1, y1, x2, y2 in 0..1
    ids: tuple[str, ...] = ()
    scores: Float[Tensor, "image region"] | None = None  # how sure the extractor was of each region
    graph: SceneGraphBatch | None = None  # what is known of how the regions stand to each other

    def pad(self, count: int) -> RegionBatch:
        """The same pictures with `count` more padding regions."""
        size = self.mask.shape[1] + count
        graph = None if self.graph is None else self.graph.resize(object=size)
        return replace(self.resize(region=size), graph=graph)

    @staticmethod
    def of(
        features: Sequence[np.ndarray | Tensor],
        boxes: Sequence[np.ndarray | Tensor],
        ids: Sequence[str] = (),
        scores: Sequence[np.ndarray | Tensor] | None = None,
        dim: int | None = None,
    ) -> RegionBatch:
        """Pad ragged pictures ([region, dim] and [region, 4] each) into one float32 batch. Views stay untouched."""
        dim = dim if dim is not None else features[0].shape[1] if features else 0
        for i, (f, b) in enumerate(zip(features, boxes, strict=True)):
            if f.shape[1:] != (dim,) or b.shape != (len(f), 4):  # or it would be broadcast, silently
                raise ValueError(f"picture {i}: features {tuple(f.shape)} and boxes {tuple(b.shape)} do not fit")
        padded = _padded_rows(features, dim)
        counts = torch.tensor([len(f) for f in features], dtype=torch.long)
        mask = torch.arange(padded.shape[1]) < counts[:, None]
        padded_scores = None if scores is None else _padded_rows(scores)
        return RegionBatch(padded, mask, _padded_rows(boxes, 4), tuple(ids), padded_scores)


@dataclass(frozen=True)
class FrameBatch(RegionBatch):
    """Videos as sequences of frames or clips, in the order of time, read as film strips: from left to right goes time.

    The box of a frame is its piece of the strip (x1 and x2 where it begins and ends as shares of the video, y 0 to 1),
    so whatever reads regions reads frames.
    """

    seconds: Float[Tensor, " image"] | None = None  # how long each video is

    @property
    def times(self) -> Float[Tensor, "image region 2"]:
        """When each frame begins and ends, in seconds; in shares of the video where its length is not known."""
        shares = self.boxes[..., [0, 2]]
        return shares if self.seconds is None else shares * self.seconds[:, None, None]

    @staticmethod
    def of_times(
        features: Sequence[np.ndarray | Tensor],
        times: Sequence[np.ndarray],
        seconds: Sequence[float],
        ids: Sequence[str] = (),
    ) -> FrameBatch:
        """Pad ragged videos ([frame, dim], and [frame, 2] in seconds) into one batch."""
        boxes = [
            np.stack([span[:, 0] / length, np.zeros(len(span)), span[:, 1] / length, np.ones(len(span))], axis=1)
            for span, length in zip(times, seconds, strict=True)
        ]
        return FrameBatch.of_strips(RegionBatch.of(features, boxes, ids), seconds)

    @staticmethod
    def of_strips(strips: RegionBatch, seconds: Sequence[float]) -> FrameBatch:
        """The same regions as pieces of film strips, of videos that are so long."""
        return FrameBatch(**vars(strips), seconds=torch.tensor(list(seconds), dtype=torch.float32))


def _padded_rows(items: Sequence[np.ndarray | Tensor], *shape: int) -> Float[Tensor, "item row *shape"]:
    """The rows of each item as float32, padded with zeros to the longest."""
    padded = np.zeros((len(items), max(map(len, items), default=0), *shape), dtype=np.float32)
    table = torch.from_numpy(padded)
    for i, rows in enumerate(items):
        if isinstance(rows, Tensor):
            table[i, : len(rows)] = rows
        else:  # PyTorch warns of arrays that cannot be written, as the views of a memory map
            padded[i, : len(rows)] = rows
    return table


@dataclass(frozen=True)
class PictureBatch(Batch):
    """Pictures as pixels, for models that train their own extractor."""

    pixels: UInt8[Tensor, "image height width 3"]
    ids: tuple[str, ...] = ()


Spans: TypeAlias = Sequence[Sequence[tuple[int, int]]]  # of each sentence's phrases: first token, one after the last

PAD, START, END, UNKNOWN = range(4)  # the ids of <pad>, <start>, <end> and <unk> in every vocabulary


def padded_ids(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "row id"], Bool[Tensor, "row id"]]:
    """Rows of ids padded to the longest, and where they are real."""
    size = max((len(row) for row in rows), default=0)
    padded = torch.full((len(rows), size), PAD, dtype=torch.long)
    mask = torch.zeros(len(rows), size, dtype=torch.bool)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = torch.as_tensor(row, dtype=torch.long)
        mask[i, : len(row)] = True
    return padded, mask


def phrase_words(spans: Spans, words: int) -> Float[Tensor, "text phrase word"]:
    """1 at the words of each phrase, padded to as many phrases as any sentence has."""
    table = torch.zeros(len(spans), max(map(len, spans), default=0), words)
    for own, row in zip(spans, table, strict=True):
        for (first, end), phrase in zip(own, row, strict=False):
            phrase[first:end] = 1
    return table


@dataclass(frozen=True)
class TextBatch(Batch):
    """Sentences as sequences of word ids, <start> and <end> included."""

    tokens: Int[Tensor, "text word"]
    mask: Bool[Tensor, "text word"]
    words: tuple[tuple[str, ...], ...] = ()  # as written, one per unmasked token, for pictures and reports
    links: tuple[tuple[tuple[int, int], ...], ...] = ()  # of each sentence: which words depend on each other, by place
    graph: SceneGraphBatch | None = None  # what each sentence says of which things
    phrases: tuple[tuple[tuple[int, int], ...], ...] = ()  # of each sentence: first word and the one after the last
    linked: Bool[Tensor, "text word word"] | None = None  # `links` and `phrases` as tables: see `tables`
    spans: Float[Tensor, "text phrase word"] | None = None
    roles: Int[Tensor, "text slot"] | None = None  # of a role graph: the semantic role of each of its phrases, …
    role_words: Float[Tensor, "text slot word"] | None = None  # … 1 at their words, …
    edges: Float[Tensor, "text node node"] | None = None  # … and who hears whom: the sentence first, then the phrases

    @property
    def lengths(self) -> Int[Tensor, " text"]:
        return self.mask.sum(dim=1)

    def pad(self, count: int) -> TextBatch:
        """The same sentences with `count` more padding words."""
        return self.resize(word=self.mask.shape[1] + count)

    def trimmed(self) -> TextBatch:
        """The same sentences without the padding that the longest of them does not need."""
        return self.resize(word=int(self.lengths.max()) if len(self) else 0)

    def tables(self) -> TextBatch:
        """The same sentences as tensors alone, which is what a captured training step can read."""
        linked = self.adjacency() if self.links else self.linked
        spans = self.phrase_words() if self.phrases else self.spans
        return replace(self, words=(), links=(), graph=None, phrases=(), linked=linked, spans=spans)

    def adjacency(self) -> Bool[Tensor, "text word word"]:
        """`links` as symmetric tables: True where two words of a sentence depend on each other."""
        if self.linked is not None:
            return self.linked
        texts, words = self.tokens.shape
        table = torch.zeros(texts, words, words, dtype=torch.bool)
        places = [(text, a, b) for text, pairs in enumerate(self.links) for a, b in pairs]
        if places:
            text, first, second = torch.tensor(places).T
            table[text, first, second] = table[text, second, first] = True
        return table.to(self.tokens.device)

    def phrase_words(self) -> Float[Tensor, "text phrase word"]:
        """1 at the words of each of `phrases`; a sentence of which none are known is one phrase."""
        if self.spans is not None:
            return self.spans
        whole = self.mask.float()[:, None]
        if not self.phrases:
            return whole
        table = phrase_words(self.phrases, self.tokens.shape[1]).to(self.tokens.device)
        if not table.shape[1]:
            return whole
        none = ~table.flatten(1).any(dim=1)
        table[:, :1] = torch.where(none[:, None, None], whole, table[:, :1])
        return table

    @staticmethod
    def of(tokens: Sequence[Sequence[int]], words: Sequence[Sequence[str]] = ()) -> TextBatch:
        """Pad ragged sentences into one batch."""
        return TextBatch(*padded_ids(tokens), tuple(tuple(w) for w in words))


@dataclass(frozen=True)
class PairBatch(Batch):
    """Pictures and sentences that describe them: sentence t describes picture `owner[t]` of the batch."""

    images: RegionBatch | PictureBatch
    texts: TextBatch
    owner: Int[Tensor, " text"]
    image_index: Int[Tensor, " image"]  # which picture of the data set: it may be in the batch twice


@dataclass(frozen=True)
class StepBatch(Batch):
    """Texts that are read step by step: word by word, or a dialog turn by turn."""

    tokens: Int[Tensor, "text step word"]
    mask: Bool[Tensor, "text step word"]
    shown: tuple[tuple[str, ...], ...] = ()  # every step as written, for pictures

    @property
    def steps(self) -> Bool[Tensor, "text step"]:
        """Which steps are there."""
        return self.mask.any(dim=2)

    def trimmed(self) -> StepBatch:
        """The same texts without the padding that the longest of them does not need."""
        return self.resize(step=int(self.steps.sum(dim=1).max()), word=int(self.mask.sum(dim=2).max()))

    @staticmethod
    def of(texts: Sequence[Sequence[Sequence[int]]], shown: Sequence[Sequence[str]] = ()) -> StepBatch:
        """Pad ragged texts of ragged steps into one batch."""
        steps = max(map(len, texts), default=0)
        words = max((len(step) for text in texts for step in text), default=0)
        tokens = torch.full((len(texts), steps, words), PAD, dtype=torch.long)
        mask = torch.zeros(tokens.shape, dtype=torch.bool)
        for text, own in enumerate(texts):
            for step, ids in enumerate(own):
                tokens[text, step, : len(ids)] = torch.as_tensor(ids, dtype=torch.long)
                mask[text, step, : len(ids)] = True
        return StepBatch(tokens, mask, tuple(map(tuple, shown)))


@dataclass(frozen=True)
class CandidateBatch(Batch):
    """The boxes that each text chooses from."""

    features: Float[Tensor, "text candidate dim"]
    mask: Bool[Tensor, "text candidate"]
    boxes: Float[Tensor, "text candidate 4"]  # x1, y1, x2, y2 in 0..1
    categories: Int[Tensor, "text candidate"]  # by number from 1; 0 where none is known
