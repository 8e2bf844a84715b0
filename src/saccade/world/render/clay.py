"""Clay: a window of pixels in which one thing is modelled, part over part, into colour and surface direction."""

from __future__ import annotations

import numpy as np

from saccade.world.render.sdf import Field, clamp

Ink = tuple[float, float, float]

# Colours that are not the thing's own (linear light): eyes, windows, trunks.
DARK: Ink = (0.02, 0.02, 0.03)
WHITE: Ink = (0.85, 0.85, 0.83)
BROWN: Ink = (0.17, 0.08, 0.03)
CREAM: Ink = (0.78, 0.66, 0.46)
BEAK: Ink = (0.9, 0.34, 0.03)
GLOW: Ink = (1.0, 0.82, 0.36)
SKY: Ink = (0.32, 0.5, 0.66)
STEEL: Ink = (0.3, 0.32, 0.36)

Normal = tuple[Field | float, Field | float, Field | float]


class Clay:
    """x forward and y up in units of the thing's height, from the middle of its foot."""

    def __init__(self, x: Field, y: Field, pixel: float) -> None:
        self.x, self.y, self.pixel = x, y, pixel
        shape = x.shape
        self.cover: Field = np.zeros(shape, np.float32)
        self.nx: Field = np.zeros(shape, np.float32)
        self.ny: Field = np.zeros(shape, np.float32)
        self.nz: Field = np.ones(shape, np.float32)
        self.tint: Field = np.ones(shape, np.float32)  # brightness of the own colour
        self.inked: Field = np.zeros(shape, np.float32)  # share that is not of the own colour
        self.ink: Field | None = None  # float32 [3, row, column]

    def add(
        self,
        shape: Field,
        bulge: float = 0.1,
        tint: float = 1.0,
        ink: Ink | None = None,
        normal: Normal | None = None,
        faint: float = 1.0,
    ) -> None:
        """Lay a part over what is there. It swells from its edge over a width of `bulge`, unless `normal` is given."""
        alpha = clamp(0.5 - shape / self.pixel, 0.0, 1.0)
        if faint != 1.0:
            alpha = alpha * faint
        keep = 1.0 - alpha
        nx, ny, nz = self._swell(shape, bulge) if normal is None else normal
        self.nx = self.nx * keep + nx * alpha
        self.ny = self.ny * keep + ny * alpha
        self.nz = self.nz * keep + nz * alpha
        self.tint = self.tint * keep + tint * alpha
        self.inked = self.inked * keep
        if ink is not None:
            self.inked = self.inked + alpha
            if self.ink is None:
                self.ink = np.empty((3, *shape.shape), np.float32)
                for channel, value in enumerate(ink):
                    self.ink[channel] = value
            else:
                for channel, value in enumerate(ink):
                    self.ink[channel] = self.ink[channel] * keep + value * alpha
        self.cover = self.cover * keep + alpha

    def _swell(self, shape: Field, bulge: float) -> Normal:
        """A rounded cross-section: at the edge the surface faces outward, `bulge` inside it faces the viewer."""
        edge = clamp(1.0 + shape / bulge, 0.0, 1.0)
        gx, gy = np.zeros_like(shape), np.zeros_like(shape)
        scale = 0.5 / self.pixel
        gx[:, 1:-1] = (shape[:, 2:] - shape[:, :-2]) * scale
        gy[1:-1] = (shape[:-2] - shape[2:]) * scale
        return gx * edge, gy * edge, np.sqrt(np.maximum(1.0 - edge * edge, 0.0))
