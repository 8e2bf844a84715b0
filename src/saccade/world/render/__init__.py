"""Pictures from scene graphs: signed distance fields shaded in NumPy, with exact masks and boxes."""

from saccade.world.render.picture import Picture, render

__all__ = ["Picture", "render"]
