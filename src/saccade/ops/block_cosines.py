"""Both sides' cosines, block by block, of some pictures with some sentences: how `kernels/block_cosines.py` is called.

Each side is packed once, and some pictures at a time are compared with all sentences of a pack. Products are of
bfloat16, sums of float32, and the cosines, none of them larger than one, of float16.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops.kernels import kernels_wanted
from saccade.ops.kernels.packing import Bins, gather, pack
from saccade.ops.kernels.tuning import LONGEST
from saccade.ops.pairwise import EPSILON, AttentionForm

PLACES = 64  # regions that a tile has rows for, words that a bin has places for
SLOTS = 16
STAGES = 3  # reads that are under way at once
WARPS = 4
SHARPEST = 30.0  # up to which exp needs no maximum: e · e and its smallest product with a Gram matrix are a float32
INSIDE = torch.bfloat16  # of the products


@dataclass(frozen=True)
class PackedPictures:
    """Padding is zero."""

    vectors: Float[Tensor, "image region dim"]
    inverse: Float[Tensor, "image block region"]  # 1 / length of each block
    there: Int[Tensor, "image region"]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, some: slice) -> PackedPictures:
        return replace(self, vectors=self.vectors[some], inverse=self.inverse[some], there=self.there[some])


@dataclass(frozen=True)
class PackedSentences:
    """Bins of whole sentences."""

    bins: Bins
    vectors: Float[Tensor, "row dim"]
    inverse: Float[Tensor, "block row"]
    gram: Float[Tensor, "bin block place place"]  # of two words of one sentence; zero between sentences
    source: Int[Tensor, "bin place"]
    texts: int
    longest: int

    def __len__(self) -> int:
        return self.texts


def suits_block_cosines(regions: Tensor, words: Tensor, blocks: int, form: AttentionForm) -> bool:
    """Whether a GPU's kernel may do it: in mixed precision, with nothing to remember for a gradient."""
    mixed = regions.is_cuda and torch.is_autocast_enabled("cuda") and not torch.is_grad_enabled()
    if not mixed or torch.float64 in (regions.dtype, words.dtype):
        return False
    few, longest = regions.shape[-1] // blocks, max(regions.shape[1], words.shape[1])
    fits = 16 <= few <= 128 and few & (few - 1) == 0 and 0 < longest <= min(LONGEST, PLACES)
    plain = form.normaliser == "clipped_l2" and form.slope <= 1 and abs(form.sharpness) <= SHARPEST
    return fits and plain and len(regions) > 0 and kernels_wanted(regions.device)


def pack_pictures(
    regions: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"], blocks: int
) -> PackedPictures:
    vectors = regions.masked_fill(~mask[..., None], 0.0).to(INSIDE)
    inverse = _inverse(vectors, blocks).transpose(1, 2).contiguous()
    return PackedPictures(vectors, inverse, mask.to(torch.int8))


def pack_sentences(
    words: Float[Tensor, "text word dim"], mask: Bool[Tensor, "text word"], blocks: int
) -> PackedSentences:
    bins = pack(mask, PLACES, SLOTS)
    vectors = gather(words, bins, INSIDE)
    own = words.flatten(0, 1).index_select(0, bins.source.flatten()).to(INSIDE)
    own = own.view(len(bins), PLACES, blocks, -1).transpose(1, 2)
    together = (bins.segment[:, :, None] == bins.segment[:, None]) & (bins.segment[:, :, None] >= 0)
    gram = torch.matmul(own, own.mT).mul_(together[:, None])
    inverse = _inverse(vectors, blocks).T.contiguous()
    return PackedSentences(bins, vectors, inverse, gram, bins.source.int(), *mask.shape)


def block_cosines(
    pictures: PackedPictures, sentences: PackedSentences, form: AttentionForm
) -> tuple[Float[Tensor, "text image word block"], Float[Tensor, "image text region block"]]:
    """Cosines of each word with what it finds in each picture, and of each region with what it finds in a sentence.

    Zero for padding, and for sentences or pictures that are nothing else.
    """
    import triton.language as tl

    from saccade.ops.kernels import block_cosines as kernel

    images, regions, dim = pictures.vectors.shape
    blocks, word_rows = sentences.inverse.shape
    bins, texts, longest = sentences.bins, len(sentences), sentences.longest
    device = pictures.vectors.device
    of_words = torch.zeros(texts, images, longest, blocks, dtype=torch.float16, device=device)
    of_regions = torch.zeros(images, texts, regions, blocks, dtype=torch.float16, device=device)
    constants: dict[str, Any] = {
        "BLOCKS": blocks,
        "FEW": dim // blocks,
        "BR": PLACES,
        "BW": bins.size,
        "SLOTS": bins.slots,
        "INSIDE": tl.bfloat16 if pictures.vectors.dtype == torch.bfloat16 else tl.float32,
        "NATIVE": device.type == "cuda" and torch.version.hip is None,
        "STAGES": STAGES,
    }
    if len(bins) and images:
        kernel.block_cosines[(len(bins), images)](
            pictures.vectors,
            pictures.there,
            pictures.inverse,
            sentences.vectors,
            sentences.inverse,
            sentences.gram,
            bins.start,
            bins.segment,
            bins.item,
            sentences.source,
            of_words,
            of_regions,
            regions,
            images,
            texts,
            longest,
            word_rows,
            form.sharpness,
            form.slope,
            **constants,
            num_warps=WARPS,
        )
    return of_words, of_regions


def _inverse(vectors: Float[Tensor, "*items dim"], blocks: int) -> Float[Tensor, "*items block"]:
    blocked = vectors.view(*vectors.shape[:-1], blocks, -1)
    lengths: Tensor = torch.linalg.vector_norm(blocked, dim=-1, dtype=torch.float32)
    return lengths.clamp(min=EPSILON).reciprocal()
