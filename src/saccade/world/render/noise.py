"""One smooth random texture that wraps round, made once from raw random bits and looked up by every surface."""

from __future__ import annotations

from functools import cache

import numpy as np

from saccade.world.render.sdf import Field

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
