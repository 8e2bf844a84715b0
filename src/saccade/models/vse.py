"""VSE++: Improving Visual-Semantic Embeddings with Hard Negatives (Faghri, Fleet, Kiros, Fidler; BMVC 2018).

The baseline that fine-grained models must beat: one vector per picture, one per sentence, compared by their cosine.
The mean keeps no region apart from the others.

    v = l2norm(mean over i of W x_i + b),   t = l2norm(the GRU's last state),   S(I, T) = v · t
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.models.base.matcher import EncoderConfig, EncoderMatcher
from saccade.models.base.model import register
from saccade.nn.encode import StatePool, mean_state, pooled_state, unit
from saccade.nn.whole import nearest_regions, whole_similarity


@dataclass(frozen=True)
class VseConfig(EncoderConfig):
    bidirectional: bool = False
    text_pool: StatePool = "last"
    sharpness: float = 9.0  # of the word→region weights in `align`; the score does not use it


@register(
    "vse",
    task="matching",
    title="VSE++: Improving Visual-Semantic Embeddings with Hard Negatives",
    venue="Faghri et al., BMVC 2018",
)
class Vse(EncoderMatcher):
    Config = VseConfig

    def encode_images(self, images: RegionBatch) -> ImageCode:
        regions = self.regions(images)
        return ImageCode(regions, images.mask, unit(mean_state(regions, images.mask.sum(dim=1))))

    def encode_texts(self, texts: TextBatch) -> TextCode:
        words = self.words(texts)
        return TextCode(words, texts.mask, unit(pooled_state(words, texts.lengths, self.config.text_pool)))

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return whole_similarity(images, texts)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        return nearest_regions(images, texts, self.config.sharpness)
