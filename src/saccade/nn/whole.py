"""Models that keep one vector per picture and one per sentence: how they compare these, and what they can show."""

from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import Alignment, ImageCode, TextCode
from saccade.nn.attention import masked_softmax
from saccade.nn.encode import full_precision, unit
from saccade.ops.all_pairs import all_pairs
from saccade.ops.form import DEFAULT_BUDGET

Measure = Literal["cosine", "order"]


def whole_similarity(
    images: ImageCode, texts: TextCode, measure: Measure = "cosine", budget: int = DEFAULT_BUDGET
) -> Float[Tensor, "image text"]:
    """cosine: v · t, for vectors of unit length; order: −‖[t − v]₊‖, how far t exceeds v.

    The order measure needs a vector for every pair, and so is computed tile by tile.
    """
    image, text = _pooled(images, texts)
    if measure == "cosine":
        with full_precision(image):  # similar pictures differ by less than bfloat16 resolves
            return image @ text.T
    alone = ImageCode(image[:, None], images.mask[:, :1], image), TextCode(text[:, None], texts.mask[:, :1], text)
    return all_pairs(_order_table, *alone, budget)


def nearest_regions(images: ImageCode, texts: TextCode, sharpness: float, measure: Measure = "cosine") -> Alignment:
    """A model of whole vectors has no attention of its own; this shows the regions nearest to each word's state."""
    image, text = _pooled(images, texts)
    weights, cosine = cosine_weights(images, texts, sharpness)
    score = (image * text).sum(dim=-1) if measure == "cosine" else _order(image, text)
    return Alignment(weights, score, texts.mask, images.mask, word_score=cosine.amax(dim=-1))


def cosine_weights(
    images: ImageCode, texts: TextCode, sharpness: float
) -> tuple[Float[Tensor, "pair word region"], Float[Tensor, "pair word region"]]:
    """softmax_i(λ s_ij) over the regions, of every word by itself, and the cosines s_ij of regions and words."""
    cosine = torch.bmm(unit(texts.words), unit(images.regions).transpose(1, 2))
    return masked_softmax(sharpness * cosine, images.mask[:, None]), cosine


def _pooled(images: ImageCode, texts: TextCode) -> tuple[Float[Tensor, "image dim"], Float[Tensor, "text dim"]]:
    assert images.pooled is not None
    assert texts.pooled is not None
    return images.pooled, texts.pooled


def _order(image: Float[Tensor, "*item dim"], text: Float[Tensor, "*item dim"]) -> Float[Tensor, "*item"]:
    excess: Tensor = torch.linalg.vector_norm((text - image).clamp(min=0), dim=-1)  # its gradient at zero is zero
    return -excess


def _order_table(images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
    image, text = _pooled(images, texts)
    return _order(image[:, None], text)
