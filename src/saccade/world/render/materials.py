"""Light and surfaces: the light of a scene, noise for textures, and how rubber, metal, wood, cloth and glass shine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from saccade.world.catalogue import Rgb, column
from saccade.world.render.clay import Clay, Field, clamp
from saccade.world.scene import Scene


@dataclass(frozen=True)
class Light:
    """Linear light. `direction` points to the light: x to the right, y up, z to the viewer."""

    direction: tuple[float, float, float]
    sun: Rgb
    sky: Rgb  # ambient
    shadow: float  # how dark shadows are


def light_of(scene: Scene) -> Light:
    light = column("lightings", "light")[scene.lighting]
    x, y, z = (0.74, 0.38, 0.555) if light["low"] else (0.5, 0.62, 0.605)
    return Light((x * scene.light_from, y, z), light["sun"], light["ambient"], light["shadow"])


SIDE = 512


@cache
def tile(cell: int) -> Field:
    """float32 [512, 512] in -1..1: value noise whose bumps are `cell` pixels wide."""
    lattice = SIDE // cell
    raw = np.random.PCG64(977 + cell).random_raw(lattice * lattice).astype("<u8")
    values = ((raw >> np.uint64(40)).astype(np.float32) / 8388608.0 - 1.0).reshape(lattice, lattice)
    t = (np.arange(SIDE, dtype=np.float32) % cell) / np.float32(cell)
    t = t * t * (3.0 - 2.0 * t)
    low = np.arange(SIDE) // cell
    high = (low + 1) % lattice
    rows = values[low] * (1.0 - t[:, None]) + values[high] * t[:, None]
    return np.ascontiguousarray(rows[:, low] * (1.0 - t) + rows[:, high] * t)


@cache
def clouds() -> Field:
    """Four octaves summed: cloudy at every scale."""
    return tile(64) * 0.55 + tile(32) * 0.28 + tile(16) * 0.14 + tile(8) * 0.07


def texture_at(texture: Field, u: Field, v: Field) -> Field:
    """The texture at (u, v) in its pixels, wrapped."""
    found: Field = texture[np.floor(v).astype(np.int32) & (SIDE - 1), np.floor(u).astype(np.int32) & (SIDE - 1)]
    return found


def grain(seed: int, count: int) -> np.ndarray:
    """Sensor noise: `count` integers in -255..255, triangular, from raw bits (no library's normal distribution)."""
    raw = np.random.PCG64(seed).random_raw((count + 3) // 4).astype("<u8").view(np.uint8)
    return raw[:count].astype(np.int16) - raw[count : 2 * count].astype(np.int16)


def shade(
    clay: Clay, colour: tuple[float, float, float], material: str, light: Light, facing: int, behind: Field, seed: int
) -> tuple[Field, Field]:
    """Linear colour [3, row, column] and opacity [row, column] of the thing; `behind` shows through glass."""
    nx, ny, nz = clay.nx * float(facing), clay.ny, clay.nz
    lx, ly, lz = light.direction
    lit = nx * lx + ny * ly + nz * lz
    sun = np.maximum(lit, 0.0)
    # Less of the sky reaches what faces down or is near the ground.
    sky = (0.72 + 0.28 * ny) * (0.7 + 0.3 * clamp(clay.y * 2.5, 0.0, 1.0))
    # Blinn: the half-way direction between light and viewer, raised to the 32nd by squaring.
    hx, hy, hz = lx, ly, lz + 1.0
    half = 1.0 / math.sqrt(hx * hx + hy * hy + hz * hz)
    gloss = np.maximum((nx * hx + ny * hy + nz * hz) * half, 0.0)
    gloss4 = gloss * gloss
    gloss4 = gloss4 * gloss4
    gloss32 = gloss4 * gloss4
    gloss32 = gloss32 * gloss32
    gloss32 = gloss32 * gloss32
    rim = 1.0 - clamp(nz, 0.0, 1.0)
    rim = rim * rim
    texture = clay.tint
    shine: Field | None = None
    out = np.empty((3, *nx.shape), np.float32)

    if material == "wood":
        texture = texture * _wood(clay, seed)
        shine = 0.06 * gloss4
    elif material == "cloth":
        texture = texture * _weave(clay)
        sun = sun * 0.8 + 0.1
    elif material == "rubber":
        texture = texture * (
            1.0 + 0.05 * texture_at(tile(2), clay.x / clay.pixel * 2.0 + seed % 397, clay.y / clay.pixel * 2.0)
        )
        shine = 0.05 * gloss4
    elif material == "metal":
        up = 2.0 * nz * ny  # of the mirrored direction: sky above, a dark horizon, ground below
        mirror = np.where(up > 0.0, 0.28 + 0.8 * up, 0.06 - 0.26 * up) + 0.2 * clamp(np.abs(up - 0.12) * 8.0, 0.0, 1.0)
        shine = 1.1 * gloss32 * gloss4 + 0.05
        mirror = mirror + 0.4 * _streak(clay, 0.2, 0.16) * nz
    elif material == "glass":
        shine = 1.3 * gloss32 * gloss32 + 0.3 * rim + 0.2 * (_streak(clay, 0.3, 0.09) + _streak(clay, 0.56, 0.04))

    for c in range(3):
        albedo = colour[c] * texture
        if material == "wood":
            albedo = albedo * (0.78, 0.74, 0.66)[c] + (0.075, 0.042, 0.018)[c] * texture
        if material == "cloth":
            body = albedo * (light.sun[c] * sun + light.sky[c] * sky + 0.3 * rim)
        elif material == "metal":
            body = albedo * (
                light.sun[c] * sun * 0.35 + light.sky[c] * 0.2 + mirror * (light.sky[c] + 0.5 * light.sun[c])
            )
        else:
            body = albedo * (light.sun[c] * sun + light.sky[c] * sky)
        if material == "glass":
            through = behind[c] * (0.14 + 0.86 * colour[c]) * (0.95 - 0.45 * rim)
            body = through * 0.55 + body * (0.46 + 0.45 * rim)
        if shine is not None:
            body = body + shine * (light.sun[c] * 0.9 + light.sky[c] * 0.3)
        if clay.ink is not None:
            ink = clay.ink[c] * (light.sun[c] * sun + light.sky[c] * sky) + 0.25 * gloss32 * light.sun[c]
            body = body + (ink - body) * clay.inked
        out[c] = body
    return out, clay.cover


def _wood(clay: Clay, seed: int) -> Field:
    """Long wavy fibres: rings of a trunk cut lengthwise, with fine pores."""
    offset = float(seed % 397)
    wave = texture_at(clouds(), clay.x * 70.0 + offset, clay.y * 26.0 + offset)
    rings = (clay.x * 1.0 + clay.y * 0.12) * 7.0 + wave * 2.2
    rings = np.abs(rings - np.floor(rings) - 0.5) * 2.0  # 0 … 1, a triangle wave
    pores = texture_at(tile(2), clay.x / clay.pixel * 1.3 + offset, clay.y / clay.pixel * 0.22)
    return 0.62 + 0.5 * rings * rings * (3.0 - 2.0 * rings) + 0.12 * pores


def _weave(clay: Clay) -> Field:
    """Threads over and under: one lit across, the next along."""
    period = max(0.11, 3.4 * clay.pixel)
    u, v = clay.x / period, clay.y / period
    column, row = np.floor(u), np.floor(v)
    fu, fv = u - column - 0.5, v - row - 0.5
    even = (column + row) - 2.0 * np.floor((column + row) * 0.5)
    thread = np.where(even > 0.5, fu * fu, fv * fv)
    return 1.22 - 2.3 * thread - 0.14 * even


def _streak(clay: Clay, at: float, wide: float) -> Field:
    """A slanting reflection, as of a window: it gives flat faces their polish."""
    slant = clay.y - 0.55 * clay.x - at
    return np.maximum(1.0 - np.abs(slant) / wide, 0.0)
