"""What passes between the rooms: batches of regions and words, their codes, and the alignments between them.

All are frozen dataclasses of padded tensors with masks (True where an entry is real). Padding a batch further never
changes a result: every model masks exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

Self = TypeVar("Self", bound="Batch")

# The first square root that MKL takes in a process may be off by 1e-4 (seen in 4 of 24 processes, PyTorch 2.13), which
# would make a resumed run differ from an unbroken one. It is taken here and thrown away, its siblings too.
for _first in (torch.sqrt, torch.exp, torch.log, torch.tanh):
    _first(torch.ones(16))


class Batch:
    """What the batches share: changing their tensors, moving between devices, selecting items along the first axis."""

    def map(self: Self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same batch of changed tensors, those in its batches and mappings too, in the order of the fields."""

        def changed(value: Any) -> Any:
            if isinstance(value, Batch):
                return value.map(change)
            if isinstance(value, Mapping):
                return {name: changed(part) for name, part in value.items()}
            return change(value) if isinstance(value, Tensor) else value

        return replace(self, **{f.name: changed(getattr(self, f.name)) for f in fields(self)})  # type: ignore[arg-type,type-var]

    def to(self: Self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Move to a device; `dtype` applies to the floating-point tensors only."""
        return self.map(lambda value: value.to(device=device, dtype=dtype if value.is_floating_point() else None))

    def select(self: Self, index: Sequence[int] | Sequence[bool] | np.ndarray | Tensor | slice) -> Self:
        """The items at `index`, in that order; or, for a mask of booleans, the items where it is True.

        What a slice selects is not copied.
        """
        if isinstance(index, slice) and (index.step or 1) < 0:  # which tensors do not know
            index = range(*index.indices(len(self)))
        chosen = index if isinstance(index, slice) else torch.as_tensor(index)
        if isinstance(chosen, Tensor):
            chosen = chosen.nonzero().flatten() if chosen.dtype == torch.bool else chosen.long()

        def pick(value: Any) -> Any:
            if isinstance(value, Batch):
                return value.select(chosen)
            if isinstance(value, Mapping):
                return {name: pick(part) for name, part in value.items()}
            if isinstance(value, Tensor):
                return value[chosen.to(value.device) if isinstance(chosen, Tensor) else chosen]
            if isinstance(value, tuple) and value:  # only here a GPU is asked for the positions, and waited for
                return value[chosen] if isinstance(chosen, slice) else tuple(value[i] for i in chosen.tolist())
            return value

        return replace(self, **{f.name: pick(getattr(self, f.name)) for f in fields(self)})  # type: ignore[arg-type,type-var]

    def __len__(self) -> int:
        first = getattr(self, fields(self)[0].name)  # type: ignore[arg-type]
        return len(first)


def _pad(value: Tensor, count: int, axis: int = 1) -> Tensor:
    """Append `count` zero entries along `axis`."""
    if not count:
        return value
    return torch.cat([value, value.new_zeros(*value.shape[:axis], count, *value.shape[axis + 1 :])], dim=axis)


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


def padded_ids(rows: Sequence[Sequence[int]]) -> tuple[Int[Tensor, "row id"], Bool[Tensor, "row id"]]:
    """Rows of ids padded to the longest, and where they are real."""
    size = max((len(row) for row in rows), default=0)
    padded = torch.zeros(len(rows), size, dtype=torch.long)
    mask = torch.zeros(len(rows), size, dtype=torch.bool)
    for i, row in enumerate(rows):
        padded[i, : len(row)] = torch.as_tensor(row, dtype=torch.long)
        mask[i, : len(row)] = True
    return padded, mask


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
        graph = self.graph
        if graph is not None:
            graph = replace(graph, objects=_pad(graph.objects, count), object_mask=_pad(graph.object_mask, count))
        return replace(
            self,
            graph=graph,
            features=_pad(self.features, count),
            mask=_pad(self.mask, count),
            boxes=_pad(self.boxes, count),
            scores=None if self.scores is None else _pad(self.scores, count),
        )

    @staticmethod
    def of(
        features: Sequence[np.ndarray | Tensor],
        boxes: Sequence[np.ndarray | Tensor],
        ids: Sequence[str] = (),
        scores: Sequence[np.ndarray | Tensor] | None = None,
    ) -> RegionBatch:
        """Pad ragged pictures ([region, dim] and [region, 4] each) into one batch."""
        size = max((len(f) for f in features), default=0)
        dim = features[0].shape[1] if features else 0
        padded = torch.zeros(len(features), size, dim)
        padded_boxes = torch.zeros(len(features), size, 4)
        mask = torch.zeros(len(features), size, dtype=torch.bool)
        for i, (f, b) in enumerate(zip(features, boxes, strict=True)):
            if f.shape[1:] != (dim,) or b.shape != (len(f), 4):  # or it would be broadcast, silently
                raise ValueError(f"picture {i}: features {tuple(f.shape)} and boxes {tuple(b.shape)} do not fit")
            padded[i, : len(f)] = torch.as_tensor(f)
            padded_boxes[i, : len(f)] = torch.as_tensor(b)
            mask[i, : len(f)] = True
        padded_scores = None
        if scores is not None:
            padded_scores = torch.zeros(len(features), size)
            for i, s in enumerate(scores):
                padded_scores[i, : len(s)] = torch.as_tensor(s)
        return RegionBatch(padded, mask, padded_boxes, tuple(ids), padded_scores)


@dataclass(frozen=True)
class PictureBatch(Batch):
    """Pictures as pixels, for models that train their own extractor."""

    pixels: UInt8[Tensor, "image height width 3"]
    ids: tuple[str, ...] = ()


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
        return replace(self, tokens=_pad(self.tokens, count), mask=_pad(self.mask, count))

    def trimmed(self) -> TextBatch:
        """The same sentences without the padding that the longest of them does not need."""
        longest = int(self.lengths.max()) if len(self) else 0
        return replace(self, tokens=self.tokens[:, :longest], mask=self.mask[:, :longest])

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


@dataclass(frozen=True)
class ImageCode(Batch):
    """Encoded pictures: what an index stores."""

    regions: Float[Tensor, "image region dim"]
    mask: Bool[Tensor, "image region"]
    pooled: Float[Tensor, "image dim"] | None = None  # for models that compare whole pictures
    boxes: Float[Tensor, "image region 4"] | None = None  # for models that look at where regions lie
    links: Float[Tensor, "image region region *kernel"] | None = None  # where regions take from each other: how much


@dataclass(frozen=True)
class TextCode(Batch):
    """Encoded sentences."""

    words: Float[Tensor, "text word dim"]
    mask: Bool[Tensor, "text word"]
    pooled: Float[Tensor, "text dim"] | None = None
    links: Bool[Tensor, "text word word"] | None = None  # for models that look at how words depend on each other

    @property
    def reach(self) -> Int[Tensor, " text"]:
        """How far each sentence reaches: its length, where no place before its last word is empty."""
        places = self.mask * torch.arange(1, self.mask.shape[1] + 1, device=self.mask.device)
        return places.amax(dim=1) if places.shape[1] else places.sum(dim=1)

    def trimmed(self, longest: int | None = None) -> TextCode:
        """The same sentences cut to their longest, whose length may be known: to ask a GPU for it is to wait."""
        if longest is None:
            longest = int(self.reach.max()) if len(self) else 0
        links = None if self.links is None else self.links[:, :longest, :longest]
        return replace(self, words=self.words[:, :longest], mask=self.mask[:, :longest], links=links)


@dataclass(frozen=True)
class Alignment(Batch):
    """Which word goes with which region, for pairs of a picture and a sentence."""

    weights: Float[Tensor, "pair word region"]  # over regions if words ask, over words if regions ask
    score: Float[Tensor, " pair"]
    word_mask: Bool[Tensor, "pair word"]
    region_mask: Bool[Tensor, "pair region"]
    word_score: Float[Tensor, "pair word"] | None = None  # how well each word found its regions
    region_score: Float[Tensor, "pair region"] | None = None  # how well each region found its words
    steps: Float[Tensor, "pair step word region"] | None = None  # the weights of each look, where a model looks again
    word_gate: Float[Tensor, "pair word"] | None = None  # 0..1: how far each word lets in what it found
    region_gate: Float[Tensor, "pair region"] | None = None
    word_links: Float[Tensor, "pair word word"] | None = None  # how much the first word takes from the second
    region_links: Float[Tensor, "pair region region"] | None = None


@dataclass(frozen=True)
class CaptionState(Batch):
    """A captioner in mid-sentence, one row a sentence: what it remembers, and what it has seen of the picture."""

    memory: Batch  # what changes with every word; the model's own dataclass of [row …] tensors
    seen: Batch  # what is the same at every step (regions, their keys, masks …)

    def repeat(self, count: int) -> CaptionState:
        """Every row `count` times, one after the other: the beams or samples of a picture."""
        return self.select(torch.arange(len(self)).repeat_interleave(count)) if count > 1 else self

    def remember(self, rows: Int[Tensor, " row"]) -> CaptionState:
        """Row i goes on from the memory of row `rows[i]`, which has seen the same picture."""
        return replace(self, memory=self.memory.select(rows))


@dataclass(frozen=True)
class StepOutput(Batch):
    """One step of a captioner: what the next word is said from, and where it looked."""

    hidden: Float[Tensor, "row dim"]
    state: CaptionState
    weights: Float[Tensor, "row region"]
    sentinel: Float[Tensor, " row"] | None = None  # the share of attention that went to no region
    extras: Mapping[str, Tensor] = field(default_factory=dict)  # what a paper's own loss needs, [row …] each


@dataclass(frozen=True)
class Told(Batch):
    """Captions under teacher forcing: what would be said after each word, and where the captioner looked."""

    log_probabilities: Float[Tensor, "text step word"]
    weights: Float[Tensor, "text step region"]
    sentinel: Float[Tensor, "text step"] | None = None
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def missed(self, labels: Int[Tensor, "text step"], wanted: Bool[Tensor, "text step"]) -> Float[Tensor, "text step"]:
        """−log p of each label; 0 where none is wanted."""
        said = self.log_probabilities.gather(2, labels[:, :, None])[:, :, 0]
        return -said.masked_fill(~wanted, 0)


_RAGGED_AXES = {  # of every other tensor: (1,)
    "weights": (1, 2),
    "links": (1, 2),
    "word_links": (1, 2),
    "region_links": (1, 2),
    "steps": (2, 3),
    "pooled": (),
    "score": (),
    "attributes": (1, 2),
    "attribute_mask": (1, 2),
}


def stack(parts: Sequence[Self]) -> Self:
    """Join batches along the first axis, padding their word and region axes to the longest."""

    def join(name: str) -> Any:
        values = [getattr(p, name) for p in parts]
        if values[0] is None:
            return None
        if isinstance(values[0], Batch):
            return stack(values)
        if not isinstance(values[0], Tensor):
            return tuple(v for value in values for v in value)
        for axis in _RAGGED_AXES.get(name, (1,)):
            size = max(v.shape[axis] for v in values)
            values = [_pad(v, size - v.shape[axis], axis) for v in values]
        return torch.cat(values)

    return type(parts[0])(**{f.name: join(f.name) for f in fields(parts[0])})  # type: ignore[arg-type]
