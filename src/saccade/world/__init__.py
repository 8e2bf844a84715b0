"""The built-in world: seeded scenes of toys, with pictures, captions, relations and the truth about all of them."""

from saccade.world.make import make_world
from saccade.world.render import render
from saccade.world.scene import Caption, Phrase, Relation, Scene, Thing
from saccade.world.store import Split, World, WorldConfig, open_world

__all__ = [
    "Caption",
    "Phrase",
    "Relation",
    "Scene",
    "Split",
    "Thing",
    "World",
    "WorldConfig",
    "make_world",
    "open_world",
    "render",
]
