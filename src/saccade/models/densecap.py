"""DenseCap: Fully Convolutional Localization Networks for Dense Captioning (Johnson, Karpathy, Fei-Fei; CVPR 2016).

Find the regions of a picture worth a phrase, and say it of each, in one pass and trained as one network.

    maps      = convolutions(picture)
    t, s      = proposals(maps)                         of k anchors a cell: a change, a confidence
    x         = xₐ + t_x wₐ,  w = wₐ e^{t_w}            the changed anchor (y, h likewise)
    V_{c,i,j} = Σ_{i',j'} U_{c,i',j'} k(i' − x_{ij}) k(j' − y_{ij}),  k(d) = max(0, 1 − |d|)
    v         = relu(W₂ relu(W₁ V))                     the region's code: recognition network
    s', t'    = w·v, W v                                confidence and change once more
    x₋₁, x₀ … = W v, <start>, s₁ … s_T                  inputs of the LSTM, which says s₁ … s_T, <end>

The kernel k reads the map U at points of the box, so the loss of a phrase has a gradient in the box itself; with
`roi="max"` (Fast R-CNN's pooling) it has none. The backbone is any of Saccade's, not VGG-16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from saccade.batch import PictureBatch, RegionBatch
from saccade.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.vocabulary import PAD
from saccade.models.densecap_layers import (
    JoinAll,
    Lesson,
    LocalisationLayer,
    Pooling,
    Recognition,
    RegionWriter,
    learnable,
    single_regions,
)
from saccade.models.model import Model
from saccade.models.registry import register
from saccade.vision.backbones import Backbone, load_backbone
from saccade.vision.boxes import nms
from saccade.vision.grid import stretch
from saccade.vision.region_sampling import pick


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

    def __init__(self, config: DenseCapConfig, vocabulary: Vocabulary, eye: str | None = None) -> None:
        super().__init__(config, vocabulary, eye)
        self.backbone = _folded(config.backbone, pretrained=False)
        self.join = JoinAll(self.backbone, config.stride, config.map_dim)
        self.localise = LocalisationLayer(
            config.map_dim,
            config.rpn_dim,
            config.scales,
            config.ratios,
            config.roi,
            config.roi_size,
            config.box_gradient,
        )
        self.recognise = Recognition(config.map_dim * config.roi_size**2, config.dim, config.dropout, config.normed)
        self.writer = RegionWriter(
            config, vocabulary, config.dim, config.word_dim, config.hidden_dim, config.dropout, config.normed
        )
        for part in self.backbone.parts[: config.frozen]:
            part.requires_grad_(False)

    def begin(self) -> None:
        """With the backbone's own trained weights."""
        self.backbone.load_state_dict(_folded(self.config.backbone, pretrained=True).state_dict())

    def train(self, mode: bool = True) -> DenseCap:
        """Normalisation that the backbone could not fold stays as it was trained."""
        super().train(mode)
        self.backbone.eval()
        return self

    def parameter_groups(self) -> list[dict[str, Any]]:
        new = [p for name, p in self.named_parameters() if not name.startswith("backbone.")]
        old = list(self.backbone.parameters())
        return [{"params": new, "factor": 1.0}, {"params": old, "factor": self.config.backbone_rate}]

    def maps(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image dim row column"]:
        """U: what the convolutions make of pictures of any size."""
        pictures = self.backbone.normalise(stretch(pixels, self.config.size))
        with torch.set_grad_enabled(
            torch.is_grad_enabled() and any(p.requires_grad for p in self.backbone.parameters())
        ):
            levels = self.backbone(pictures.contiguous(memory_format=torch.channels_last))
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
        said = self.localise(maps)
        lesson = self.localise.lesson(said, truth, real, c.drawn, c.high, c.low)
        codes = self.recognise(self.localise.inside(maps, lesson.boxes, lesson.image))
        found = lesson.positive
        image, owner, known = lesson.image[found], lesson.owner[found], codes[found]
        change: Tensor = self.recognise.changes(known).float()
        wanted = truth[image, owner]
        return {
            "mid_objectness": c.mid_objectness * _objectness_apart(lesson),
            "mid_boxes": c.mid_boxes * _smooth_l1(lesson.changes[found], learnable(lesson.anchors[found], wanted)),
            "box_decay": c.box_decay / 2 * _decay(said.changes),
            "end_objectness": c.end_objectness * _objectness(self.recognise.confidence(codes), found),
            "end_boxes": c.end_boxes * _smooth_l1(change, learnable(lesson.boxes[found].detach(), wanted)),
            "captioning": c.captioning * self._missed(known, phrases[image, owner]),
        }

    def _missed(self, codes: Float[Tensor, "box dim"], phrases: Int[Tensor, "box word"]) -> Float[Tensor, ""]:
        """−log p of each region's phrase."""
        if not len(codes):
            return codes.sum()
        told = self.writer.tell(self.writer.start(single_regions(codes)), phrases[:, :-1])
        labels, wanted = phrases[:, 1:], phrases[:, 1:] != PAD
        missed = told.missed(labels, wanted).sum()
        return missed / wanted.sum().clamp(min=1) if self.config.per_word else missed / len(codes)

    @torch.no_grad()
    def find(self, pictures: PictureBatch, most: int | None = None) -> RegionBatch:
        """The regions worth a phrase, best first, with their codes as features; no phrase is said yet."""
        c, maps = self.config, self.maps(pictures.pixels)
        boxes, there = self.localise.propose(self.localise(maps), c.candidates, c.proposals, c.proposal_overlap)
        image = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(there)
        codes = self.recognise(self.localise.inside(maps, boxes.flatten(0, 1), image.flatten()))
        boxes = self.recognise.refine(boxes.flatten(0, 1), codes).view_as(boxes)
        score = self.recognise.confidence(codes).sigmoid().view_as(there).masked_fill(~there, -1.0)
        kept = nms(boxes, score, c.final_overlap) & there
        score, order = score.masked_fill(~kept, -1.0).sort(dim=1, descending=True, stable=True)
        count = min(most or boxes.shape[1], max(int(kept.sum(dim=1).max()), 1)) if len(boxes) else 0
        order, score = order[:, :count], score[:, :count]
        codes = pick(codes.view(*there.shape, -1), order)
        return RegionBatch(codes, score >= 0, pick(boxes, order), pictures.ids, score.clamp(min=0))

    def regions(self, found: RegionBatch) -> RegionBatch:
        """Every region that was found as a picture of its own, as the writer takes them."""
        return replace(single_regions(found.features[found.mask]), boxes=found.boxes[found.mask][:, None])


def _decay(changes: Float[Tensor, "image anchor 4"]) -> Float[Tensor, ""]:
    """The squared changes of all anchors of a picture: however many are drawn, none may run away."""
    return changes.square().sum() / len(changes)


def _objectness_apart(lesson: Lesson) -> Float[Tensor, ""]:
    """Cross entropy of positive and of negative boxes, each averaged on its own."""
    return _objectness(lesson.logits[lesson.positive], None) + _objectness(-lesson.logits[~lesson.positive], None)


def _objectness(logits: Float[Tensor, " box"], positive: Bool[Tensor, " box"] | None) -> Float[Tensor, ""]:
    """The logistic loss; without `positive`, all are."""
    wanted = torch.ones_like(logits) if positive is None else positive.to(logits.dtype)
    return functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / max(len(logits), 1)


def _smooth_l1(found: Float[Tensor, "box 4"], wanted: Float[Tensor, "box 4"]) -> Float[Tensor, ""]:
    return functional.smooth_l1_loss(found, wanted, reduction="sum") / max(found.numel(), 1)


def _folded(name: str, pretrained: bool) -> Backbone:
    """A backbone whose normalisations are part of its convolutions: their figures stay, in training too."""
    backbone = load_backbone(name, pretrained)
    backbone.fold_normalisation()
    return backbone.requires_grad_(True)
