"""The built-in world: seeded scenes of toys, with pictures, captions, relations and the truth about all of them."""

from saccade.world.render import render
from saccade.world.scene import Phrase, Scene, SceneCaption, SceneRelation, Thing
from saccade.world.store import Split, World, WorldConfig, make_world, open_world

__all__ = [
    "SceneCaption",
    "Phrase",
    "SceneRelation",
    "Scene",
    "Split",
    "Thing",
    "World",
    "WorldConfig",
    "make_world",
    "open_world",
    "render",
]
