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
from saccade.config import from_dict, to_dict
from saccade.errors import SaccadeError
from saccade.files import read_json, sha256, write_json
from saccade.vision.boxes import WHOLE, check_boxes
from saccade.vision.eye import Eye, RegionDescription
from saccade.vision.pictures import Picture, ids_of, name_of
from saccade.vision.world_backbone import fold, normalise
from saccade.vision.world_eye_config import PICTURE_ATTRIBUTES, REGION_ATTRIBUTES, EyeConfig
from saccade.vision.world_eye_network import EyeNetwork
from saccade.vision.world_proposals import propose
from saccade.weights_file import read_weights, write_weights

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
        self.network: EyeNetwork = network.eval().requires_grad_(False)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
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
            named = {k: v.softmax(dim=1).max(dim=1) for k, v in self.network.classify(seen.appearance).items()}
            owners = seen.image_index.tolist()
            batch: list[list[RegionDescription]] = [[] for _ in range(count)]
            for i, owner in enumerate(owners):
                is_whole = seen.whole and (i + 1 == len(owners) or owners[i + 1] != owner)
                names = [n for n in (PICTURE_ATTRIBUTES if is_whole else REGION_ATTRIBUTES) if n in named]
                x1, y1, x2, y2 = seen.boxes[i].tolist()
                batch[owner].append(
                    RegionDescription(
                        (x1, y1, x2, y2),
                        float(seen.scores[i]),
                        {n: self.config.labels[n][int(named[n].indices[i])] for n in names},
                        {n: float(named[n].values[i]) for n in names},
                    )
                )
            found += batch
        return found

    def save(self, folder: Path | str, facts: dict[str, object] | None = None) -> None:
        """Write `<name>_eye.safetensors` and `<name>_eye.json` (config, and `facts` such as test figures)."""
        stem = Path(folder) / f"{self.name}_eye"
        write_weights(stem.with_suffix(".safetensors"), self.network.state_dict(), "float16")
        self.digest = sha256(stem.with_suffix(".safetensors"))
        write_json(stem.with_suffix(".json"), {"config": to_dict(self.config), "sha256": self.digest, **(facts or {})})

    @torch.inference_mode()
    def _look(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None, batch_size: int
    ) -> Iterator[tuple[int, _Seen]]:
        if boxes is not None and len(boxes) != len(images):
            raise SaccadeError(f"{len(images)} pictures but {len(boxes)} arrays of boxes: one for each is needed")
        for start in range(0, len(images), batch_size):
            part = range(start, min(start + batch_size, len(images)))
            pixels = np.stack([self.prepare(images[i], name_of(images[i], i)) for i in part])
            given = None
            if boxes is not None:
                given = [check_boxes(boxes[i], name_of(images[i], i)) for i in part]
            yield len(part), self._regions(torch.from_numpy(pixels), given)

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
    weights, facts = Path(folder) / f"{name}_eye.safetensors", Path(folder) / f"{name}_eye.json"
    if not weights.exists() or not facts.exists():
        missing = facts if weights.exists() else weights
        raise SaccadeError(f'{missing} is missing: the eye "{name}" is trained by `python recipes/{name}_eye.py`')
    values = read_json(facts)
    if not isinstance(values, dict) or not isinstance(values.get("config"), dict):
        raise SaccadeError(f'{facts} must hold a "config", as written by recipes/{name}_eye.py')
    network = EyeNetwork(from_dict(EyeConfig, values["config"], where=f"{facts.name}: config"))
    fold(network)
    state = read_weights(weights)
    try:
        network.load_state_dict(state)
    except RuntimeError as error:
        raise SaccadeError(f"{weights} does not fit the network that {facts.name} describes") from error
    return WorldEye(network, name, sha256(weights))
