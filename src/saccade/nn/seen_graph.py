"""What a captioner of scene graphs looks at: nodes, and where in the picture each of them is."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import Batch


@dataclass(frozen=True)
class GraphContext(Batch):
    """A picture's nodes, and where among its regions each stands."""

    nodes: Float[Tensor, "row node dim"]
    keys: Float[Tensor, "row node attention"]
    mask: Bool[Tensor, "row node"]
    places: Int[Tensor, "row node 2"]
    regions: Bool[Tensor, "row region"]
    whole: Float[Tensor, "row dim"]
    reworded: Float[Tensor, "row node dim"] | None = None  # D's reading of the nodes, where it stands beside them
    reworded_keys: Float[Tensor, "row node attention"] | None = None

    def on_regions(self, weights: Float[Tensor, "row node"]) -> Float[Tensor, "row region"]:
        """A relation is looked at where its two things are, an attribute where its thing is."""
        halves = (weights / 2 * self.mask)[:, :, None].expand(-1, -1, 2)
        return weights.new_zeros(self.regions.shape).scatter_add(1, self.places.flatten(1), halves.flatten(1))


@dataclass(frozen=True)
class SentenceGraphContext(GraphContext):
    """A sentence's nodes, which stand nowhere in a picture."""

    def on_regions(self, weights: Float[Tensor, "row node"]) -> Float[Tensor, "row region"]:
        return weights.new_zeros(self.regions.shape)
