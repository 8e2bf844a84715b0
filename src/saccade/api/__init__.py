"""Saccade in Python: a trained model with pictures and sentences instead of tensors.

>>> import saccade
>>> model = saccade.load("runs/scan")
>>> model.score(["a.png", "b.png"], ["a red cube left of a blue ball"])
>>> save_explanation(model.explain("a.png", "a red cube left of a blue ball"), "why.png")
>>> saccade.load("runs/updown").caption("a.png")[0].text
"""

from saccade.api.captioning import Caption, PictureCaptioner
from saccade.api.loading import load
from saccade.api.looking import PictureModel
from saccade.api.matching import PictureMatcher

__all__ = ["Caption", "PictureCaptioner", "PictureMatcher", "PictureModel", "load"]
