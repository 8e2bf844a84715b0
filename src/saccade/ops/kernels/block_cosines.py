"""GSMN's node level in one kernel: cosines of blocks, of words with the regions they find and of regions with words.

A program has one picture and a bin of whole sentences; rows are regions, columns are words. The scores s of the tile
are summed over the blocks and give both sides' weights, which are not divided by their sums: that cancels in a cosine.
A second walk over the blocks makes
- for each word what it finds, a = Σ_i e_i c_i, which is one product, since a bin has a single picture, and from it
  q · a and |a|²;
- for each region Σ_j e_j s_j and eᵀGe, with G the block's Gram matrix of the words, summed within every sentence.
Products cost little here and memory much: nothing of the size [region, word, block] is ever written.
"""

# mypy: ignore-errors
# ruff: noqa: SIM300
from __future__ import annotations

import triton
import triton.language as tl

from saccade.ops.kernels.tile import EPSILON, LOG2E, TINY, members, members_across, power


@triton.jit
def exact_product(x, chosen, INSIDE: tl.constexpr):
    """x @ chosen, zeros and ones, with as much as two numbers of INSIDE hold of x: λ would make much of a rounding."""
    upper = x.to(INSIDE)
    found = tl.dot(upper, chosen, input_precision="tf32x3")
    if INSIDE != tl.float32:
        found = tl.dot((x - upper.to(tl.float32)).to(INSIDE), chosen, found)
    return found


@triton.jit(do_not_specialize=["regions", "images", "texts", "longest", "word_rows"])
def block_cosines(
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
    FEW: tl.constexpr,
    BR: tl.constexpr,
    BW: tl.constexpr,
    SLOTS: tl.constexpr,
    INSIDE: tl.constexpr,
    NATIVE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """OF_WORDS [text, image, word, block] and OF_REGIONS [image, text, region, block], where anybody is."""
    bin_, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    DIM: tl.constexpr = BLOCKS * FEW
    rows, columns, few = tl.arange(0, BR), tl.arange(0, BW), tl.arange(0, FEW)
    inside = rows < regions
    first = tl.load(START + bin_)
    region_places = REGIONS + image * regions * DIM + rows[:, None] * DIM + few[None, :]
    word_places = WORDS + first.to(tl.int64) * DIM + columns[:, None] * DIM + few[None, :]

    s = tl.zeros((BR, BW), tl.float32)
    for block in tl.range(0, BLOCKS, num_stages=STAGES):
        c = tl.load(region_places + block * FEW, mask=inside[:, None], other=0.0)
        q = tl.load(word_places + block * FEW)
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
    words_ask = tl.where(here[:, None], power(clipped * scale, NATIVE), 0.0)
    words_ask = tl.trans(words_ask.to(INSIDE))
    scale = sharp * tl.rsqrt(tl.sum(squares, axis=0) + EPSILON * EPSILON)
    regions_ask = tl.where((segment >= 0)[None, :], power(clipped * scale[None, :], NATIVE), 0.0).to(INSIDE)

    source = tl.load(SOURCE + bin_ * BW + columns)
    into_words = OF_WORDS + (((source // longest).to(tl.int64) * images + image) * longest + source % longest) * BLOCKS
    item = tl.load(ITEM + bin_ * SLOTS + tl.arange(0, SLOTS))
    into_regions = OF_REGIONS + image * texts * regions * BLOCKS
    spread = (item[None, :] * regions + rows[:, None]) * BLOCKS
    stored = inside[:, None] & (item >= 0)[None, :]
    region_inverse = REGION_INVERSE + image * BLOCKS * regions + rows
    gram_places = GRAM + bin_.to(tl.int64) * BLOCKS * BW * BW + columns[:, None] * BW + columns[None, :]
    for block in tl.range(0, BLOCKS, num_stages=STAGES):
        c = tl.load(region_places + block * FEW, mask=inside[:, None], other=0.0)
        q = tl.load(word_places + block * FEW)
        a = tl.dot(words_ask, c, input_precision="tf32x3")
        found = tl.sum(a * q.to(tl.float32), axis=1)
        squared = tl.sum(a * a, axis=1)
        inverse = tl.load(WORD_INVERSE + block * word_rows + first + columns)
        cosine = found * tl.rsqrt(tl.maximum(squared, TINY)) * inverse
        tl.store(into_words + block, cosine.to(OF_WORDS.dtype.element_ty), mask=segment >= 0)

        e = regions_ask.to(tl.float32)
        s = tl.dot(c, tl.trans(q), input_precision="tf32x3")
        met = tl.dot((e * s).to(INSIDE), of_item, input_precision="tf32x3")
        gram = tl.load(gram_places + block * BW * BW)
        turned = tl.dot(regions_ask, gram, input_precision="tf32x3")
        size = tl.dot((e * turned).to(INSIDE), of_item, input_precision="tf32x3")
        inverse = tl.load(region_inverse + block * regions, mask=inside, other=0.0)
        cosine = met * tl.rsqrt(tl.maximum(size, TINY)) * inverse[:, None]
        tl.store(into_regions + spread + block, cosine.to(OF_REGIONS.dtype.element_ty), mask=stored)
