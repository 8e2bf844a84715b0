"""The scene graph: the one source of truth from which pictures, captions and every later task are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Thing:
    """One toy. Positions are in the picture's unit square, y down, so that (x, y) is the middle of its foot."""

    kind: str
    colour: str
    size: str
    material: str
    pose: str = "still"  # still, running, holding, pushing or sitting
    facing: int = 1  # 1: to the right, -1: to the left
    x: float = 0.5
    y: float = 0.9
    depth: float = 0.0  # 0: nearest to the viewer, 1: farthest
    height: float = 0.2  # as drawn

    @property
    def identity(self) -> tuple[str, str, str, str]:
        return self.kind, self.colour, self.size, self.material


@dataclass(frozen=True)
class SceneRelation:
    """Positions in `Scene.things`, and one of `catalogue.PREDICATES` between them."""

    subject: int
    predicate: str
    object: int


@dataclass(frozen=True)
class Scene:
    """Things in a place under a light, and every relation that holds between them."""

    id: str
    things: tuple[Thing, ...] = ()
    relations: tuple[SceneRelation, ...] = ()
    background: str = "meadow"
    lighting: str = "noon"
    light_from: int = -1  # -1: from the left, 1: from the right
    horizon: float = 0.36  # height of the horizon, y down
    seed: int = 0  # of textures, clutter and noise
    twin: str | None = None  # the id of the scene that differs from this one in one binding only

    def to_json(self) -> dict[str, Any]:
        relations = [[r.subject, r.predicate, r.object] for r in self.relations]
        return {**vars(self), "things": [dict(vars(t)) for t in self.things], "relations": relations}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Scene:
        return Scene(
            **{
                **value,
                "things": tuple(Thing(**t) for t in value["things"]),
                "relations": tuple(SceneRelation(*r) for r in value["relations"]),
            }
        )


@dataclass(frozen=True)
class Phrase:
    """The words `start` to `end` (exclusive) of a caption, and the things they name."""

    start: int
    end: int
    things: tuple[int, ...]


@dataclass(frozen=True)
class SceneCaption:
    """A sentence true of its scene, with its words tied to things.

    `distractor` has exactly the same words bound otherwise, and is false of the scene; None where none exists.
    """

    text: str
    phrases: tuple[Phrase, ...] = ()
    distractor: str | None = None
    relations: tuple[SceneRelation, ...] = ()  # those it states

    def to_json(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "phrases": [[p.start, p.end, list(p.things)] for p in self.phrases],
            "distractor": self.distractor,
            "relations": [[r.subject, r.predicate, r.object] for r in self.relations],
        }

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> SceneCaption:
        phrases = tuple(Phrase(start, end, tuple(things)) for start, end, things in value["phrases"])
        return SceneCaption(
            value["text"], phrases, value["distractor"], tuple(SceneRelation(*r) for r in value["relations"])
        )
