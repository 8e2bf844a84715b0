"""The extractor of the built-in world: small, trained by `recipes/world_extractor.py`, with a name for all it sees.

The regions of a picture are its proposals, best first, and the whole picture as the last region: words that belong to
no thing (the beach, the night) have somewhere to look, and a picture of nothing still has a region.

Where the things are: a heat map that peaks at the middle of each thing, and the distances to its four sides.

Anchor-free, after CenterNet (Zhou et al. 2019) and FCOS (Tian et al. 2019): no table of anchor shapes to tune, and two
things whose boxes overlap almost wholly (a fish inside a basket) still have two middles.

The network of the extractor: pictures → map → proposals, and boxes → region vectors with everything about a thing in
one.

A region's vector is its appearance (layer-normalised, so every component has unit spread) followed by eight numbers of
geometry of like spread. The attribute classifiers are linear readers of the appearance: what they can tell, any model
that reads the vector can tell, and kind, colour, size and material stay bound together because they share the vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import RegionBatch
from saccade.vision.backbones.base import fold
from saccade.vision.backbones.world import (
    PICTURE_ATTRIBUTES,
    REGION_ATTRIBUTES,
    Backbone,
    Convolution,
    Maps,
    WorldExtractorConfig,
    normalise,
)
from saccade.vision.boxes import GEOMETRY_DIM, WHOLE, area, clip, geometry, nms, paired_iou, valid
from saccade.vision.extractors import (
    RegionDescription,
    RegionExtractor,
    at_rest,
    fill_weights,
    read_extractor_config,
    write_extractor,
)
from saccade.vision.pictures import Picture, ids_of
from saccade.vision.roi import roi_bilinear

START = -4.0  # the heat before training: a thing is rare


class ProposalHead(nn.Module):
    """From the joined map: a logit for "the middle of a thing is here", and left, top, right, bottom in 0..1."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.look = Convolution(dim, dim, kernel=1)
        self.predict = nn.Conv2d(dim, 5, 1)
        nn.init.zeros_(self.predict.weight)
        self.predict.bias = nn.Parameter(torch.tensor([START, *[-2.0] * 4]))  # e⁻² ≈ 0.14, half the side of a thing

    def forward(
        self, maps: Float[Tensor, "image channel row column"]
    ) -> tuple[Float[Tensor, "image row column"], Float[Tensor, "image row column 4"]]:
        found = self.predict(self.look(maps)).float()
        heat = found[:, 0]
        sides = found[:, 1:].clamp(-8, 0.5).exp().permute(0, 2, 3, 1)
        middles = cell_middles(heat.shape[1], heat.shape[2], heat.device)
        return heat, torch.cat([middles - sides[..., :2], middles + sides[..., 2:]], dim=-1)


def cell_middles(rows: int, columns: int, device: torch.device) -> Float[Tensor, "row column 2"]:
    """(x, y) of each cell's middle in 0..1."""
    y = (torch.arange(rows, device=device) + 0.5) / rows
    x = (torch.arange(columns, device=device) + 0.5) / columns
    return torch.stack([x[None, :].expand(rows, columns), y[:, None].expand(rows, columns)], dim=-1)


def peaks(
    heat: Float[Tensor, "image row column"], boxes: Float[Tensor, "image row column 4"], count: int
) -> tuple[Float[Tensor, "image count 4"], Float[Tensor, "image count"]]:
    """The boxes at the `count` highest local maxima of the heat, with their probabilities, best first."""
    highest = functional.max_pool2d(heat[:, None], 3, stride=1, padding=1)[:, 0]
    score = torch.where(heat == highest, heat.sigmoid(), torch.zeros_like(heat)).flatten(1)
    score, place = score.topk(min(count, score.shape[1]), dim=1)
    return clip(boxes.flatten(1, 2).gather(1, place[..., None].expand(-1, -1, 4))), score


def propose(
    heat: Float[Tensor, "image row column"],
    boxes: Float[Tensor, "image row column 4"],
    count: int,
    score_threshold: float,
    nms_threshold: float,
) -> tuple[Float[Tensor, "image count 4"], Float[Tensor, "image count"], Bool[Tensor, "image count"]]:
    """At most `count` boxes a picture, best first, with their scores and which of them are real."""
    found, score = peaks(heat, boxes, 4 * count)
    kept = nms(found, score, nms_threshold) & (score > score_threshold) & valid(found, smallest=0.01)
    score, order = torch.where(kept, score, -torch.ones_like(score)).sort(dim=1, descending=True, stable=True)
    order, score = order[:, :count], score[:, :count]
    return found.gather(1, order[..., None].expand(-1, -1, 4)), score, score > 0


def proposal_loss(
    heat: Float[Tensor, "image row column"],
    boxes: Float[Tensor, "image row column 4"],
    truth: Float[Tensor, "image thing 4"],
    real: Bool[Tensor, "image thing"],
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


class WorldNetwork(nn.Module):
    def __init__(self, config: WorldExtractorConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone = Backbone(config.channels, config.map_dim)
        self.proposals = ProposalHead(config.map_dim)
        self.regions = RegionHead(config)
        self.classifiers = nn.ModuleDict(
            {name: nn.Linear(config.appearance_dim, len(labels)) for name, labels in config.labels.items() if labels}
        )

    def appearance(
        self,
        maps: Maps,
        boxes: Float[Tensor, "region 4"],
        image_index: Int[Tensor, " region"],
    ) -> Float[Tensor, "region appearance"]:
        with torch.autocast(boxes.device.type, enabled=False):  # a box's place in half precision would be cells off
            levels = (maps.joined, maps.detail)
            inside = [roi_bilinear(level.float(), boxes, image_index, self.config.roi_size) for level in levels]
            vector: Tensor = self.regions(torch.cat(inside, dim=1), maps.context.float()[image_index], geometry(boxes))
        return vector

    def classify(self, appearance: Float[Tensor, "region appearance"]) -> dict[str, Float[Tensor, "region label"]]:
        """Logits of every attribute."""
        return {name: classifier(appearance) for name, classifier in self.classifiers.items()}

    def vectors(
        self, appearance: Float[Tensor, "region appearance"], boxes: Float[Tensor, "region 4"]
    ) -> Float[Tensor, "region dim"]:
        return torch.cat([appearance, geometry(boxes) * self.config.geometry_scale], dim=1)


class RegionHead(nn.Module):
    """What is inside a box, seen in the light of the whole picture and of where the box lies, as one vector.

    The surroundings matter: a far large cube is drawn smaller than a near small one, and at sunset white looks orange.
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
    ) -> Float[Tensor, "region appearance"]:
        around = self.around(torch.cat([context, shape], dim=1))
        hidden = functional.relu(self.inside(self.look(inside).flatten(1)) + around)
        found = self.out(hidden)
        return functional.layer_norm(found, found.shape[-1:])


WEIGHTS = Path(__file__).parents[1] / "weights"


@dataclass(frozen=True)
class _Seen:
    """One batch of pictures after the network: regions in flat order, picture by picture."""

    appearance: Float[Tensor, "region appearance"]
    boxes: Float[Tensor, "region 4"]
    scores: Float[Tensor, " region"]
    image_index: Int[Tensor, " region"]
    whole: bool  # whether the last region of each picture is the picture


class WorldExtractor(RegionExtractor):
    """A trained region network. Weights are kept in float16 and used in float32."""

    def __init__(self, network: WorldNetwork, name: str = "world", digest: str = "") -> None:
        fold(network)
        self.network: WorldNetwork = at_rest(network)
        self.name = name
        self.digest = digest  # of the weights file
        self.dim = network.config.dim
        self.picture_size = network.config.picture_size

    @property
    def config(self) -> WorldExtractorConfig:
        return self.network.config

    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        """Without `boxes`: its proposals, at most `config.proposals`, and the whole picture as the last region."""
        features: list[Tensor] = []
        places: list[Tensor] = []
        scores: list[Tensor] = []
        for count, seen in self._look(images, boxes, batch_size):
            sizes = torch.bincount(seen.image_index, minlength=count).tolist()
            vectors = self.network.vectors(seen.appearance, seen.boxes)
            features += torch.split(vectors.cpu(), sizes)
            places += torch.split(seen.boxes.cpu(), sizes)
            scores += torch.split(seen.scores.cpu(), sizes)
        return RegionBatch.of(features, places, ids_of(images), scores)

    def describe(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> list[list[RegionDescription]]:
        """What the extractor would call each region `see` returns, picture by picture."""
        found: list[list[RegionDescription]] = []
        for count, seen in self._look(images, boxes, batch_size):
            found += self._named(count, seen)
        return found

    @torch.inference_mode()
    def recognise(self, regions: RegionBatch) -> list[list[RegionDescription]]:
        """As `describe`: a vector is the appearance that names are read from, and geometry."""
        regions = regions.to(self.device)
        owner = regions.mask.nonzero()[:, 0]
        appearance = regions.features[regions.mask][:, : self.config.appearance_dim].float()
        boxes = regions.boxes[regions.mask].float()
        scores = regions.scores[regions.mask] if regions.scores is not None else torch.ones_like(boxes[:, 0])
        last = torch.cat([owner[1:] != owner[:-1], owner.new_ones(1, dtype=torch.bool)]) if len(owner) else owner.bool()
        whole = bool((boxes[last] == torch.tensor(WHOLE, device=self.device)).all())
        return self._named(len(regions), _Seen(appearance, boxes, scores, owner, whole))

    def _named(self, count: int, seen: _Seen) -> list[list[RegionDescription]]:
        best = {k: v.softmax(dim=1).max(dim=1) for k, v in self.network.classify(seen.appearance).items()}
        named = {k: (chosen.indices.tolist(), chosen.values.tolist()) for k, chosen in best.items()}
        owners, boxes, scores = seen.image_index.tolist(), seen.boxes.tolist(), seen.scores.tolist()
        found: list[list[RegionDescription]] = [[] for _ in range(count)]
        for i, owner in enumerate(owners):
            is_whole = seen.whole and (i + 1 == len(owners) or owners[i + 1] != owner)
            names = [n for n in (PICTURE_ATTRIBUTES if is_whole else REGION_ATTRIBUTES) if n in named]
            x1, y1, x2, y2 = boxes[i]
            found[owner].append(
                RegionDescription(
                    (x1, y1, x2, y2),
                    scores[i],
                    {n: self.config.labels[n][named[n][0][i]] for n in names},
                    {n: named[n][1][i] for n in names},
                )
            )
        return found

    def save(self, folder: Path | str, facts: dict[str, object] | None = None) -> None:
        """Write `<name>.safetensors` and `<name>.json` (config, and `facts` such as test figures)."""
        self.digest = write_extractor(Path(folder) / self.name, self.network, self.config, facts, "float16")

    @torch.inference_mode()
    def _look(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None, batch_size: int
    ) -> Iterator[tuple[int, _Seen]]:
        for arrays, given in self.batches(images, boxes, batch_size):
            yield len(arrays), self._regions(torch.from_numpy(np.stack(arrays)), given)

    def _regions(self, pixels: Tensor, given: list[Tensor] | None) -> _Seen:
        maps = self.network.backbone(normalise(pixels.to(self.device)))
        if given is not None:
            boxes = torch.cat(given).to(self.device)
            counts = torch.tensor([len(g) for g in given], device=self.device)
            image_index = torch.arange(len(given), device=self.device).repeat_interleave(counts)
            scores = torch.ones(len(boxes), device=self.device)
        else:
            c = self.config
            heat, around = self.network.proposals(maps.joined)
            found, score, real = propose(heat, around, c.proposals, c.score_threshold, c.nms_threshold)
            whole = torch.tensor(WHOLE, device=self.device).expand(len(found), 1, 4)
            kept = torch.cat([real, torch.ones_like(real[:, :1])], dim=1)
            boxes = torch.cat([found, whole], dim=1)[kept]
            scores = torch.cat([score, torch.ones_like(score[:, :1])], dim=1)[kept]
            image_index = kept.nonzero()[:, 0]
        appearance = self.network.appearance(maps, boxes, image_index)
        return _Seen(appearance, boxes, scores, image_index, whole=given is None)


def open_extractor(argument: str = "") -> WorldExtractor:
    """`world`, or `world:FOLDER` where the recipe wrote its weights."""
    return load_world_extractor(Path(argument) if argument else WEIGHTS)


def load_world_extractor(folder: Path | str = WEIGHTS, name: str = "world") -> WorldExtractor:
    """The extractor that comes with the package, or the one in the folder its recipe wrote to."""
    facts = Path(folder) / f"{name}.json"
    network = WorldNetwork(read_extractor_config(facts, WorldExtractorConfig, f"recipes/{name}_extractor.py"))
    fold(network)
    return WorldExtractor(network, name, fill_weights(network, facts))
