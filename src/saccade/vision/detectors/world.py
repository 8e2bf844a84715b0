"""The detector of the built-in world: small, with a name for everything that the world draws.

    maps → heat, sides → proposals;     boxes → appearance → kind, colour, size, material, pose, facing

The backbone is a small residual network whose levels are joined, coarse to fine, in one map of stride 4: half of the
world's things are below 20 pixels. Proposals are anchor-free, after CenterNet (Zhou et al. 2019) and FCOS (Tian et al.
2019): a heat map that peaks at the middle of each thing, and the distances to its four sides. There is no table of
anchor shapes to tune, and two things whose boxes overlap almost wholly (a fish inside a basket) still have two middles.

A region's vector is its appearance (layer-normalised, so every component has unit spread) followed by eight numbers of
geometry of like spread. The attribute classifiers are linear in the appearance: what they can tell, any model that
reads the vector can tell, and kind, colour, size and material stay bound together because they share the vector.

The regions of a picture are its proposals, best first, and the whole picture as the last: for words that belong to no
thing (the beach, the night), and so that a picture of nothing still has a region.

`world` has the weights that come with the package, `world:FOLDER` those that `saccade train world_extractor` wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import Batch, RegionBatch
from saccade.vision.augment import mirror_boxes
from saccade.vision.backbones.base import Backbone, FoldableNetwork, NormedConvolution
from saccade.vision.boxes import (
    GEOMETRY_DIM,
    UNKNOWN,
    WHOLE,
    Proposals,
    Real,
    Truth,
    area,
    cell_middles,
    clip,
    geometry,
    jitter,
    overlaps,
    paired_iou,
    pick,
    valid,
)
from saccade.vision.extractors import (
    RegionDescription,
    RegionExtractor,
    for_inference,
    padded_boxes,
    padded_regions,
    read_detector_config,
    read_detector_weights,
    upload,
    with_whole_picture,
    write_detector,
)
from saccade.vision.nms import nms
from saccade.vision.roi import roi_bilinear

REGION_ATTRIBUTES = ("kind", "colour", "size", "material", "pose", "facing")
PICTURE_ATTRIBUTES = ("background", "lighting")  # named from the whole-picture region
SHIPPED = Path(__file__).parents[1] / "weights" / "world"
INITIAL_HEAT, INITIAL_SIDE = -4.0, -2.0  # before training: a thing is rare; e⁻² ≈ 0.14 is half the side of one
MATCH_IOU = 0.5  # a region that overlaps a thing by this much is that thing
BOX_JITTER = 0.12  # of a side, of true boxes in training
BRIGHTNESS = 0.1  # how far pictures vary in training


Heat: TypeAlias = Float[Tensor, "image row column"]
CellBoxes: TypeAlias = Float[Tensor, "image row column 4"]
Appearance: TypeAlias = Float[Tensor, "region appearance"]


class Convolution(NormedConvolution):
    """Convolution, batch normalisation and, where `rectify`, a rectifier."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 3, stride: int = 1, rectify: bool = True) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.rectify = rectify

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image output row2 column2"]:
        maps = self.norm(self.conv(maps))
        return functional.relu(maps, inplace=True) if self.rectify else maps


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels)
        self.second = Convolution(channels, channels, rectify=False)

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> Float[Tensor, "image channel row column"]:
        return functional.relu(maps + self.second(self.first(maps)))


class WorldMaps(NamedTuple):
    """What the detector of the world reads."""

    joined: Float[Tensor, "image dim row column"]  # stride 4, every level in it
    detail: Float[Tensor, "image stem row2 column2"]  # stride 2, the first level: grain and edges of small things
    context: Float[Tensor, "image coarse"]  # the mean of the last level: place and light of the whole picture


class WorldBackbone(Backbone):
    """As a backbone for others: the detail of stride 2 and the joined map of stride 4."""

    def __init__(
        self, channels: tuple[int, ...] = (16, 48, 96, 160), dim: int = 64, size: int = 128, name: str = "world"
    ) -> None:
        super().__init__()
        stem, fine, middle, coarse = channels
        self.name, self.strides, self.channels, self.size = name, (2, 4), (stem, dim), size
        self.stem = Convolution(3, stem, stride=2)
        self.fine = nn.Sequential(Convolution(stem, fine, stride=2), Residual(fine))  # stride 4
        self.middle = nn.Sequential(Convolution(fine, middle, stride=2), Residual(middle))  # stride 8
        self.coarse = nn.Sequential(Convolution(middle, coarse, stride=2), Residual(coarse))  # stride 16
        self.join = nn.ModuleList(Convolution(c, dim, kernel=1, rectify=False) for c in (fine, middle, coarse))
        self.smooth = Convolution(dim, dim)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        """Bytes as floats of about unit spread."""
        floats = pixels.permute(0, 3, 1, 2).to(torch.float32)  # a view: the memory stays channels-last
        return (floats - 127.5) * (1 / 64)

    def layers(self, pictures: Float[Tensor, "image 3 height width"]) -> tuple[Tensor, ...]:
        """Maps of strides 2, 4, 8 and 16, and all but the first joined at stride 4."""
        detail = self.stem(pictures)
        fine = self.fine(detail)
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        joined = self.join[2](coarse)
        for lateral, level in ((self.join[1], middle), (self.join[0], fine)):
            joined = lateral(level) + functional.interpolate(joined, size=level.shape[-2:], mode="nearest")
        return detail, fine, middle, coarse, self.smooth(functional.relu(joined))

    def maps(self, pictures: Float[Tensor, "image 3 height width"]) -> WorldMaps:
        detail, _, _, coarse, joined = self.layers(pictures)
        return WorldMaps(joined, detail, coarse.mean(dim=(2, 3)))

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        maps = self.maps(pictures)
        return maps.detail, maps.joined

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        return self.stem, self.fine, self.middle, self.coarse, self.join, self.smooth


class WorldLayers(WorldBackbone):
    """The same network, layer by layer: the joined map, and those of strides 4, 8 and 16."""

    def __init__(self) -> None:
        super().__init__(name="world-layers")
        self.strides, self.channels = (4, 4, 8, 16), (64, 48, 96, 160)

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        _, *layers, joined = self.layers(pictures)
        return joined, *layers


@dataclass(frozen=True)
class WorldExtractorConfig:
    """The sizes of the network, how it proposes, and the labels of each attribute."""

    picture_size: int = 128  # pictures are stretched to this square
    channels: tuple[int, ...] = (16, 48, 96, 160)  # at strides 2, 4, 8, 16
    map_dim: int = 64
    roi_size: int = 7
    roi_dim: int = 96
    hidden: int = 320
    dim: int = 256  # of a region's vector: appearance, then geometry
    geometry_scale: float = 1.5
    proposals: int = 12  # at most, the whole picture not counted
    score_threshold: float = 0.25
    nms_threshold: float = 0.7
    kinds: tuple[str, ...] = ()
    colours: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    materials: tuple[str, ...] = ()
    poses: tuple[str, ...] = ()
    facings: tuple[str, ...] = ()
    backgrounds: tuple[str, ...] = ()
    lightings: tuple[str, ...] = ()

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """Attribute → its labels, in the order of the classifiers' outputs."""
        return {name: getattr(self, f"{name}s") for name in (*REGION_ATTRIBUTES, *PICTURE_ATTRIBUTES)}

    @property
    def appearance_dim(self) -> int:
        return self.dim - GEOMETRY_DIM


@dataclass(frozen=True)
class ScenePictures(Batch):
    """Pictures with their true boxes and labels."""

    pixels: UInt8[Tensor, "image size size 3"]
    boxes: Float[Tensor, "image thing 4"]
    real: Bool[Tensor, "image thing"]
    things: Int[Tensor, "image thing attribute"]  # in the order of REGION_ATTRIBUTES, UNKNOWN where there is none
    places: Int[Tensor, "image attribute"]  # in the order of PICTURE_ATTRIBUTES


class ProposalHead(nn.Module):
    """From the joined map: a logit for "the middle of a thing is here", and left, top, right, bottom in 0..1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.look = Convolution(dim, dim, kernel=1)
        self.predict = nn.Conv2d(dim, 5, 1)
        nn.init.zeros_(self.predict.weight)
        self.predict.bias = nn.Parameter(torch.tensor([INITIAL_HEAT, *[INITIAL_SIDE] * 4]))

    def forward(self, maps: Float[Tensor, "image channel row column"]) -> tuple[Heat, CellBoxes]:
        found = self.predict(self.look(maps)).float()
        heat = found[:, 0]
        sides = found[:, 1:].clamp(-8, 0.5).exp().permute(0, 2, 3, 1)
        middles = cell_middles(heat.shape[1], heat.shape[2], heat.device)
        return heat, torch.cat([middles - sides[..., :2], middles + sides[..., 2:]], dim=-1)


def peaks(
    heat: Heat, boxes: CellBoxes, count: int
) -> tuple[Float[Tensor, "image count 4"], Float[Tensor, "image count"]]:
    """The boxes at the `count` highest local maxima of the heat, with their probabilities, best first."""
    highest = functional.max_pool2d(heat[:, None], 3, stride=1, padding=1)[:, 0]
    score = torch.where(heat == highest, heat.sigmoid(), torch.zeros_like(heat)).flatten(1)
    score, place = score.topk(min(count, score.shape[1]), dim=1)
    return clip(pick(boxes.flatten(1, 2), place)), score


def propose_peaks(heat: Heat, boxes: CellBoxes, count: int, score_threshold: float, nms_threshold: float) -> Proposals:
    """At most `count` boxes a picture, best first, with their scores and which of them are real."""
    found, score = peaks(heat, boxes, 4 * count)
    kept = nms(found, score, nms_threshold) & (score > score_threshold) & valid(found, min_side=0.01)
    score, order = torch.where(kept, score, -torch.ones_like(score)).sort(dim=1, descending=True, stable=True)
    order, score = order[:, :count], score[:, :count]
    return Proposals(pick(found, order), score, score > 0)


def proposal_loss(
    heat: Heat, boxes: CellBoxes, truth: Truth, real: Real
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Focal loss of the heat against a bump at each middle; 1 − IoU plus distance of the boxes near the middles."""
    rows, columns = heat.shape[1:]
    middles = cell_middles(rows, columns, heat.device)
    centre = (truth[..., :2] + truth[..., 2:]) / 2
    side = (truth[..., 2:] - truth[..., :2]).clamp(min=1e-3)
    away = (middles[None, None] - centre[:, :, None, None]) * heat.new_tensor([columns, rows])  # in cells
    spread = (side * heat.new_tensor([columns, rows]) / 8).clamp(min=0.6)[:, :, None, None]
    bump = torch.exp(-((away / spread) ** 2).sum(dim=-1) / 2) * real[:, :, None, None]  # [image, thing, row, column]
    nearest = ((away**2).sum(dim=-1)).flatten(2).argmin(dim=2)  # each thing's own cell
    target = bump.amax(dim=1).flatten(1) if bump.shape[1] else torch.zeros_like(heat).flatten(1)
    image = torch.arange(len(heat), device=heat.device)[:, None].expand_as(nearest)
    positive = torch.zeros_like(target, dtype=torch.bool)
    positive[image[real], nearest[real]] = True

    logit = heat.flatten(1)
    chance = logit.sigmoid()
    found = -functional.logsigmoid(logit) * (1 - chance) ** 2
    empty = -functional.logsigmoid(-logit) * chance**2 * (1 - target) ** 4
    count = positive.sum().clamp(min=1)
    heat_loss = torch.where(positive, found, empty).sum() / count

    # Each cell within a cell and a half of a middle, and inside that thing, learns the box of the nearest thing.
    inside = (middles[None, None] > truth[:, :, None, None, :2]) & (middles[None, None] < truth[:, :, None, None, 2:])
    distance = (away**2).sum(dim=-1).masked_fill(~(inside.all(dim=-1) & real[:, :, None, None]), float("inf"))
    closest, owner = distance.min(dim=1)
    learns = closest < 1.5**2
    picture = torch.arange(len(heat), device=heat.device)[:, None, None].expand_as(owner)
    predicted, wanted = boxes[learns], truth[picture[learns], owner[learns]]
    overlap = paired_iou(predicted, wanted)
    scale = area(wanted).sqrt()[:, None].clamp(min=0.03)
    misfit = (1 - overlap) + ((predicted - wanted).abs() / scale).mean(dim=-1)
    return heat_loss, misfit.sum() / learns.sum().clamp(min=1)


class WorldNetwork(FoldableNetwork):
    def __init__(self, config: WorldExtractorConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = WorldBackbone(config.channels, config.map_dim, config.picture_size)
        self.proposals = ProposalHead(config.map_dim)
        self.regions = AppearanceHead(config)
        self.classifiers = nn.ModuleDict(
            {name: nn.Linear(config.appearance_dim, len(labels)) for name, labels in config.labels.items() if labels}
        )

    def propose(self, maps: WorldMaps) -> Proposals:
        """`propose_peaks` by the settings."""
        c = self.config
        heat, boxes = self.proposals(maps.joined)
        return propose_peaks(heat, boxes, c.proposals, c.score_threshold, c.nms_threshold)

    def appearance(
        self, maps: WorldMaps, boxes: Float[Tensor, "region 4"], image_index: Int[Tensor, " region"]
    ) -> Appearance:
        with torch.autocast(boxes.device.type, enabled=False):  # a box's place in half precision would be cells off
            levels = (maps.joined, maps.detail)
            inside = [roi_bilinear(level.float(), boxes, image_index, self.config.roi_size) for level in levels]
            vector: Tensor = self.regions(torch.cat(inside, dim=1), maps.context.float()[image_index], geometry(boxes))
        return vector

    def classify(self, appearance: Appearance) -> dict[str, Float[Tensor, "region label"]]:
        """Logits of every attribute."""
        return {name: classifier(appearance) for name, classifier in self.classifiers.items()}

    def vectors(self, appearance: Appearance, boxes: Float[Tensor, "region 4"]) -> Float[Tensor, "region dim"]:
        return torch.cat([appearance, geometry(boxes) * self.config.geometry_scale], dim=1)


class AppearanceHead(nn.Module):
    """What is inside a box, together with the whole picture's context and where the box lies, as one vector.

    The surroundings matter: a far large cube is drawn smaller than a near small one, and at sunset white is orange.
    """

    def __init__(self, config: WorldExtractorConfig) -> None:
        super().__init__()
        cells = (config.roi_size + 1) // 2
        self.look = Convolution(config.map_dim + config.channels[0], config.roi_dim, stride=2)
        self.inside = nn.Linear(config.roi_dim * cells * cells, config.hidden)
        self.around = nn.Linear(config.channels[-1] + GEOMETRY_DIM, config.hidden)
        self.out = nn.Linear(config.hidden, config.appearance_dim)

    def forward(
        self,
        inside: Float[Tensor, "region channel size size"],
        context: Float[Tensor, "region coarse"],
        shape: Float[Tensor, "region 8"],
    ) -> Appearance:
        around = self.around(torch.cat([context, shape], dim=1))
        hidden = functional.relu(self.inside(self.look(inside).flatten(1)) + around)
        found = self.out(hidden)
        return functional.layer_norm(found, found.shape[-1:])


def augment_scenes(
    network: WorldNetwork, batch: ScenePictures, brightness: float = BRIGHTNESS
) -> tuple[Float[Tensor, "image 3 size size"], ScenePictures]:
    """Mirror half of the pictures (what faced left faces right) and vary their brightness and contrast a little."""
    mirrored = torch.rand(len(batch), device=batch.pixels.device) < 0.5
    pixels = torch.where(mirrored[:, None, None, None], batch.pixels.flip(2), batch.pixels)
    boxes = torch.where(mirrored[:, None, None], mirror_boxes(batch.boxes), batch.boxes)
    things = batch.things.clone()
    facing = things[..., REGION_ATTRIBUTES.index("facing")]
    turned = mirrored[:, None] & (facing != UNKNOWN)
    things[..., REGION_ATTRIBUTES.index("facing")] = torch.where(turned, 1 - facing, facing)
    floats = network.backbone.normalise(pixels)
    gain, shift = (torch.rand(2, len(batch), 1, 1, 1, device=floats.device) * 2 - 1) * brightness
    return floats * (1 + gain) + 2 * shift, replace(batch, pixels=pixels, boxes=boxes, things=things)


def world_loss(network: WorldNetwork, batch: ScenePictures) -> dict[str, Float[Tensor, ""]]:
    """The parts of the loss: heat and boxes of the proposals, and each attribute on jittered and proposed boxes."""
    pixels, batch = augment_scenes(network, batch)
    maps = network.backbone.maps(pixels.contiguous(memory_format=torch.channels_last))
    heat, around = network.proposals(maps.joined)
    heat_loss, box_loss = proposal_loss(heat, around, batch.boxes, batch.real)
    losses = {"heat": heat_loss, "boxes": 2 * box_loss}

    with torch.no_grad():
        proposed, _ = peaks(heat.detach(), around.detach(), network.config.proposals)
        overlap, owner = overlaps(proposed, batch.boxes, batch.real).max(dim=2)
        hit = overlap >= MATCH_IOU
    image, thing = batch.real.nonzero(as_tuple=True)
    hit_image = hit.nonzero()[:, 0]
    whole = torch.tensor(WHOLE, device=heat.device).expand(len(batch), 4)
    boxes = torch.cat([jitter(batch.boxes[image, thing], BOX_JITTER), proposed[hit], whole])
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


class WorldExtractor(RegionExtractor):
    """A trained detector as an extractor. Weights are kept in float16 and used in float32."""

    def __init__(self, network: WorldNetwork, name: str = "world", digest: str = "") -> None:
        network.fold_normalisation()
        self.network: WorldNetwork = for_inference(network)
        self.name = name
        self.digest = digest  # of the weights file
        self.dim = network.config.dim
        self.picture_size = network.config.picture_size

    @property
    def config(self) -> WorldExtractorConfig:
        return self.network.config

    def regions(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> RegionBatch:
        """The proposals, at most `config.proposals`, and the whole picture as the last region; or the boxes given."""
        pixels = upload(pictures, self.device)
        maps = self.network.backbone.maps(self.network.backbone.normalise(pixels))
        if boxes is not None:
            places, mask = padded_boxes(boxes, self.device)
            scores = mask.to(places.dtype)
        else:
            proposals = with_whole_picture(*self.network.propose(maps))
            longest = int(proposals.mask.sum(dim=1).max())
            places, scores, mask = (part[:, :longest] for part in proposals)
        found = places[mask]
        read = self.network.vectors(self.network.appearance(maps, found, mask.nonzero()[:, 0]), found)
        vectors = read.new_zeros(*mask.shape, self.dim)
        vectors[mask] = read
        return padded_regions(vectors, places, scores, mask)

    def names(self, regions: RegionBatch, has_whole: bool) -> list[list[RegionDescription]]:
        """The labels of each region, read from its appearance; of the whole picture, its place and light."""
        mask = regions.mask
        boxes, owners = regions.boxes[mask].float().tolist(), mask.nonzero()[:, 0].tolist()
        scores = regions.scores[mask].tolist() if regions.scores is not None else [1.0] * len(boxes)
        logits = self.network.classify(regions.features[mask][:, : self.config.appearance_dim].float())
        best = {k: v.softmax(dim=1).max(dim=1) for k, v in logits.items()}
        chosen = {k: (found.indices.tolist(), found.values.tolist()) for k, found in best.items()}
        described: list[list[RegionDescription]] = [[] for _ in range(len(regions))]
        for i, owner in enumerate(owners):
            is_whole = has_whole and (i + 1 == len(owners) or owners[i + 1] != owner)
            names = [n for n in (PICTURE_ATTRIBUTES if is_whole else REGION_ATTRIBUTES) if n in chosen]
            x1, y1, x2, y2 = boxes[i]
            labels = {n: self.config.labels[n][chosen[n][0][i]] for n in names}
            described[owner].append(
                RegionDescription((x1, y1, x2, y2), scores[i], labels, {n: chosen[n][1][i] for n in names})
            )
        return described

    def save(self, folder: Path | str, facts: Mapping[str, object] | None = None) -> None:
        """Pack the detector into a folder, with `facts` about its training."""
        self.digest = write_detector(Path(folder), "world_extractor", self.network, self.config, facts, "float16")


def open_extractor(argument: str = "") -> WorldExtractor:
    """`world`, or `world:FOLDER` with the weights of a trained detector."""
    return load_world_extractor(argument or SHIPPED, f"world:{argument}" if argument else "world")


def load_world_extractor(folder: Path | str = SHIPPED, name: str = "world") -> WorldExtractor:
    """The detector of a model or run folder, or that of the package."""
    place, config = read_detector_config(folder, "world_extractor", WorldExtractorConfig)
    network, digest = read_detector_weights(lambda: WorldNetwork(config), place)
    return WorldExtractor(network, name, digest)


def open_backbone(name: str = "world", pretrained: bool = True) -> WorldBackbone:
    """`world`, `world-layers`, or `world:FOLDER` with a trained detector's weights. Trained weights come folded."""
    layers = WorldLayers() if name == "world-layers" else None
    if not pretrained:
        return layers or WorldBackbone()
    network = load_world_extractor(name.partition(":")[2] or SHIPPED).network.requires_grad_(True)
    if layers is not None:
        layers.fold_normalisation()
        layers.load_state_dict(network.backbone.state_dict())
        return layers
    network.backbone.name = name
    return network.backbone
