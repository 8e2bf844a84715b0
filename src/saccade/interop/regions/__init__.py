"""Goldens of boxes and what is seen in them: the detector's selection, and DenseCap's anchors and pooling."""

from saccade.interop.regions import verify_bottomup, verify_densecap

__all__ = ["verify_bottomup", "verify_densecap"]
