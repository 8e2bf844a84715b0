"""A matcher with pictures and sentences instead of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.models import Matcher
from saccade.tasks.predict import RegionPredictor
from saccade.vision.pictures import Picture, as_array


class PictureMatcher(RegionPredictor[Matcher]):
    """A trained matcher and the extractor it was trained on: pictures and sentences in, scores and explanations out."""

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
        similarity = self.model(self.extract(images), self.read(texts))
        return np.asarray(similarity.float().cpu().numpy())

    def rank(
        self, text: str, images: Sequence[Picture] | RegionBatch, top: int | None = None
    ) -> list[tuple[int, float]]:
        """(position, score) of the pictures that fit a sentence best, best first."""
        scores = self.score(images, text)[:, 0]
        order = np.argsort(-scores, kind="stable")[:top]
        return [(int(i), float(scores[i])) for i in order]

    @torch.no_grad()
    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        """Which regions each word found: `.save("why.png")` draws it."""
        if text is None:
            raise SaccadeError("a matcher explains why a picture fits a sentence: give one after the picture")
        picture = as_array(image)
        regions, words = self.extract([picture]), self.read(text)
        alignment = self.model.align(self.model.encode_images(regions), self.model.encode_texts(words))
        return Explanation.from_alignment(alignment, 0, words.words[0], regions.boxes[0].cpu(), picture, title)
