"""Words look for regions and regions for words; what is found is compared block by block, for a vector of cosines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.ops import EPSILON, AttentionForm, attention_weights


@dataclass(frozen=True)
class BlockMatch:
    """Both ways of a comparison: every picture with every sentence, or (one text to each image) picture p with p."""

    weights: Float[Tensor, "image text region word"]  # each word's, over the regions
    words: Float[Tensor, "image text word block"]  # cosines of each word with what it found
    regions: Float[Tensor, "image text region block"]


def block_match(
    images: ImageCode, texts: TextCode, blocks: int, form: AttentionForm, every_pair: bool = True
) -> BlockMatch:
    """Cosines of the 1 … `blocks` contiguous parts of each vector and of what it finds on the other side."""
    regions, words = _blocks(images.regions, images.mask, blocks), _blocks(texts.words, texts.mask, blocks)
    of_words, weights = _ask(words, texts.mask, regions, images.mask, form, every_pair)
    of_regions, _ = _ask(regions, images.mask, words, texts.mask, form, every_pair)
    return BlockMatch(weights, of_words, of_regions.transpose(0, 1) if every_pair else of_regions)


def _ask(
    queries: Float[Tensor, "item block query few"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other block part few"],
    context_mask: Bool[Tensor, "other part"],
    form: AttentionForm,
    every_pair: bool,
) -> tuple[Float[Tensor, "other item query block"], Float[Tensor, "other item part query"]]:
    """Like the whole cosine (`ops/pairwise.py`), that of a block needs no attended vector a = Σ_i α_i c_i.

    With s_b = c_b · q_b and the context's Gram matrix G_b of that block, q_b · a_b = αᵀ s_b and |a_b|² = αᵀ G_b α.
    Tensors keep the item and its queries innermost, so that sums over the context run along memory.
    """
    lengths = queries.square().sum(dim=-1).clamp(min=EPSILON**2).sqrt().transpose(1, 2)  # [item, query, block]
    if every_pair:
        scores = torch.einsum("obpd,ibqd->bopiq", context, queries)
    else:
        scores = torch.einsum("obpd,obqd->bopq", context, queries).unsqueeze(3)
        query_mask, lengths = query_mask[:, None], lengths[:, None]
    whole = scores.sum(dim=0).transpose(1, 2)  # [other, item, part, query]
    weights = attention_weights(whole, query_mask, context_mask[:, None], form)
    spread = weights.transpose(1, 2).contiguous()  # [other, part, item, query]
    found = (spread * scores).sum(dim=2)  # q · a, [block, other, item, query]; padded context has score 0
    gram = torch.matmul(context, context.mT)
    squared = (spread[:, None] * torch.einsum("obps,osiq->obpiq", gram, spread)).sum(dim=2)  # |a|² = αᵀGα
    size = lengths * squared.permute(0, 2, 3, 1).clamp(min=EPSILON**2).sqrt()
    return found.permute(1, 2, 3, 0) / size.clamp(min=EPSILON), weights


def _blocks(
    vectors: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"], blocks: int
) -> Float[Tensor, "item block part few"]:
    return (vectors * mask[:, :, None]).view(*mask.shape, blocks, -1).transpose(1, 2)
