"""GSMN's node level in one kernel: cosines of blocks, of words with the regions they find and of regions with words.

A program has one picture and a bin of whole sentences; rows are regions, columns are words. The scores s of the tile
are summed over the blocks and give both sides' weights, which are not divided by their sums: that cancels in a cosine.
A second walk over the blocks makes
- for each word what it finds, a = Σ_i e_i c_i, which is one product, since a bin has a single picture, and from it
  q · a and |a|²;
- for each region Σ_j e_j s_j and eᵀGe, with G the block's Gram matrix of the words, summed within every sentence.
Products cost little here and memory much: nothing of the size [region, word, block] is ever written.

Each side is packed once, and some pictures at a time are compared with all sentences of a pack. Products are of
bfloat16, sums of float32, and the cosines, none of them larger than one, of float16.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
# ruff: noqa: SIM300
from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import triton
import triton.language as tl
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.ops.form import EPSILON as LEAST_NORM
from saccade.ops.form import AttentionForm
from saccade.ops.packing import Bins, gather, gather_places, pack
from saccade.ops.triton import BIN
from saccade.ops.triton.tile import EPSILON, LOG2E, TINY, members, members_across, power

SLOTS = 16
STAGES = 3  # reads that are under way at once
WARPS = 4
PRODUCT_DTYPE = torch.bfloat16


@dataclass(frozen=True)
class PackedImages:
    """Padding is zero."""

    vectors: Float[Tensor, "image region dim"]
    inverse: Float[Tensor, "image block region"]  # 1 / length of each block
    there: Int[Tensor, "image region"]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, some: slice) -> PackedImages:
        return replace(self, vectors=self.vectors[some], inverse=self.inverse[some], there=self.there[some])


@dataclass(frozen=True)
class PackedTexts:
    """Bins of whole sentences."""

    bins: Bins
    vectors: Float[Tensor, "row dim"]
    inverse: Float[Tensor, "block row"]
    gram: Float[Tensor, "bin block place place"]  # of two words of one sentence; zero between sentences
    source: Int[Tensor, "bin place"]
    longest: int

    def __len__(self) -> int:
        return len(self.bins.lengths)


def pack_images(
    regions: Float[Tensor, "image region dim"], mask: Bool[Tensor, "image region"], blocks: int
) -> PackedImages:
    vectors = regions.masked_fill(~mask[..., None], 0.0).to(PRODUCT_DTYPE)
    inverse = _inverse(vectors, blocks).transpose(1, 2).contiguous()
    return PackedImages(vectors, inverse, mask.to(torch.int8))


def pack_texts(words: Float[Tensor, "text word dim"], mask: Bool[Tensor, "text word"], blocks: int) -> PackedTexts:
    bins = pack(mask, BIN, SLOTS)
    vectors = gather(words, bins, PRODUCT_DTYPE)
    own = gather_places(words, bins, PRODUCT_DTYPE).unflatten(2, (blocks, -1)).transpose(1, 2)
    gram = torch.matmul(own, own.mT).mul_(bins.together[:, None])
    inverse = _inverse(vectors, blocks).T.contiguous()
    return PackedTexts(bins, vectors, inverse, gram, bins.source.int(), mask.shape[1])


def block_cosines(
    images: PackedImages, texts: PackedTexts, form: AttentionForm
) -> tuple[Float[Tensor, "text image word block"], Float[Tensor, "image text region block"]]:
    """Cosines of each word with what it finds in each picture, and of each region with what it finds in a sentence.

    Zero for padding, and for sentences or pictures that are nothing else.
    """
    count, regions, dim = images.vectors.shape
    blocks, word_rows = texts.inverse.shape
    bins, longest, device = texts.bins, texts.longest, images.vectors.device
    of_words = torch.zeros(len(texts), count, longest, blocks, dtype=torch.float16, device=device)
    of_regions = torch.zeros(count, len(texts), regions, blocks, dtype=torch.float16, device=device)
    if len(bins) and count:
        block_cosines_kernel[(len(bins), count)](
            *(images.vectors, images.there, images.inverse, texts.vectors, texts.inverse, texts.gram),
            *(bins.start, bins.segment, bins.item, texts.source, of_words, of_regions),
            *(regions, count, len(texts), longest, word_rows, form.sharpness, form.slope),
            BLOCKS=blocks,
            WIDTH=dim // blocks,
            BR=BIN,
            BW=bins.size,
            SLOTS=bins.slots,
            INSIDE=tl.bfloat16 if images.vectors.dtype == torch.bfloat16 else tl.float32,
            NATIVE=device.type == "cuda" and torch.version.hip is None,
            STAGES=STAGES,
            num_warps=WARPS,
        )
    return of_words, of_regions


def _inverse(vectors: Float[Tensor, "*items dim"], blocks: int) -> Float[Tensor, "*items block"]:
    blocked = vectors.view(*vectors.shape[:-1], blocks, -1)
    lengths: Tensor = torch.linalg.vector_norm(blocked, dim=-1, dtype=torch.float32)
    return lengths.clamp(min=LEAST_NORM).reciprocal()


@triton.jit
def exact_product(x, chosen, INSIDE: tl.constexpr):
    """x @ chosen, zeros and ones, with as much as two numbers of INSIDE hold of x: λ would make much of a rounding."""
    upper = x.to(INSIDE)
    found = tl.dot(upper, chosen, input_precision="tf32x3")
    if INSIDE != tl.float32:
        found = tl.dot((x - upper.to(tl.float32)).to(INSIDE), chosen, found)
    return found


@triton.jit(do_not_specialize=["regions", "images", "texts", "longest", "word_rows"])
def block_cosines_kernel(
    REGIONS,
    REGION_THERE,
    REGION_INVERSE,
    WORDS,
    WORD_INVERSE,
    GRAM,
    START,
    SEGMENT,
    ITEM,
    SOURCE,
    OF_WORDS,
    OF_REGIONS,
    regions,
    images,
    texts,
    longest,
    word_rows,
    sharpness,
    slope,
    BLOCKS: tl.constexpr,
    WIDTH: tl.constexpr,
    BR: tl.constexpr,
    BW: tl.constexpr,
    SLOTS: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """OF_WORDS [text, image, word, block] and OF_REGIONS [image, text, region, block], where anybody is."""
    bin_, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    DIM: tl.constexpr = BLOCKS * WIDTH
    rows, columns, few = tl.arange(0, BR), tl.arange(0, BW), tl.arange(0, WIDTH)
    inside = rows < regions
    first = tl.load(START + bin_)
    region_places = REGIONS + image * regions * DIM + rows[:, None] * DIM + few[None, :]
    word_places = WORDS + first.to(tl.int64) * DIM + columns[:, None] * DIM + few[None, :]

    s = tl.zeros((BR, BW), tl.float32)
    for block in tl.range(0, BLOCKS, num_stages=STAGES):
        c = tl.load(region_places + block * WIDTH, mask=inside[:, None], other=0.0)
        q = tl.load(word_places + block * WIDTH)
        s = tl.dot(c, tl.trans(q), s, input_precision="tf32x3")

    segment = tl.load(SEGMENT + bin_ * BW + columns)
    of_item = members(segment, SLOTS, INSIDE)
    here = tl.load(REGION_THERE + image * regions + rows, mask=inside, other=0) != 0
    sharp = sharpness * LOG2E
    clipped = tl.maximum(s, s * slope)  # slope ≤ 1
    squares = clipped * clipped
    total = exact_product(squares, of_item, INSIDE)
    scale = sharp * tl.rsqrt(total + EPSILON * EPSILON)
    scale = exact_product(scale, members_across(segment, SLOTS, INSIDE), INSIDE)
    word_weights = tl.where(here[:, None], power(clipped * scale, NATIVE), 0.0)
    word_weights = tl.trans(word_weights.to(INSIDE))
    scale = sharp * tl.rsqrt(tl.sum(squares, axis=0) + EPSILON * EPSILON)
    region_weights = tl.where((segment >= 0)[None, :], power(clipped * scale[None, :], NATIVE), 0.0).to(INSIDE)

    source = tl.load(SOURCE + bin_ * BW + columns)
    into_words = OF_WORDS + (((source // longest).to(tl.int64) * images + image) * longest + source % longest) * BLOCKS
    item = tl.load(ITEM + bin_ * SLOTS + tl.arange(0, SLOTS))
    into_regions = OF_REGIONS + image * texts * regions * BLOCKS
    spread = (item[None, :] * regions + rows[:, None]) * BLOCKS
    stored = inside[:, None] & (item >= 0)[None, :]
    region_inverse = REGION_INVERSE + image * BLOCKS * regions + rows
    gram_places = GRAM + bin_.to(tl.int64) * BLOCKS * BW * BW + columns[:, None] * BW + columns[None, :]
    for block in tl.range(0, BLOCKS, num_stages=STAGES):
        c = tl.load(region_places + block * WIDTH, mask=inside[:, None], other=0.0)
        q = tl.load(word_places + block * WIDTH)
        a = tl.dot(word_weights, c, input_precision="tf32x3")
        found = tl.sum(a * q.to(tl.float32), axis=1)
        squared = tl.sum(a * a, axis=1)
        inverse = tl.load(WORD_INVERSE + block * word_rows + first + columns)
        cosine = found * tl.rsqrt(tl.maximum(squared, TINY)) * inverse
        tl.store(into_words + block, cosine.to(OF_WORDS.dtype.element_ty), mask=segment >= 0)

        e = region_weights.to(tl.float32)
        s = tl.dot(c, tl.trans(q), input_precision="tf32x3")
        met = tl.dot((e * s).to(INSIDE), of_item, input_precision="tf32x3")
        gram = tl.load(gram_places + block * BW * BW)
        turned = tl.dot(region_weights, gram, input_precision="tf32x3")
        size = tl.dot((e * turned).to(INSIDE), of_item, input_precision="tf32x3")
        inverse = tl.load(region_inverse + block * regions, mask=inside, other=0.0)
        cosine = met * tl.rsqrt(tl.maximum(size, TINY)) * inverse[:, None]
        tl.store(into_regions + spread + block, cosine.to(OF_REGIONS.dtype.element_ty), mask=stored)
