"""DenseCap: Fully Convolutional Localization Networks for Dense Captioning (Johnson, Karpathy, Fei-Fei; CVPR 2016).

Finds the regions of a picture and describes each by a phrase, in one pass of one network.

    U         = convolutions(picture)
    t, s      = proposals(U)                            of k anchors a cell: a change, a confidence
    x         = xₐ + t_x wₐ,  w = wₐ e^{t_w}            the changed anchor (y, h likewise)
    V_{c,i,j} = Σ_{i',j'} U_{c,i',j'} k(i' − x_{ij}) k(j' − y_{ij}),  k(d) = max(0, 1 − |d|)
    v         = relu(W₂ relu(W₁ V))                     the region's code: recognition network
    s', t'    = w·v, W v                                confidence and change once more
    x₋₁, x₀ … = W v, <start>, s₁ … s_T                  inputs of the LSTM, which predicts s₁ … s_T, <end>

    L = 0.1 (L_objectness + L_boxes) of the proposals + 0.1 (L_objectness + L_boxes) of the regions + L_phrases

The kernel k reads the map U at points of the box, so the loss of a phrase has a gradient in the box itself; with
`roi="max"` (Fast R-CNN's pooling) it has none. The backbone is any of Saccade's, not VGG-16.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import PAD, Batch, CaptionState, PictureBatch, RegionBatch, StepOutput
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.captioner import Captioner
from saccade.models.base.model import Model, register
from saccade.nn.captioners import LstmMemory, start_lstm
from saccade.nn.encode import RowBatchNorm, dropout_layer, full_precision
from saccade.vision.backbones.base import Backbone, load_backbone, stretch
from saccade.vision.backbones.pyramid import FeaturePyramid
from saccade.vision.boxes import WHOLE, clip, overlaps, pick
from saccade.vision.detectors.rpn import RegionProposalNetwork, RPNOutput, decode, draw_both, encode, propose
from saccade.vision.nms import nms
from saccade.vision.roi import roi_bilinear, roi_max

Pooling = Literal["bilinear", "max"]
INSIDE_TOLERANCE = 1e-3  # of a side: a box that leaves the picture by less is inside
MAX_LEARNED_CHANGE = 10.0  # beyond it a box and its target hardly overlap: none is learned


class AllLevelsPyramid(FeaturePyramid):
    """Also adds the finer maps, averaged down: a small backbone keeps colours there."""

    def __init__(self, backbone: Backbone, stride: int, dim: int) -> None:
        super().__init__(backbone, stride, dim)
        self.finer = nn.ModuleList(nn.Conv2d(channels, dim, 1) for channels in backbone.channels[: self.levels[0]])

    def add_levels(self, levels: tuple[Tensor, ...]) -> Float[Tensor, "image dim row column"]:
        joined = super().add_levels(levels)
        for level, lateral in zip(levels, self.finer, strict=False):
            joined = joined + lateral(F.adaptive_avg_pool2d(level, (joined.shape[2], joined.shape[3])))
        return joined


class SampledBoxes(NamedTuple):
    """The boxes sampled from a batch of pictures, one after the other; each has a true box, its `owner`."""

    image: Int[Tensor, " box"]
    boxes: Float[Tensor, "box 4"]  # with their gradient, unless it was cut
    logits: Float[Tensor, " box"]  # the proposals' confidence
    changes: Float[Tensor, "box 4"]
    anchors: Float[Tensor, "box 4"]
    positive: Bool[Tensor, " box"]
    owner: Int[Tensor, " box"]


class LocalisationLayer(nn.Module):
    """Proposes boxes on a map, and reads the map at 7 × 7 places of each."""

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
        self.proposals = RegionProposalNetwork(inputs, dim, scales, ratios)
        nn.init.zeros_(self.proposals.changes.weight)  # every box begins as its anchor
        self.roi, self.roi_size, self.box_gradient = roi, roi_size, box_gradient

    def sample(
        self,
        output: RPNOutput,
        truth: Float[Tensor, "image thing 4"],
        real: Bool[Tensor, "image thing"],
        count: int,
        high: float,
        low: float,
    ) -> SampledBoxes:
        """`count` of a picture's boxes, at most half of them positive.

        Positive are boxes as changed that overlap a true box by more than `high`, and the best of every true box;
        negative those below `low` with all. Boxes that leave the picture count only as the best of a true box.
        """
        boxes = decode(output.changes, output.anchors.expand_as(output.changes))
        with torch.no_grad():
            overlap = overlaps(boxes, truth, real)
            best = (overlap >= overlap.amax(dim=1, keepdim=True)) & (overlap > 0)  # [image, box, thing]
            is_best = best.any(dim=2)
            highest, owner = overlap.max(dim=2)
            owner = torch.where(is_best, best.to(torch.uint8).argmax(dim=2), owner)
            inside = ((boxes > -INSIDE_TOLERANCE) & (boxes < 1 + INSIDE_TOLERANCE)).all(dim=2)
            position, drawn, positive = draw_both(
                ((highest > high) & inside) | is_best, (highest < low) & inside & ~is_best, count, count // 2
            )
            image = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(position)
        chosen = pick(boxes, position)[drawn]
        return SampledBoxes(
            image[drawn],
            chosen if self.box_gradient else chosen.detach(),
            pick(output.logits, position)[drawn],
            pick(output.changes, position)[drawn],
            output.anchors[position][drawn],
            positive[drawn],
            pick(owner, position)[drawn],
        )

    def inside(
        self,
        maps: Float[Tensor, "image channel row column"],
        boxes: Float[Tensor, "box 4"],
        image: Int[Tensor, " box"],
    ) -> Float[Tensor, "box channel size size"]:
        """The map inside each box, V. Read bilinearly, the boxes get a gradient; max-pooled, they do not."""
        with full_precision(maps):  # a box's place in half precision would be cells off
            read = roi_bilinear if self.roi == "bilinear" else roi_max
            return read(maps.to(boxes.dtype), boxes, image, self.roi_size)


class Recognition(nn.Module):
    """Two fully connected layers give a region's code; from it come its confidence and a second change of its box.

    The paper's two layers are VGG's, trained on ImageNet. Ours begin fresh, and learn faster with batch normalisation
    over the boxes (`normed`).
    """

    def __init__(self, inputs: int, dim: int, dropout: float, normed: bool = True) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, dim), nn.Linear(dim, dim)
        self.norms = nn.ModuleList(RowBatchNorm(dim) if normed else nn.Identity() for _ in range(2))
        self.dropout = dropout_layer(dropout)
        self.objectness, self.changes = nn.Linear(dim, 1), nn.Linear(dim, 4)
        for layer in (self.first, self.second):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        nn.init.normal_(self.objectness.weight, std=0.01)
        for weight in (self.objectness.bias, self.changes.weight, self.changes.bias):
            nn.init.zeros_(weight)

    def forward(self, inside: Float[Tensor, "box channel size size"]) -> Float[Tensor, "box dim"]:
        code: Tensor = self.dropout(self.norms[0](self.first(inside.flatten(1))).relu())
        code = self.dropout(self.norms[1](self.second(code)).relu())
        return code.float()

    def confidence(self, codes: Float[Tensor, "box dim"]) -> Float[Tensor, " box"]:
        logits: Tensor = self.objectness(codes)[:, 0].float()
        return logits


@dataclass(frozen=True)
class WrittenRegion(Batch):
    mask: Bool[Tensor, "row 1"]  # there is nothing more to attend to


class RegionWriter(Captioner[LstmMemory, WrittenRegion]):
    """An LSTM whose first input is the region itself, the second <start>, then word by word.

    A captioner whose pictures are single regions: rows of one code each.
    """

    def __init__(self, config: DenseCapConfig, vocabulary: Vocabulary) -> None:
        super().__init__(config, vocabulary)
        self.image = nn.Linear(config.dim, config.word_dim)
        self.norm = RowBatchNorm(config.word_dim) if config.normed else nn.Identity()
        self.embed = nn.Embedding(len(vocabulary), config.word_dim)
        self.lstm = nn.LSTMCell(config.word_dim, config.hidden_dim)
        self.dropout = dropout_layer(config.dropout)
        self.out = nn.Linear(config.hidden_dim, len(vocabulary))
        nn.init.kaiming_normal_(self.image.weight, nonlinearity="relu")
        start_lstm(self.lstm)  # remembers the region while words come

    def start(self, images: RegionBatch) -> CaptionState[LstmMemory, WrittenRegion]:
        if images.features.shape[1] != 1:
            raise ValueError(f"a region is written on its own, not {images.features.shape[1]} at a time")
        hidden, cell = self.lstm(self.norm(self.image(images.features[:, 0])).relu())
        return CaptionState(LstmMemory(hidden, cell), WrittenRegion(images.mask))

    def step(
        self, words: Int[Tensor, " row"], state: CaptionState[LstmMemory, WrittenRegion]
    ) -> StepOutput[LstmMemory, WrittenRegion]:
        hidden, cell = self.lstm(self.embed(words), (state.memory.hidden, state.memory.cell))
        after = CaptionState(LstmMemory(hidden, cell), state.context)
        return StepOutput(self.dropout(hidden), after, state.context.mask.to(hidden.dtype))


def single_regions(codes: Float[Tensor, "box dim"]) -> RegionBatch:
    """Each code as a picture of one region."""
    boxes = codes.new_tensor(WHOLE).expand(len(codes), 1, 4)
    return RegionBatch(codes[:, None], torch.ones(len(codes), 1, dtype=torch.bool, device=codes.device), boxes)


def learnable(boxes: Float[Tensor, "box 4"], truth: Float[Tensor, "box 4"]) -> Float[Tensor, "box 4"]:
    """The change from each box to its true one; zero where it would be absurdly large."""
    wanted = encode(truth, boxes)
    absurd = (wanted.abs() > MAX_LEARNED_CHANGE).any(dim=1, keepdim=True)
    return torch.where(absurd, torch.zeros_like(wanted), wanted)


@dataclass(frozen=True)
class DenseCapConfig:
    """The paper's settings; the sizes of map and code fit a backbone smaller than VGG-16 (512 and 4096)."""

    backbone: str = "efficientnet-lite0"
    size: int = 384  # pictures are stretched to this square; the paper's longer side is 720
    stride: int = 16  # of the map, into which all of the backbone's maps are joined
    frozen: int = 4  # so many of the backbone's first parts stay as they are (EfficientNet-Lite has nine)
    backbone_rate: float = 0.1  # how fast the rest of it learns, beside the new layers
    map_dim: int = 256
    scales: tuple[float, ...] = (64 / 720, 128 / 720, 256 / 720, 512 / 720)  # √area of the anchors, in sides
    ratios: tuple[float, ...] = (0.5, 2.0, 1.0)  # width/height
    rpn_dim: int = 256
    roi: Pooling = "bilinear"  # max: pooled as in Fast R-CNN; no gradient reaches the boxes
    roi_size: int = 7
    box_gradient: bool = True  # false cuts the gradient through the boxes that bilinear sampling gives
    dim: int = 1024  # of a region's code
    normed: bool = True  # the recognition network's two layers are normalised: they begin fresh, the paper's were VGG's
    word_dim: int = 512
    hidden_dim: int = 512  # of the LSTM
    dropout: float = 0.5
    drawn: int = 256  # boxes a picture in training, B
    high: float = 0.7  # a box that overlaps a true one by more is positive
    low: float = 0.3  # one that overlaps all by less is negative
    mid_objectness: float = 0.1  # the weights of the five losses
    mid_boxes: float = 0.1  # 0.05 in the released code
    end_objectness: float = 0.1
    end_boxes: float = 0.1
    captioning: float = 1.0
    box_decay: float = 5e-5  # how boxes are pulled towards their anchors
    per_word: bool = True  # a phrase's loss is its mean over words; false: the sum, as in the released code
    candidates: int = 2000  # boxes that go into the suppression of proposals, in use
    proposals: int = 300
    proposal_overlap: float = 0.7
    final_overlap: float = 0.3

    def __post_init__(self) -> None:
        if self.size < 32:
            raise SaccadeError(f"size must be at least 32 pixels, not {self.size}")
        if self.drawn < 2 or self.proposals < 1 or self.roi_size < 1 or self.frozen < 0:
            raise SaccadeError("drawn must be at least 2, proposals and roi_size at least 1, frozen zero or more")


@register(
    "densecap",
    task="dense_captioning",
    title="DenseCap: Fully Convolutional Localization Networks for Dense Captioning",
    venue="Johnson et al., CVPR 2016",
)
class DenseCap(Model):
    Config = DenseCapConfig
    intended_use = "To find the parts of a photo that are worth a phrase, and to say one of each."

    def __init__(self, config: DenseCapConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        self.convolutions = _folded(config.backbone, pretrained=False)
        self.join = AllLevelsPyramid(self.convolutions, config.stride, config.map_dim)
        c = config
        self.localise = LocalisationLayer(c.map_dim, c.rpn_dim, c.scales, c.ratios, c.roi, c.roi_size, c.box_gradient)
        self.recognise = Recognition(c.map_dim * c.roi_size**2, c.dim, c.dropout, c.normed)
        self.writer = RegionWriter(config, vocabulary)
        for part in self.convolutions.parts[: config.frozen]:
            part.requires_grad_(False)

    def begin(self) -> None:
        """Start from the backbone's own trained weights."""
        self.convolutions.load_state_dict(_folded(self.config.backbone, pretrained=True).state_dict())

    def train(self, mode: bool = True) -> DenseCap:
        """Normalisation that the backbone could not fold keeps its statistics."""
        super().train(mode)
        self.convolutions.eval()
        return self

    def parameter_groups(self) -> list[dict[str, Any]]:
        new = [p for name, p in self.named_parameters() if not name.startswith("convolutions.")]
        old = list(self.convolutions.parameters())
        return [{"params": new, "factor": 1.0}, {"params": old, "factor": self.config.backbone_rate}]

    def maps(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image dim row column"]:
        """U, of pictures of any size."""
        pictures = self.convolutions.normalise(stretch(pixels, self.config.size))
        learns = any(p.requires_grad for p in self.convolutions.parameters())
        with torch.set_grad_enabled(torch.is_grad_enabled() and learns):
            levels = self.convolutions(pictures.contiguous(memory_format=torch.channels_last))
        joined: Tensor = self.join(levels)
        return joined

    def losses(
        self,
        pictures: PictureBatch,
        truth: Float[Tensor, "image thing 4"],
        real: Bool[Tensor, "image thing"],
        phrases: Int[Tensor, "image thing word"],
    ) -> dict[str, Float[Tensor, ""]]:
        """The five losses and the decay of boxes, weighted; each true box with one phrase, <start> to <end>."""
        c, maps = self.config, self.maps(pictures.pixels)
        output = self.localise.proposals(maps)
        sampled = self.localise.sample(output, truth, real, c.drawn, c.high, c.low)
        codes = self.recognise(self.localise.inside(maps, sampled.boxes, sampled.image))
        found = sampled.positive
        image, owner, known = sampled.image[found], sampled.owner[found], codes[found]
        change: Tensor = self.recognise.changes(known).float()
        wanted = truth[image, owner]
        # positive and negative proposals are averaged apart; the squared changes are those of all anchors
        mid = _objectness(sampled.logits[found], None) + _objectness(-sampled.logits[~found], None)
        return {
            "mid_objectness": c.mid_objectness * mid,
            "mid_boxes": c.mid_boxes * _smooth_l1(sampled.changes[found], learnable(sampled.anchors[found], wanted)),
            "box_decay": c.box_decay / 2 * (output.changes.square().sum() / len(output.changes)),
            "end_objectness": c.end_objectness * _objectness(self.recognise.confidence(codes), found),
            "end_boxes": c.end_boxes * _smooth_l1(change, learnable(sampled.boxes[found].detach(), wanted)),
            "captioning": c.captioning * self._phrase_loss(known, phrases[image, owner]),
        }

    def _phrase_loss(self, codes: Float[Tensor, "box dim"], phrases: Int[Tensor, "box word"]) -> Float[Tensor, ""]:
        """−log p of each region's phrase."""
        if not len(codes):
            return codes.sum()
        forced = self.writer.teacher_force(self.writer.start(single_regions(codes)), phrases[:, :-1])
        labels, wanted = phrases[:, 1:], phrases[:, 1:] != PAD
        nll = forced.nll(labels, wanted).sum()
        return nll / wanted.sum().clamp(min=1) if self.config.per_word else nll / len(codes)

    @torch.no_grad()
    def find(self, pictures: PictureBatch, most: int | None = None) -> RegionBatch:
        """The regions of pictures, best first, with their codes as features."""
        c, maps = self.config, self.maps(pictures.pixels)
        boxes, _, there = propose(self.localise.proposals(maps), c.candidates, c.proposals, c.proposal_overlap)
        image = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(there)
        codes = self.recognise(self.localise.inside(maps, boxes.flatten(0, 1), image.flatten()))
        boxes = clip(decode(self.recognise.changes(codes).float(), boxes.flatten(0, 1))).view_as(boxes)
        score = self.recognise.confidence(codes).sigmoid().view_as(there).masked_fill(~there, -1.0)
        kept = nms(boxes, score, c.final_overlap) & there
        score, order = score.masked_fill(~kept, -1.0).sort(dim=1, descending=True, stable=True)
        count = min(most or boxes.shape[1], max(int(kept.sum(dim=1).max()), 1)) if len(boxes) else 0
        order, score = order[:, :count], score[:, :count]
        codes = pick(codes.view(*there.shape, -1), order)
        return RegionBatch(codes, score >= 0, pick(boxes, order), pictures.ids, score.clamp(min=0))

    def regions(self, found: RegionBatch) -> RegionBatch:
        """Every found region as a picture of its own, as the writer takes them."""
        return replace(single_regions(found.features[found.mask]), boxes=found.boxes[found.mask][:, None])


def _objectness(logits: Float[Tensor, " box"], positive: Bool[Tensor, " box"] | None) -> Float[Tensor, ""]:
    """The logistic loss; without `positive`, all are."""
    wanted = torch.ones_like(logits) if positive is None else positive.to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / max(len(logits), 1)


def _smooth_l1(found: Float[Tensor, "box 4"], wanted: Float[Tensor, "box 4"]) -> Float[Tensor, ""]:
    return F.smooth_l1_loss(found, wanted, reduction="sum") / max(found.numel(), 1)


def _folded(name: str, pretrained: bool) -> Backbone:
    """A backbone whose normalisations are folded into its convolutions: their statistics stay, in training too."""
    backbone = load_backbone(name, pretrained)
    backbone.fold_normalisation()
    return backbone.requires_grad_(True)
