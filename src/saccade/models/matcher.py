"""Matchers: pictures and sentences are encoded apart and compared; the comparison can be looked into."""

from __future__ import annotations

from abc import abstractmethod

from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Alignment, ImageCode, PictureBatch, RegionBatch, TextBatch, TextCode
from saccade.models.model import Model


class Matcher(Model):
    """Encoding apart from scoring is what makes indexing and two-stage search possible."""

    @abstractmethod
    def encode_images(self, images: RegionBatch) -> ImageCode: ...

    @abstractmethod
    def encode_texts(self, texts: TextBatch) -> TextCode: ...

    @abstractmethod
    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        """Every picture with every sentence."""

    @abstractmethod
    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        """Picture p with sentence p: the weight of every word–region pair."""

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """What the paper asks of the model beside ranking, by name; text t describes picture `owner[t]`."""
        return {}

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> Float[Tensor, "image text"]:
        return self.similarity(self.encode_images(self.see(images)), self.encode_texts(texts))
