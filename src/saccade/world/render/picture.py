"""Painting a scene: the place, the shadows, then every thing from the farthest to the nearest, then the camera."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float32, UInt8

from saccade.world.catalogue import COLOURS, KINDS
from saccade.world.render import toys
from saccade.world.render.backdrop import backdrop, grid
from saccade.world.render.clay import Clay, Field, clamp
from saccade.world.render.materials import Light, grain, light_of, shade
from saccade.world.scene import Scene, Thing

MODELS: dict[str, Callable[[Clay, str], None]] = {kind: getattr(toys, kind) for kind in KINDS}
NOISE = 0.011  # of the sensor, in display units of 0..1 for the largest of 255 steps × 2


@dataclass(frozen=True)
class Picture:
    """What a camera sees of a scene, and which pixel belongs to which thing."""

    image: UInt8[np.ndarray, "row column 3"]
    masks: Bool[np.ndarray, "thing row column"]  # the visible part
    boxes: Float32[np.ndarray, "thing 4"]  # xyxy in 0..1, of the visible part; zeros if nothing is


def render(scene: Scene, size: int = 128, ground: Field | None = None) -> Picture:
    """Draw the scene `size` pixels wide. The same scene gives the same bytes on every machine.

    `ground` is the place without its things, where it has been painted before. What stands outside is not drawn.
    """
    light = light_of(scene)
    canvas = empty_place(scene, size) if ground is None else ground.copy()
    owners = np.zeros((size, size), np.uint8)
    lifted = {r.subject for r in scene.relations if r.predicate in ("on", "inside")}
    lifted |= {r.object for r in scene.relations if r.predicate == "holding"}
    for i, thing in enumerate(scene.things):
        if i not in lifted and _in_view(thing):
            _cast_shadow(canvas, thing, light, size)
    steps = [(thing.depth, i, False) for i, thing in enumerate(scene.things)]
    # A basket's inner wall comes before what is inside it, its outer wall after.
    steps += [(thing.depth + 0.002, i, True) for i, thing in enumerate(scene.things) if thing.kind == "basket"]
    for _, i, inner in sorted(steps, key=lambda step: (-step[0], step[1])):
        thing = scene.things[i]
        if _in_view(thing):
            _paint(canvas, owners, scene, thing, i, light, size, inner=inner)
    masks = owners[None] == np.arange(1, len(scene.things) + 1, dtype=np.uint8)[:, None, None]
    return Picture(_expose(canvas, scene.seed, size), masks, _tight_boxes(masks, size))


def empty_place(scene: Scene, size: int) -> Field:
    """The place of a scene under its light, without things."""
    return backdrop(scene, light_of(scene), size)


def _in_view(thing: Thing) -> bool:
    """Whether any of it, its shadow too, can be in the picture."""
    reach = thing.height * (KINDS[thing.kind].width / 2 + 0.55)
    return -reach < thing.x < 1 + reach


def _paint(
    canvas: Field, owners: np.ndarray, scene: Scene, thing: Thing, i: int, light: Light, size: int, inner: bool
) -> None:
    half = thing.height * (KINDS[thing.kind].width / 2 + 0.12)
    left, right = int((thing.x - half) * size) - 2, int((thing.x + half) * size) + 3
    top, bottom = int((thing.y - thing.height * 1.12) * size) - 2, int((thing.y + 0.04 * thing.height) * size) + 3
    window = slice(max(top, 0), min(bottom, size)), slice(max(left, 0), min(right, size))
    x, y = grid(size)
    local_x = (x[window] - thing.x) * (thing.facing / thing.height)
    local_y = (thing.y - y[window]) * (1.0 / thing.height)
    clay = Clay(local_x, local_y, 1.0 / (size * thing.height))
    if inner:
        toys.basket_back(clay)
    else:
        MODELS[thing.kind](clay, thing.pose)
    r, g, b = (v * v / 65025 for v in COLOURS[thing.colour])  # linear light
    behind = canvas[:, window[0], window[1]]
    colour, alpha = shade(clay, (r, g, b), thing.material, light, thing.facing, behind, scene.seed + 131 * i)
    for c in range(3):
        behind[c] += (colour[c] - behind[c]) * alpha
    owners[window][alpha > 0.5] = i + 1


def _cast_shadow(canvas: Field, thing: Thing, light: Light, size: int) -> None:
    """A soft patch on the ground: dark at the foot, drawn out away from the light."""
    half = thing.height * KINDS[thing.kind].width * 0.5
    reach = thing.height * 0.55
    side = -1.0 if light.direction[0] > 0 else 1.0
    x, y = grid(size)
    rows = slice(
        max(int((thing.y - 0.3 * thing.height) * size), 0), min(int((thing.y + 0.3 * thing.height) * size), size)
    )
    cols = slice(max(int((thing.x - half - reach) * size) - 4, 0), min(int((thing.x + half + reach) * size) + 4, size))
    px, py = x[rows, cols] - thing.x, y[rows, cols] - thing.y
    dark: Field | None = None
    for shift, rx, ry, weight in (
        (0.0, half * 0.95, 0.1 * thing.height, 0.75),
        (side * reach * 0.55, half + reach * 0.35, 0.14 * thing.height, light.shadow),
    ):
        ex, ey = (px - shift) / rx, (py + 0.02 * thing.height) / ry
        soft = clamp(1.0 - np.sqrt(ex * ex + ey * ey), 0.0, 1.0)
        soft = 1.0 - soft * soft * (3.0 - 2.0 * soft) * weight
        dark = soft if dark is None else dark * soft
    assert dark is not None
    canvas[:, rows, cols] *= dark


def _expose(canvas: Field, seed: int, size: int) -> UInt8[np.ndarray, "row column 3"]:
    """Linear light to display values (a square root is near enough to a camera's curve), darker corners, grain."""
    x, y = grid(size)
    vignette = 1.03 - 0.22 * ((x - 0.5) * (x - 0.5) + (y - 0.5) * (y - 0.5))
    display = np.sqrt(clamp(canvas, 0.0, 1.0)) * vignette
    noise = grain(seed, 3 * size * size).reshape(3, size, size).astype(np.float32)
    display = display * 255.0 + noise * (NOISE * 255.0 / 100.0) + 0.5
    return np.ascontiguousarray(clamp(display, 0.0, 255.0).astype(np.uint8).transpose(1, 2, 0))


def _tight_boxes(masks: Bool[np.ndarray, "thing row column"], size: int) -> Float32[np.ndarray, "thing 4"]:
    boxes = np.zeros((len(masks), 4), np.float32)
    rows, columns = np.any(masks, axis=2), np.any(masks, axis=1)
    for i in range(len(masks)):
        down, across = np.flatnonzero(rows[i]), np.flatnonzero(columns[i])
        if len(down):
            boxes[i] = across[0] / size, down[0] / size, (across[-1] + 1) / size, (down[-1] + 1) / size
    return boxes
