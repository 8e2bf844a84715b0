"""The eye of the built-in world: small, trained by `recipes/world_eye.py`, with a name for all it sees.

The regions of a picture are its proposals, best first, and the whole picture as the last region: words that belong to
no thing (the beach, the night) have somewhere to look, and a picture of nothing still has a region.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import RegionBatch
from saccade.vision.boxes import WHOLE
from saccade.vision.convolution import fold
from saccade.vision.eye import Eye, RegionDescription, at_rest
from saccade.vision.eye_files import fill_weights, read_eye_config, write_eye
from saccade.vision.pictures import Picture, ids_of
from saccade.vision.world_backbone import normalise
from saccade.vision.world_eye_config import PICTURE_ATTRIBUTES, REGION_ATTRIBUTES, EyeConfig
from saccade.vision.world_eye_network import EyeNetwork
from saccade.vision.world_proposals import propose

WEIGHTS = Path(__file__).parent / "weights"


@dataclass(frozen=True)
class _Seen:
    """One batch of pictures after the network: regions in flat order, picture by picture."""

    appearance: Float[Tensor, "region appearance"]
    boxes: Float[Tensor, "region 4"]
    scores: Float[Tensor, " region"]
    image_index: Int[Tensor, " region"]
    whole: bool  # whether the last region of each picture is the picture


class WorldEye(Eye):
    """A trained region network. Weights are kept in float16 and used in float32."""

    def __init__(self, network: EyeNetwork, name: str = "world", digest: str = "") -> None:
        fold(network)
        self.network: EyeNetwork = at_rest(network)
        self.name = name
        self.digest = digest  # of the weights file
        self.dim = network.config.dim
        self.picture_size = network.config.picture_size

    @property
    def config(self) -> EyeConfig:
        return self.network.config

    def see(
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
        """What the eye would call each region `see` returns, picture by picture."""
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
        """Write `<name>_eye.safetensors` and `<name>_eye.json` (config, and `facts` such as test figures)."""
        self.digest = write_eye(Path(folder) / f"{self.name}_eye", self.network, self.config, facts, "float16")

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


def open_eye(argument: str = "") -> WorldEye:
    """`world`, or `world:FOLDER` where the recipe wrote its weights."""
    return load_world_eye(Path(argument) if argument else WEIGHTS)


def load_world_eye(folder: Path | str = WEIGHTS, name: str = "world") -> WorldEye:
    """The eye that comes with the package, or the one in the folder its recipe wrote to."""
    facts = Path(folder) / f"{name}_eye.json"
    network = EyeNetwork(read_eye_config(facts, EyeConfig, f"recipes/{name}_eye.py"))
    fold(network)
    return WorldEye(network, name, fill_weights(network, facts))
