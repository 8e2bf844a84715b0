"""What an eye is made of and what it can name."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.vision.boxes import GEOMETRY_DIM

REGION_ATTRIBUTES = ("kind", "colour", "size", "material", "pose", "facing")
PICTURE_ATTRIBUTES = ("background", "lighting")  # named from the whole-picture region


@dataclass(frozen=True)
class EyeConfig:
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
        return {
            "kind": self.kinds,
            "colour": self.colours,
            "size": self.sizes,
            "material": self.materials,
            "pose": self.poses,
            "facing": self.facings,
            "background": self.backgrounds,
            "lighting": self.lightings,
        }

    @property
    def appearance_dim(self) -> int:
        return self.dim - GEOMETRY_DIM
