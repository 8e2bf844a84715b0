"""Pictures from scene graphs: signed distance fields shaded in NumPy, with exact masks and boxes."""

from saccade.world.render.picture import Picture, empty_place, render

__all__ = ["Picture", "empty_place", "render"]
