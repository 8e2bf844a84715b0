"""What there is in the world: kinds of thing, colours, sizes, materials, places, light, and who can do what to whom."""

from __future__ import annotations

from dataclasses import dataclass

Point = tuple[float, float]


@dataclass(frozen=True)
class Kind:
    """A kind of toy. Lengths are in units of its own height, x forward from its middle, y up from its foot."""

    name: str
    height: float  # of a medium one, in units of a medium cube
    width: float  # over its height
    roles: frozenset[str]
    top: float = 1.0  # where something put on it rests
    head: Point | None = None  # where a hat sits
    hand: Point | None = None  # where a held thing's middle is
    seat: Point | None = None  # where a rider sits


def _kind(name: str, height: float, width: float, roles: str, **points: object) -> Kind:
    return Kind(name, height, width, frozenset(roles.split()), **points)  # type: ignore[arg-type]


# The roles: creature (looks, wears), mover (chases and is chased), handed (holds and pushes), rider, mount,
# support and stackable (on), container and content (inside), holdable, pushable.
_KINDS = (
    _kind("cube", 1.0, 1.12, "support stackable content holdable pushable", top=0.9),
    _kind("ball", 0.95, 1.0, "stackable content holdable pushable"),
    _kind("cone", 1.1, 0.85, "stackable content holdable"),
    _kind("cylinder", 1.0, 0.85, "support stackable content holdable pushable", top=0.9),
    _kind("pyramid", 1.0, 1.2, "stackable content holdable"),
    _kind("star", 1.0, 1.05, "stackable content holdable"),
    _kind("ring", 0.9, 1.0, "stackable content holdable"),
    _kind("mug", 0.85, 1.15, "stackable content holdable"),
    _kind("lamp", 1.35, 0.7, "stackable content holdable"),
    _kind("table", 0.95, 1.6, "support pushable", top=0.93),
    _kind("basket", 1.0, 1.4, "container pushable"),
    _kind("hat", 0.6, 1.7, "stackable content holdable"),
    _kind("key", 1.1, 0.5, "content holdable"),
    _kind("mushroom", 1.0, 1.05, "stackable content holdable"),
    _kind("tree", 1.65, 0.7, ""),
    _kind("house", 1.35, 0.95, "stackable"),
    _kind("car", 0.85, 1.9, "mover mount pushable stackable", seat=(-0.08, 0.93)),
    _kind("boat", 1.0, 1.5, "mount pushable stackable", seat=(-0.42, 0.32)),
    _kind("fish", 0.8, 1.5, "content holdable stackable"),
    _kind("duck", 1.0, 1.15, "creature mover rider stackable content", head=(0.28, 0.92)),
    _kind("cat", 1.1, 1.15, "creature mover rider stackable content", head=(0.3, 0.84)),
    _kind("dog", 1.05, 1.3, "creature mover rider stackable", head=(0.37, 0.86)),
    _kind("horse", 1.45, 1.15, "creature mover mount", head=(0.36, 0.93), seat=(-0.06, 0.64)),
    _kind("bear", 1.35, 0.75, "creature mover handed rider stackable", head=(0.0, 0.92), hand=(0.42, 0.47)),
    _kind("robot", 1.45, 0.68, "creature mover handed rider stackable", head=(0.0, 0.94), hand=(0.42, 0.5)),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 38, 40),
    "orange": (246, 130, 20),
    "yellow": (250, 214, 40),
    "green": (44, 158, 62),
    "turquoise": (38, 196, 190),
    "blue": (38, 86, 214),
    "purple": (126, 48, 176),
    "pink": (250, 138, 184),
    "white": (240, 240, 238),
    "black": (38, 38, 42),
}
SIZES: dict[str, float] = {"small": 0.64, "medium": 1.0, "large": 1.45}
MATERIALS = ("rubber", "metal", "wood", "cloth", "glass")
BACKGROUNDS = ("meadow", "beach", "room", "snow", "street")
LIGHTINGS = ("noon", "sunset", "night", "overcast")

MEDIUM_CUBE = 0.225  # height in the picture, nearest to the viewer

ACTS = ("inside", "holding", "wearing", "riding", "chasing", "pushing", "looking at")
PREDICATES = ("left of", "right of", "in front of", "behind", "next to", "on", "under", *ACTS)

_ROLES: dict[str, tuple[str, str]] = {
    "on": ("stackable", "support"),
    "inside": ("content", "container"),
    "holding": ("handed", "holdable"),
    "riding": ("rider", "mount"),
    "chasing": ("mover", "mover"),
    "pushing": ("handed", "pushable"),
}


def possible(subject: str, predicate: str, thing: str) -> bool:
    """Whether the world ever shows `subject predicate thing` (kinds), so that a false sentence is never absurd."""
    if predicate == "under":
        return possible(thing, "on", subject)
    if predicate == "wearing":
        return "creature" in KINDS[subject].roles and thing == "hat"
    if predicate == "looking at":
        return "creature" in KINDS[subject].roles
    if predicate == "on" and (possible(subject, "riding", thing) or possible(thing, "wearing", subject)):
        return True  # a rider is on its mount, a worn hat on its wearer
    if predicate not in _ROLES:
        return True
    first, second = _ROLES[predicate]
    return first in KINDS[subject].roles and second in KINDS[thing].roles


def kinds_with(role: str) -> tuple[str, ...]:
    return tuple(name for name, kind in KINDS.items() if role in kind.roles)
