"""Matchers: pictures and sentences are encoded apart and compared; the comparison can be looked into."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import Alignment, ImageCode, PictureBatch, RegionBatch, TextBatch, TextCode
from saccade.errors import SaccadeError
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

    def read(self, texts: Sequence[str]) -> TextBatch:
        """Sentences as this model reads them; a model of sentence structure adds which words depend on each other."""
        return self.vocabulary.batch(texts)

    def own_losses(
        self, images: ImageCode, texts: TextBatch, owner: Int[Tensor, " text"]
    ) -> dict[str, Float[Tensor, ""]]:
        """What the paper asks of the model beside ranking, by name; text t describes picture `owner[t]`."""
        return {}

    def see(self, images: RegionBatch | PictureBatch) -> RegionBatch:
        """Regions as they are; pixels through the model's own eye."""
        if isinstance(images, RegionBatch):
            return images
        if self.sight is None:
            raise SaccadeError(f"this {self.name} model was trained on regions and has no eye of its own for pixels")
        regions: RegionBatch = self.sight(images)
        return regions

    def forward(self, images: RegionBatch | PictureBatch, texts: TextBatch) -> Float[Tensor, "image text"]:
        return self.similarity(self.encode_images(self.see(images)), self.encode_texts(texts))
