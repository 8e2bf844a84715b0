"""The places: meadow, beach, room, snow and street, each with sky or wall, textured ground and clutter."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from saccade.world.catalogue import Rgb, column
from saccade.world.dice import Dice
from saccade.world.render.clay import Field, clamp
from saccade.world.render.materials import Light, clouds, texture_at, tile
from saccade.world.scene import Scene


@lru_cache(maxsize=4)
def grid(size: int) -> tuple[Field, Field]:
    """x and y of the pixel centres in 0..1, y down."""
    at = ((np.arange(size) + 0.5) / size).astype(np.float32)
    return np.broadcast_to(at[None, :], (size, size)), np.broadcast_to(at[:, None], (size, size))


def backdrop(scene: Scene, light: Light, size: int) -> Field:
    """Linear light [3, row, column], before anything is put on it."""
    x, y = grid(size)
    dice = Dice("backdrop", scene.seed)
    out = np.empty((3, size, size), np.float32)
    offset = float(dice.below(512))
    split = round(scene.horizon * size)
    _above(scene, dice, out[:, :split], x[:split], y[:split], offset)
    _ground(scene, dice, light, out[:, split:], x[split:], y[split:], offset)
    _clutter(scene, dice, out, size)
    return out


def _fill(out: Field, low: Rgb, high: Rgb, share: Field) -> None:
    for c in range(3):
        out[c] = low[c] + (high[c] - low[c]) * share


_SKIES: dict[str, tuple[Rgb, Rgb, Rgb]] = column("lightings", "sky")  # at the horizon, overhead, clouds
_RIDGES: dict[str, tuple[tuple[float, float, Rgb], ...]] = column("backgrounds", "ridges")
_WALLS: tuple[Rgb, ...] = column("backgrounds", "walls")["room"]
_GROUNDS: dict[str, tuple[Rgb, Rgb]] = column("backgrounds", "ground")  # darker, lighter
_SCRAPS: dict[str, tuple[Rgb, ...]] = column("backgrounds", "scraps")
_BRIGHT: dict[str, dict[str, float]] = column("lightings", "bright")


def _above(scene: Scene, dice: Dice, out: Field, x: Field, y: Field, offset: float) -> None:
    """Sky with clouds and what stands on the horizon, or a wall."""
    height = y / scene.horizon  # 0 at the top, 1 at the horizon
    if scene.background == "room":
        _wall(scene, dice, out, x, height)
        return
    if scene.background == "street":
        _bricks(scene, dice, out, x, y, offset)
        return
    low, high, cloud = _SKIES[scene.lighting]
    _fill(out, high, low, height * height)
    cover = texture_at(clouds(), x * 150.0 + offset, y * 420.0 + offset * 3.0)
    thick = clamp((cover - (0.0 if scene.lighting == "overcast" else 0.12)) * 3.0, 0.0, 1.0) * (1.0 - height * 0.5)
    for c in range(3):
        out[c] += (cloud[c] - out[c]) * thick
    if scene.lighting == "night":
        stars = texture_at(tile(2), x * 512.0 + offset, y * 512.0)
        out += np.where(stars > 0.97, 0.5, 0.0) * (1.0 - height)
    bright = _BRIGHT[scene.lighting]["horizon"]
    if scene.background == "beach":
        sea = clamp((height - 0.7) * 60.0, 0.0, 1.0)
        glint = texture_at(tile(4), x * 90.0 + offset, y * 700.0)
        for c, blue in enumerate((0.05, 0.26, 0.42)):
            out[c] += (blue * bright * (1.0 + 0.4 * glint) + 0.2 * low[c] * clamp(glint, 0.0, 1.0) - out[c]) * sea
    for n, (rise, rough, tone) in enumerate(_RIDGES.get(scene.background, ())):
        line = texture_at(clouds(), x * (110.0 + 60 * n) + offset * (n + 2), x * 0.0 + 31.0 * n + offset)
        hill = clamp((height - (1.0 - rise) - rough * line) * scene.horizon / (y[1, 0] - y[0, 0]), 0.0, 1.0)
        for c in range(3):
            out[c] += (tone[c] * bright - out[c]) * hill


def _wall(scene: Scene, dice: Dice, out: Field, x: Field, height: Field) -> None:
    """Striped wallpaper with light falling from one side, and a skirting board."""
    tone = dice.pick(_WALLS)
    count = float(dice.pick((9, 13, 17)))
    stripe = x * count
    stripe = np.where(stripe - np.floor(stripe) < 0.5, 1.0, 0.86)
    side = x if scene.light_from > 0 else 1.0 - x
    glow = _BRIGHT[scene.lighting]["room"] * (0.62 + 0.45 * side) * (0.8 + 0.2 * height)
    board = clamp((height - 0.9) * 60.0, 0.0, 1.0)
    for c in range(3):
        out[c] = (tone[c] * stripe * (1.0 - board) + 0.7 * board) * glow


def _bricks(scene: Scene, dice: Dice, out: Field, x: Field, y: Field, offset: float) -> None:
    row = np.floor((scene.horizon - y) * 26.0)
    shift = (row - 2.0 * np.floor(row * 0.5)) * 0.5
    along = x * 9.0 + shift + offset
    column = np.floor(along)
    mortar = clamp((np.abs(along - column - 0.5) - 0.44) * 20.0, 0.0, 1.0)
    mortar = np.maximum(mortar, clamp((np.abs((scene.horizon - y) * 26.0 - row - 0.5) - 0.38) * 9.0, 0.0, 1.0))
    tone = (
        0.85
        + 0.3 * texture_at(tile(4), column * 37.0 + offset, row * 53.0)
        + 0.1 * texture_at(tile(2), x * 512.0, y * 512.0)
    )
    side = x if scene.light_from > 0 else 1.0 - x
    glow = _BRIGHT[scene.lighting]["room"] * (0.6 + 0.4 * side)
    for c, (brick, seam) in enumerate(((0.33, 0.46), (0.16, 0.43), (0.12, 0.4))):
        out[c] = (brick * tone + (seam - brick * tone) * mortar) * glow


def _ground(scene: Scene, dice: Dice, light: Light, out: Field, x: Field, y: Field, offset: float) -> None:
    """A plane in perspective: its texture grows toward the viewer and fades into the distance."""
    below = y - scene.horizon
    far = 0.16 / (below + 0.06)  # distance: large at the horizon
    u, v = (x - 0.5) * far, far
    near = clamp(below * 4.0, 0.12, 1.0)
    coarse = texture_at(clouds(), u * 260.0 + offset, v * 420.0 + offset)
    fine = texture_at(tile(2), u * 900.0 + offset, v * 900.0)
    if scene.background == "meadow":
        blades = texture_at(tile(4), x * 620.0 + offset, y * 190.0 + coarse * 6.0)
        share = 0.42 + 0.4 * coarse + 0.34 * blades * near + 0.1 * fine * near
    elif scene.background == "beach":
        ripple = v * 9.0 + coarse * 1.6
        ripple = np.abs(ripple - np.floor(ripple) - 0.5) * 2.0
        share = 0.55 + 0.25 * coarse + (0.18 * ripple + 0.22 * fine) * near
    elif scene.background == "room":
        plank = u * 6.0 + offset
        column = np.floor(plank)
        cross = v * 2.2 + texture_at(tile(4), column * 41.0, column * 0.0) * 3.0
        seam = np.minimum(0.5 - np.abs(plank - column - 0.5), (0.5 - np.abs(cross - np.floor(cross) - 0.5)) * 1.6)
        fibre = texture_at(tile(4), u * 900.0 + column * 61.0, v * 90.0)
        tone = texture_at(tile(8), column * 83.0 + offset, np.floor(cross) * 67.0)
        share = 0.45 + 0.28 * tone + 0.25 * fibre * near
        share = share * clamp(seam / far * 16.0 + 0.35, 0.0, 1.0)
    elif scene.background == "snow":
        share = 0.7 + 0.45 * coarse + 0.14 * fine * near
        share = share + np.where(fine > 0.9, 0.35, 0.0) * near
    else:
        flag, row = u * 4.0 + offset, v * 4.5
        cu, cv = np.floor(flag), np.floor(row)
        joint = np.minimum(0.5 - np.abs(flag - cu - 0.5), 0.5 - np.abs(row - cv - 0.5))
        tone = texture_at(tile(4), cu * 29.0 + offset, cv * 47.0)
        share = (0.5 + 0.3 * tone + 0.3 * fine * near) * clamp(joint / far * 14.0 + 0.3, 0.0, 1.0)
    share = clamp(share, 0.0, 1.3)
    low, high = _GROUNDS[scene.background]
    _fill(out, low, high, share)
    side = x if scene.light_from > 0 else 1.0 - x
    fall = 0.9 + 0.16 * side
    for c in range(3):
        out[c] *= (light.sky[c] * 0.75 + light.sun[c] * 0.72) * fall


def _clutter(scene: Scene, dice: Dice, out: Field, size: int) -> None:
    """Small marks of no importance: flowers, pebbles, twigs, scraps, leaves."""
    bright = _BRIGHT[scene.lighting]["scraps"]
    for _ in range(10 + dice.below(16)):
        depth = dice.draw()
        cx, cy = dice.draw(), scene.horizon + 0.06 + (0.92 - scene.horizon) * depth
        rx = (0.004 + 0.009 * dice.draw()) * (0.5 + depth)
        ry = rx * (0.35 + 0.5 * dice.draw())
        lean = dice.draw() * 2.0 - 1.0
        tone = dice.pick(_SCRAPS[scene.background])
        left, right = max(int((cx - 2 * rx) * size), 0), min(int((cx + 2 * rx) * size) + 2, size)
        top, bottom = max(int((cy - 2 * rx) * size), 0), min(int((cy + 2 * rx) * size) + 2, size)
        if left >= right or top >= bottom:
            continue
        gx, gy = grid(size)
        px = gx[top:bottom, left:right] - cx
        py = gy[top:bottom, left:right] - cy + lean * px * 0.6
        distance = np.sqrt((px / rx) * (px / rx) + (py / ry) * (py / ry)) - 1.0
        alpha = clamp(0.5 - distance * ry * size, 0.0, 1.0) * 0.85
        for c in range(3):
            window = out[c, top:bottom, left:right]
            window += (tone[c] * bright - window) * alpha
