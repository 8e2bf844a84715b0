"""Words look for regions and regions for words; what is found is compared block by block, for a vector of cosines."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.ops import EPSILON, AttentionForm, attention_weights
from saccade.ops.native.attention import NativeAttention


@dataclass(frozen=True)
class BlockMatch:
    """Both ways of a comparison: every picture with every sentence, or (one text to each image) picture p with p."""

    weights: Float[Tensor, "image text region word"]  # each word's, over the regions
    words: Float[Tensor, "image text word block"]  # cosines of each word with what it found
    regions: Float[Tensor, "image text region block"]


def block_match(
    images: ImageCode,
    texts: TextCode,
    blocks: int,
    form: AttentionForm,
    every_pair: bool = True,
    dim: int | None = None,
) -> BlockMatch:
    """Cosines of the 1 … `blocks` contiguous parts of each vector and of what it finds on the other side.

    Vectors may have their Gram matrices behind their first `dim` numbers, see `with_grams`.
    """
    dim = images.regions.shape[-1] if dim is None else dim
    regions, words = (
        _blocks(images.regions[..., :dim], images.mask, blocks),
        _blocks(texts.words[..., :dim], texts.mask, blocks),
    )
    seen, read = _grams(regions, images.regions[..., dim:]), _grams(words, texts.words[..., dim:])
    of_words, weights = _ask(words, texts.mask, regions, images.mask, seen, form, every_pair)
    of_regions, _ = _ask(regions, images.mask, words, texts.mask, read, form, every_pair)
    return BlockMatch(weights, of_words, of_regions.transpose(0, 1) if every_pair else of_regions)


def block_cosines(
    images: ImageCode, texts: TextCode, blocks: int, dim: int, native: NativeAttention
) -> tuple[Float[Tensor, "image text word block"], Float[Tensor, "image text region block"]]:
    """The cosines of `block_match` of every pair, in loops of our own; the weights are nowhere written down."""
    regions, words = (
        (vectors[..., :dim] * mask[..., None]).view(*mask.shape, blocks, -1)
        for vectors, mask in ((images.regions, images.mask), (texts.words, texts.mask))
    )
    seen, read = (
        _grams(vectors.transpose(1, 2), known[..., dim:])
        for vectors, known in ((regions, images.regions), (words, texts.words))
    )
    return native.block_cosines(regions, seen, images.mask, words, read, texts.mask)


def with_grams(
    vectors: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"], blocks: int
) -> Float[Tensor, "item part more"]:
    """Each vector, and behind it its products with the other parts of its item, block by block: once for many tiles."""
    grams = _grams(_blocks(vectors, mask, blocks), vectors[..., :0])
    return torch.cat([vectors, grams.transpose(1, 2).flatten(2)], dim=-1)


def _grams(
    blocked: Float[Tensor, "item block part few"], known: Float[Tensor, "item part more"]
) -> Float[Tensor, "item block part part"]:
    if not known.shape[-1]:
        return torch.matmul(blocked, blocked.mT)
    items, blocks, parts, _ = blocked.shape  # parts that are padding for all have been cut off since
    return known.view(items, parts, blocks, -1)[..., :parts].transpose(1, 2)


def _ask(
    queries: Float[Tensor, "item block query few"],
    query_mask: Bool[Tensor, "item query"],
    context: Float[Tensor, "other block part few"],
    context_mask: Bool[Tensor, "other part"],
    gram: Float[Tensor, "other block part part"],
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
    found = _times(scores, spread).sum(dim=2)  # q · a, [block, other, item, query]; padded context has score 0
    turned = torch.einsum("obps,osiq->obpiq", gram, spread)
    squared = _times(turned, spread[:, None]).sum(dim=2)  # |a|² = αᵀGα
    size = lengths * squared.permute(0, 2, 3, 1).clamp(min=EPSILON**2).sqrt()
    return found.permute(1, 2, 3, 0) / size.clamp(min=EPSILON), weights


def _times(large: Tensor, other: Tensor) -> Tensor:
    """The product takes the place of the large one where no gradient wants to know that."""
    return large * other if torch.is_grad_enabled() else large.mul_(other)


def _blocks(
    vectors: Float[Tensor, "item part dim"], mask: Bool[Tensor, "item part"], blocks: int
) -> Float[Tensor, "item block part few"]:
    return (vectors * mask[:, :, None]).view(*mask.shape, blocks, -1).transpose(1, 2)
