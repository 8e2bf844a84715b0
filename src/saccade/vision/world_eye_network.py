"""The network of the eye: pictures → map → proposals, and boxes → region vectors with everything about a thing in one.

A region's vector is its appearance (layer-normalised, so every component has unit spread) followed by eight numbers of
geometry of like spread. The attribute classifiers are linear readers of the appearance: what they can tell, any model
that reads the vector can tell, and kind, colour, size and material stay bound together because they share the vector.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.vision.boxes import GEOMETRY_DIM, geometry
from saccade.vision.roi import roi_bilinear
from saccade.vision.world_backbone import Backbone, Convolution, Maps
from saccade.vision.world_eye_config import EyeConfig
from saccade.vision.world_proposals import ProposalHead


class EyeNetwork(nn.Module):
    def __init__(self, config: EyeConfig) -> None:
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

    def __init__(self, config: EyeConfig) -> None:
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
