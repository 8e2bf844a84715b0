"""Light: where it comes from, its colour, and what the sky gives."""

from __future__ import annotations

from dataclasses import dataclass

from saccade.world.scene import Scene

Rgb = tuple[float, float, float]


@dataclass(frozen=True)
class Light:
    """Linear light. `direction` points to the light: x to the right, y up, z to the viewer."""

    direction: tuple[float, float, float]
    sun: Rgb
    sky: Rgb  # ambient
    shadow: float  # how dark shadows are


_LIGHTS = {
    "noon": ((0.95, 0.92, 0.84), (0.34, 0.37, 0.42), 0.62),
    "sunset": ((1.05, 0.72, 0.46), (0.32, 0.29, 0.36), 0.55),
    "night": ((0.38, 0.44, 0.62), (0.19, 0.21, 0.31), 0.45),
    "overcast": ((0.34, 0.35, 0.36), (0.6, 0.61, 0.63), 0.3),
}


def light_of(scene: Scene) -> Light:
    sun, sky, shadow = _LIGHTS[scene.lighting]
    low = scene.lighting in ("sunset", "night")
    direction = (0.74, 0.38, 0.555) if low else (0.5, 0.62, 0.605)
    return Light((direction[0] * scene.light_from, direction[1], direction[2]), sun, sky, shadow)
