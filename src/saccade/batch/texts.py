"""Sentences as word ids, and pictures with sentences that describe them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from saccade.batch.base import Batch
from saccade.batch.regions import PictureBatch, RegionBatch, SceneGraphBatch

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


@dataclass(frozen=True)
class TextBatch(Batch):
    """Sentences as sequences of word ids, <start> and <end> included."""

    tokens: Int[Tensor, "text word"]
    mask: Bool[Tensor, "text word"]
    words: tuple[tuple[str, ...], ...] = ()  # as written, one per unmasked token, for pictures and reports
    links: tuple[tuple[tuple[int, int], ...], ...] = ()  # of each sentence: which words depend on each other, by place
    graph: SceneGraphBatch | None = None  # what each sentence says of which things

    @property
    def lengths(self) -> Int[Tensor, " text"]:
        return self.mask.sum(dim=1)

    def pad(self, count: int) -> TextBatch:
        """The same sentences with `count` more padding words."""
        return self.resize(word=self.mask.shape[1] + count)

    def trimmed(self) -> TextBatch:
        """The same sentences without the padding that the longest of them does not need."""
        return self.resize(word=int(self.lengths.max()) if len(self) else 0)

    def adjacency(self) -> Bool[Tensor, "text word word"]:
        """`links` as symmetric tables: True where two words of a sentence depend on each other."""
        texts, words = self.tokens.shape
        table = torch.zeros(texts, words, words, dtype=torch.bool)
        places = [(text, a, b) for text, pairs in enumerate(self.links) for a, b in pairs]
        if places:
            text, first, second = torch.tensor(places).T
            table[text, first, second] = table[text, second, first] = True
        return table.to(self.tokens.device)

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
