"""Teaching an extractor: pictures with true boxes and labels as tensors, the loss of a batch, and the figures of a
test.

Any set of pictures with boxes and labelled things will do; `recipes/world_extractor.py` brings those of the world.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from saccade.vision.backbones.world import PICTURE_ATTRIBUTES, REGION_ATTRIBUTES, normalise
from saccade.vision.boxes import WHOLE, clip, iou
from saccade.vision.detectors.world import WorldNetwork, peaks, proposal_loss, propose

UNKNOWN = -1  # the label of what a thing does not have, or does not show
MATCH = 0.5  # a region is a thing's if they overlap by this much


@dataclass(frozen=True)
class LabelledPictures:
    """Pictures with what is truly there, on whatever device does the work."""

    pixels: UInt8[Tensor, "image size size 3"]
    boxes: Float[Tensor, "image thing 4"]
    real: Bool[Tensor, "image thing"]
    things: Int[Tensor, "image thing attribute"]  # in the order of REGION_ATTRIBUTES, UNKNOWN where there is none
    places: Int[Tensor, "image attribute"]  # in the order of PICTURE_ATTRIBUTES

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, index: Tensor) -> LabelledPictures:
        parts = (self.pixels, self.boxes, self.real, self.things, self.places)
        return LabelledPictures(*(part[index] for part in parts))

    def to(self, device: torch.device | str) -> LabelledPictures:
        return LabelledPictures(*(t.to(device) for t in (self.pixels, self.boxes, self.real, self.things, self.places)))


def augment(
    batch: LabelledPictures, brightness: float = 0.1
) -> tuple[Float[Tensor, "image 3 size size"], LabelledPictures]:
    """Mirror half of the pictures (what faced left faces right) and vary their brightness and contrast a little."""
    mirrored = torch.rand(len(batch), device=batch.pixels.device) < 0.5
    pixels = torch.where(mirrored[:, None, None, None], batch.pixels.flip(2), batch.pixels)
    x1, y1, x2, y2 = batch.boxes.unbind(dim=-1)
    boxes = torch.where(mirrored[:, None, None], torch.stack([1 - x2, y1, 1 - x1, y2], dim=-1), batch.boxes)
    things = batch.things.clone()
    facing = things[..., REGION_ATTRIBUTES.index("facing")]
    turned = mirrored[:, None] & (facing != UNKNOWN)
    things[..., REGION_ATTRIBUTES.index("facing")] = torch.where(turned, 1 - facing, facing)
    floats = normalise(pixels)
    gain, shift = (torch.rand(2, len(batch), 1, 1, 1, device=floats.device) * 2 - 1) * brightness
    return floats * (1 + gain) + 2 * shift, LabelledPictures(pixels, boxes, batch.real, things, batch.places)


def jitter(boxes: Float[Tensor, "region 4"], amount: float = 0.12) -> Float[Tensor, "region 4"]:
    """Each side moved by up to `amount` of the box's width or height: a proposal is never exact."""
    side = (boxes[:, 2:] - boxes[:, :2]).repeat(1, 2)
    return clip(boxes + side * amount * (torch.rand_like(boxes) * 2 - 1))


def match(
    found: Float[Tensor, "image region 4"], batch: LabelledPictures
) -> tuple[Float[Tensor, "image region"], Int[Tensor, "image region"]]:
    """For each region, its overlap with the thing it overlaps most, and which thing that is."""
    overlap = iou(found, batch.boxes).masked_fill(~batch.real[:, None, :], -1.0)
    return overlap.max(dim=2)


def extractor_loss(network: WorldNetwork, batch: LabelledPictures) -> dict[str, Float[Tensor, ""]]:
    """The parts of the loss: heat and boxes of the proposals, and each attribute on jittered and proposed boxes."""
    pixels, batch = augment(batch)
    maps = network.backbone(pixels.contiguous(memory_format=torch.channels_last))
    heat, around = network.proposals(maps.joined)
    heat_loss, box_loss = proposal_loss(heat, around, batch.boxes, batch.real)
    losses = {"heat": heat_loss, "boxes": 2 * box_loss}

    with torch.no_grad():
        proposed, _ = peaks(heat.detach(), around.detach(), network.config.proposals)
        overlap, owner = match(proposed, batch)
        hit = overlap >= MATCH
    image, thing = batch.real.nonzero(as_tuple=True)
    hit_image = hit.nonzero()[:, 0]
    whole = torch.tensor(WHOLE, device=heat.device).expand(len(batch), 4)
    boxes = torch.cat([jitter(batch.boxes[image, thing]), proposed[hit], whole])
    index = torch.cat([image, hit_image, torch.arange(len(batch), device=heat.device)])
    named = torch.cat([batch.things[image, thing], batch.things[hit_image, owner[hit]]])  # [region, attribute]
    logits = network.classify(network.appearance(maps, boxes, index))
    for i, attribute in enumerate(REGION_ATTRIBUTES):
        if attribute in logits:
            losses[attribute] = _cross_entropy(logits[attribute][: len(named)], named[:, i])
    for i, attribute in enumerate(PICTURE_ATTRIBUTES):
        if attribute in logits:
            losses[attribute] = 0.3 * _cross_entropy(logits[attribute][len(named) :], batch.places[:, i])
    return losses


def _cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the known labels; 0 when none is known."""
    total = functional.cross_entropy(
        logits.float(), target, ignore_index=UNKNOWN, reduction="sum", label_smoothing=0.02
    )
    return total / (target != UNKNOWN).sum().clamp(min=1)


@torch.inference_mode()
def extractor_metrics(network: WorldNetwork, pictures: LabelledPictures, batch_size: int = 256) -> dict[str, float]:
    """How good an extractor is on pictures it has not been taught with.

    `recall` is the share of things that a proposal overlaps by at least 0.5, `overlap` the mean IoU of those,
    `precision` the share of proposals that match a thing. Each attribute's accuracy is over the things that were found,
    read from the best proposal of each; `all_four` needs kind, colour, size and material right at once.
    """
    network.eval()
    device = next(network.parameters()).device
    sums: dict[str, float] = dict.fromkeys(("things", "found", "overlap", "proposals", "hits", "all_four"), 0.0)
    right: dict[str, list[float]] = {name: [0.0, 0.0] for name in (*REGION_ATTRIBUTES, *PICTURE_ATTRIBUTES)}
    for start in range(0, len(pictures), batch_size):
        batch = pictures.select(
            torch.arange(start, min(start + batch_size, len(pictures)), device=pictures.pixels.device)
        )
        batch = batch.to(device)
        maps = network.backbone(normalise(batch.pixels).contiguous(memory_format=torch.channels_last))
        c = network.config
        heat, around = network.proposals(maps.joined)
        found, _, kept = propose(heat, around, c.proposals, c.score_threshold, c.nms_threshold)
        overlap = iou(batch.boxes, found).masked_fill(~kept[:, None, :], -1.0)
        best, which = overlap.max(dim=2)  # [image, thing]
        hit = (best >= MATCH) & batch.real
        sums["things"] += float(batch.real.sum())
        sums["found"] += float(hit.sum())
        sums["overlap"] += float(best[hit].sum())
        sums["proposals"] += float(kept.sum())
        sums["hits"] += float(((match(found, batch)[0] >= MATCH) & kept).sum())
        image = hit.nonzero()[:, 0]
        whole = torch.tensor(WHOLE, device=device).expand(len(batch), 4)
        boxes = torch.cat([found[image, which[hit]], whole])
        index = torch.cat([image, torch.arange(len(batch), device=device)])
        logits = network.classify(network.appearance(maps, boxes, index))
        four = torch.ones(len(image), dtype=torch.bool, device=device)
        targets = {a: batch.things[..., i][hit] for i, a in enumerate(REGION_ATTRIBUTES)}
        targets |= {a: batch.places[:, i] for i, a in enumerate(PICTURE_ATTRIBUTES)}
        for attribute, target in targets.items():
            if attribute not in logits:
                continue
            part = (
                logits[attribute][len(image) :] if attribute in PICTURE_ATTRIBUTES else logits[attribute][: len(image)]
            )
            same = part.argmax(dim=1) == target
            known = target != UNKNOWN
            right[attribute][0] += float((same & known).sum())
            right[attribute][1] += float(known.sum())
            if attribute in ("kind", "colour", "size", "material"):
                four &= same
        sums["all_four"] += float(four.sum())
    return {
        "recall": sums["found"] / max(sums["things"], 1),
        "overlap": sums["overlap"] / max(sums["found"], 1),
        "precision": sums["hits"] / max(sums["proposals"], 1),
        "proposals": sums["proposals"] / len(pictures),
        **{name: a / max(b, 1) for name, (a, b) in right.items() if name in network.classifiers},
        "all_four": sums["all_four"] / max(sums["found"], 1),
    }
