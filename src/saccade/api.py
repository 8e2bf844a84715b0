"""Saccade in Python: load a trained model, score pictures against sentences, and see why.

>>> import saccade
>>> model = saccade.load("runs/scan")
>>> model.score(["a.png", "b.png"], ["a red cube left of a blue ball"])
>>> model.explain("a.png", "a red cube left of a blue ball").save("why.png")
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import RegionBatch, TextBatch
from saccade.errors import SaccadeError
from saccade.explain import Explanation
from saccade.models import Matcher, load_model
from saccade.vision.pictures import Picture, as_array

if TYPE_CHECKING:
    from saccade.vision import Eye


def load(folder: Path | str, device: str = "cpu") -> PictureMatcher:
    """A run folder (its best model), a model folder, or the name of a model on the hub."""
    if Path(folder).exists() or str(folder).count("/") != 1 or str(folder).startswith((".", "/")):
        model = load_model(folder, Matcher)
    else:
        model = Matcher.from_pretrained(str(folder))
    return PictureMatcher(model.to(device).eval())


class PictureMatcher:
    """A trained matcher with the eye it was trained with: pictures and sentences in, scores and explanations out."""

    def __init__(self, model: Matcher, eye: Eye | None = None) -> None:
        self.model = model
        self._eye = eye

    @cached_property
    def eye(self) -> Eye:
        from saccade.vision import load_eye
        from saccade.vision.grid import GridEye

        if self._eye is not None:
            return self._eye
        if self.model.sight is not None:
            return GridEye(self.model.sight)
        if self.model.eye is None:
            raise SaccadeError(
                "this model was trained on features whose maker is not known, so it cannot look at pictures: "
                "give it regions (a RegionBatch) instead"
            )
        return load_eye(self.model.eye, device=self.device)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def see(self, images: Picture | Sequence[Picture] | RegionBatch) -> RegionBatch:
        """Regions of pictures (paths, Pillow images or arrays); a RegionBatch is taken as it is."""
        if isinstance(images, RegionBatch):
            return images.to(self.device)
        return self.eye.see(_listed(images)).to(self.device)

    def read(self, texts: str | Sequence[str]) -> TextBatch:
        """Sentences as word ids; a sentence without a single known word is refused."""
        listed = [texts] if isinstance(texts, str) else list(texts)
        for text in listed:
            self.model.vocabulary.check(text)
        return self.model.read(listed).to(self.device)

    @torch.no_grad()
    def score(
        self, images: Picture | Sequence[Picture] | RegionBatch, texts: str | Sequence[str]
    ) -> Float[np.ndarray, "image text"]:
        """The similarity of every picture with every sentence."""
        similarity = self.model(self.see(images), self.read(texts))
        return np.asarray(similarity.float().cpu().numpy())

    def rank(
        self, text: str, images: Sequence[Picture] | RegionBatch, top: int | None = None
    ) -> list[tuple[int, float]]:
        """(position, score) of the pictures that fit a sentence best, best first."""
        scores = self.score(images, text)[:, 0]
        order = np.argsort(-scores, kind="stable")[:top]
        return [(int(i), float(scores[i])) for i in order]

    @torch.no_grad()
    def explain(self, image: Picture, text: str, title: str = "") -> Explanation:
        """Which regions each word found: `.save("why.png")` draws it."""
        picture = as_array(image)
        regions, words = self.see([picture]), self.read(text)
        alignment = self.model.align(self.model.encode_images(regions), self.model.encode_texts(words))
        return Explanation.from_alignment(alignment, 0, words.words[0], regions.boxes[0].cpu(), picture, title)


def _listed(images: Any) -> list[Any]:
    """One picture or several."""
    single = (
        isinstance(images, str | Path)
        or hasattr(images, "mode")
        or (isinstance(images, np.ndarray) and images.ndim == 3)
    )
    return [images] if single else list(images)
