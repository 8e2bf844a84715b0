"""The three parts of DenseCap after its convolutions: the localisation layer, the recognition network, the region LSTM.

`models/densecap.py` puts them together and has the paper's equations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import Batch, CaptionState, RegionBatch, Thought
from saccade.language import Vocabulary
from saccade.models.captioner import Captioner
from saccade.nn.encode import dropout_layer
from saccade.nn.lstm import LstmMemory, start_lstm
from saccade.nn.precision import full_precision
from saccade.vision.anchors import decode, encode
from saccade.vision.backbones import Backbone
from saccade.vision.bottomup_network import Join
from saccade.vision.boxes import WHOLE, clip
from saccade.vision.region_sampling import draw_both, overlaps, pick
from saccade.vision.roi import roi_bilinear, roi_max
from saccade.vision.rpn import RegionProposals, Said, propose

Pooling = Literal["bilinear", "max"]
SLACK = 1e-3  # of a side: a box that leaves the picture by less is inside
FARTHEST = 10.0  # a change larger than this is no lesson: the box and its target hardly meet


class JoinAll(Join):
    """Also the maps finer than the joined one, averaged down to it: a small backbone keeps colours there."""

    def __init__(self, backbone: Backbone, stride: int, dim: int) -> None:
        super().__init__(backbone, stride, dim)
        self.finer = nn.ModuleList(nn.Conv2d(channels, dim, 1) for channels in backbone.channels[: self.levels[0]])

    def over(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        joined = super().over(levels)
        for level, lateral in zip(levels, self.finer, strict=False):
            joined = joined + lateral(functional.adaptive_avg_pool2d(level, (joined.shape[2], joined.shape[3])))
        return joined


class Lesson(NamedTuple):
    """The boxes drawn from a batch of pictures, one after the other; `positive` ones first meet a true box `owner`."""

    image: Int[Tensor, " box"]
    boxes: Float[Tensor, "box 4"]  # with their gradient, unless it was cut
    logits: Float[Tensor, " box"]  # the proposals' confidence
    changes: Float[Tensor, "box 4"]
    anchors: Float[Tensor, "box 4"]
    positive: Bool[Tensor, " box"]
    owner: Int[Tensor, " box"]


class LocalisationLayer(nn.Module):
    """A map in; boxes out, and what the map shows at 7 × 7 places of each."""

    def __init__(
        self,
        inputs: int,
        dim: int,
        scales: Sequence[float],
        ratios: Sequence[float],
        roi: Pooling = "bilinear",
        roi_size: int = 7,
        box_gradient: bool = True,
    ) -> None:
        super().__init__()
        self.proposals = RegionProposals(inputs, dim, scales, ratios)
        nn.init.zeros_(self.proposals.changes.weight)  # every box begins as its anchor
        self.roi, self.roi_size, self.box_gradient = roi, roi_size, box_gradient

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Said:
        said: Said = self.proposals(maps)
        return said

    def lesson(
        self,
        said: Said,
        truth: Float[Tensor, "image thing 4"],
        real: Bool[Tensor, "image thing"],
        count: int,
        high: float,
        low: float,
    ) -> Lesson:
        """`count` of a picture's boxes, at most half of them positive.

        Positive are boxes as changed that overlap a true box by more than `high`, and the best of every true box;
        negative those below `low` with all. Boxes that leave the picture are not asked about, unless they are a best.
        """
        boxes = decode(said.changes, said.anchors.expand_as(said.changes))
        with torch.no_grad():
            overlap = overlaps(boxes, truth, real)
            best = (overlap >= overlap.amax(dim=1, keepdim=True)) & (overlap > 0)  # [image, box, thing]
            is_best = best.any(dim=2)
            highest, owner = overlap.max(dim=2)
            owner = torch.where(is_best, best.to(torch.uint8).argmax(dim=2), owner)
            inside = ((boxes > -SLACK) & (boxes < 1 + SLACK)).all(dim=2)
            position, drawn, positive = draw_both(
                ((highest > high) & inside) | is_best, (highest < low) & inside & ~is_best, count, count // 2
            )
            image = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(position)
        chosen = pick(boxes, position)[drawn]
        return Lesson(
            image[drawn],
            chosen if self.box_gradient else chosen.detach(),
            pick(said.logits, position)[drawn],
            pick(said.changes, position)[drawn],
            said.anchors[position][drawn],
            positive[drawn],
            pick(owner, position)[drawn],
        )

    def inside(
        self,
        maps: Float[Tensor, "image channel row column"],
        boxes: Float[Tensor, "box 4"],
        image: Int[Tensor, " box"],
    ) -> Float[Tensor, "box channel size size"]:
        """What the map shows in each box. Read bilinearly, the boxes get a gradient; max-pooled, they do not."""
        with full_precision(maps):  # a box's place in half precision would be cells off
            maps = maps.to(boxes.dtype)
            read = roi_bilinear if self.roi == "bilinear" else roi_max
            return read(maps, boxes, image, self.roi_size)

    def propose(
        self, said: Said, candidates: int, count: int, overlap: float
    ) -> tuple[Float[Tensor, "image proposal 4"], Bool[Tensor, "image proposal"]]:
        """In use: the best boxes that suppress one another no more than this."""
        boxes, _, there = propose(said, candidates, count, overlap)
        return boxes, there


class Normalised(nn.BatchNorm1d):
    """Batch normalisation over boxes; a box alone has no spread and takes what was learned so far."""

    def forward(self, vectors: Float[Tensor, "box dim"]) -> Float[Tensor, "box dim"]:
        if self.training and len(vectors) > 1:
            return super().forward(vectors)
        return functional.batch_norm(vectors, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)


class Recognition(nn.Module):
    """Two fully connected layers make a region's code; from it come its confidence and a second change of its box.

    The paper's two layers are VGG's, trained on ImageNet. Ours begin fresh, and with `normed` they have batch
    normalisation over the boxes: without, what all regions have in common grows first and drowns what tells them apart.
    """

    def __init__(self, inputs: int, dim: int, dropout: float, normed: bool = True) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, dim), nn.Linear(dim, dim)
        self.norms = nn.ModuleList(Normalised(dim) if normed else nn.Identity() for _ in range(2))
        self.dropout = dropout_layer(dropout)
        self.objectness, self.changes = nn.Linear(dim, 1), nn.Linear(dim, 4)
        for layer in (self.first, self.second):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.normal_(self.objectness.weight, std=0.01)
        for weight in (self.objectness.bias, self.changes.weight, self.changes.bias):
            nn.init.zeros_(weight)

    def forward(self, inside: Float[Tensor, "box channel size size"]) -> Float[Tensor, "box dim"]:
        code: Tensor = self.dropout(functional.relu(self.norms[0](self.first(inside.flatten(1)))))
        code = self.dropout(functional.relu(self.norms[1](self.second(code))))
        return code.float()

    def confidence(self, codes: Float[Tensor, "box dim"]) -> Float[Tensor, " box"]:
        logits: Tensor = self.objectness(codes)[:, 0].float()
        return logits

    def refine(self, boxes: Float[Tensor, "box 4"], codes: Float[Tensor, "box dim"]) -> Float[Tensor, "box 4"]:
        return clip(decode(self.changes(codes).float(), boxes))


@dataclass(frozen=True)
class WrittenRegion(Batch):
    mask: Bool[Tensor, "row 1"]  # nothing of the region is looked at again


class RegionWriter(Captioner):
    """An LSTM whose first input is the region itself, the second <start>, then word by word.

    A captioner whose pictures are single regions: rows of one code each. It looks once, before it speaks.
    """

    def __init__(
        self,
        config: Any,
        vocabulary: Vocabulary,
        code_dim: int,
        word_dim: int,
        dim: int,
        dropout: float,
        normed: bool = True,
    ) -> None:
        super().__init__(config, vocabulary)
        self.image = nn.Linear(code_dim, word_dim)
        self.norm = Normalised(word_dim) if normed else nn.Identity()
        self.embed = nn.Embedding(len(vocabulary), word_dim)
        self.lstm = nn.LSTMCell(word_dim, dim)
        self.dropout = dropout_layer(dropout)
        self.out = nn.Linear(dim, len(vocabulary))
        nn.init.kaiming_normal_(self.image.weight, nonlinearity="relu")
        start_lstm(self.lstm)  # the region is not to be forgotten while words come

    def start(self, images: RegionBatch) -> CaptionState:
        if images.features.shape[1] != 1:
            raise ValueError(f"a region is written on its own, not {images.features.shape[1]} at a time")
        hidden, cell = self.lstm(functional.relu(self.norm(self.image(images.features[:, 0]))))
        return CaptionState(LstmMemory(hidden, cell), WrittenRegion(images.mask))

    def advance(self, words: Int[Tensor, " row"], state: CaptionState) -> Thought:
        memory = state.memory
        assert isinstance(memory, LstmMemory)
        assert isinstance(state.seen, WrittenRegion)
        hidden, cell = self.lstm(self.embed(words), (memory.hidden, memory.cell))
        after = CaptionState(LstmMemory(hidden, cell), state.seen)
        return Thought(self.dropout(hidden), after, state.seen.mask.to(hidden.dtype))

    def speak(self, hidden: Float[Tensor, "*row dim"]) -> Float[Tensor, "*row word"]:
        logits: Tensor = self.out(hidden)
        return logits


def single_regions(codes: Float[Tensor, "box dim"]) -> RegionBatch:
    """Codes as the writer takes them: each a picture of one region."""
    boxes = codes.new_tensor(WHOLE).expand(len(codes), 1, 4)
    return RegionBatch(codes[:, None], torch.ones(len(codes), 1, dtype=torch.bool, device=codes.device), boxes)


def learnable(boxes: Float[Tensor, "box 4"], truth: Float[Tensor, "box 4"]) -> Float[Tensor, "box 4"]:
    """The change from each box to its true one; none where it would be absurdly large."""
    wanted = encode(truth, boxes)
    absurd = (wanted.abs() > FARTHEST).any(dim=1, keepdim=True)
    return torch.where(absurd, torch.zeros_like(wanted), wanted)
