"""Phrases that look for frames, in one kernel: a program has the frames of one video and some phrases.

Their products stay in registers, from the first to the match of every phrase; nothing of the size [frame, phrase] is
written. Vectors are of 16 bits or of float32 (then products are of three TF32 each), sums of float32.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"
from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

PHRASES = 64  # of a program
NUMBERS = 64  # of a vector, that are read at once
REDUCED = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}  # types of products; the interpreter has float32's
LEAST = 1e-20  # square of the least that a norm over frames counts as
LEAST_LENGTH = 1e-16  # square of that of an attended vector


@dataclass(frozen=True)
class PackedFrames:
    """The frames of videos at one level, padded to a power of two with zeros."""

    vectors: Float[Tensor, "image frame dim"]
    gram: Float[Tensor, "image frame frame"]
    inverse: Float[Tensor, "image frame"]  # 1 / length
    there: Int[Tensor, "image frame"]

    def __len__(self) -> int:
        return len(self.vectors)

    def __getitem__(self, some: slice) -> PackedFrames:
        return replace(self, **{name: value[some] for name, value in vars(self).items()})


def pack_frames(images: Any, level: int, dtype: torch.dtype) -> PackedFrames:
    """From what a model prepared of its videos: vectors, Gram matrices and lengths by level, and a mask."""
    count = images.mask.shape[1]
    more = max(16, triton.next_power_of_2(count)) - count
    pad = torch.nn.functional.pad
    return PackedFrames(
        pad(images.vectors[:, level].to(dtype), (0, 0, 0, more)).contiguous(),
        pad(images.gram[:, level].float(), (0, more, 0, more)).contiguous(),
        pad(images.length[:, level].float().reciprocal(), (0, more)).contiguous(),
        pad(images.mask.to(torch.int8), (0, more)).contiguous(),
    )


def phrase_matches(
    frames: PackedFrames, phrases: Float[Tensor, "phrase dim"], sharpness: float, by_scores: bool
) -> Float[Tensor, "image phrase"]:
    """R of every phrase in every video."""
    count, places, dim = frames.vectors.shape
    found = phrases.new_empty(count, len(phrases), dtype=torch.float32)
    if count and len(phrases):
        phrase_matches_kernel[(triton.cdiv(len(phrases), PHRASES), count)](
            *(frames.vectors, frames.gram, frames.inverse, frames.there, phrases.contiguous(), found),
            *(len(phrases), dim, sharpness, LEAST, LEAST_LENGTH),
            FRAMES=places,
            PHRASES=PHRASES,
            NUMBERS=NUMBERS,
            BY_SCORES=by_scores,
            INSIDE=REDUCED.get(phrases.dtype, tl.float32) if phrases.is_cuda else tl.float32,
            num_warps=4 if places <= 64 else 8,
            num_stages=3,
        )
    return found


@triton.jit
def phrase_matches_kernel(
    frames,
    gram,
    inverse,
    there,
    phrases,
    found,
    COUNT,
    DIM,
    sharpness,
    least,
    least_length,
    FRAMES: tl.constexpr,
    PHRASES: tl.constexpr,
    NUMBERS: tl.constexpr,
    BY_SCORES: tl.constexpr,
    INSIDE: tl.constexpr,
):
    video = tl.program_id(1).to(tl.int64)
    frame = tl.arange(0, FRAMES)
    phrase = tl.program_id(0) * PHRASES + tl.arange(0, PHRASES)
    number = tl.arange(0, NUMBERS)
    real_phrase = phrase < COUNT
    own_frames = frames + (video * FRAMES + frame[:, None]) * DIM
    own_phrases = phrases + phrase[None, :].to(tl.int64) * DIM
    products = tl.zeros((FRAMES, PHRASES), dtype=tl.float32)
    for start in range(0, DIM, NUMBERS):
        within = start + number < DIM
        v = tl.load(own_frames + start + number[None, :], mask=within[None, :], other=0.0)
        c = tl.load(own_phrases + start + number[:, None], mask=within[:, None] & real_phrase[None, :], other=0.0)
        products = tl.dot(v.to(INSIDE), c.to(INSIDE), products, input_precision="tf32x3")
    real = tl.load(there + video * FRAMES + frame)[:, None] > 0
    cosine = products * tl.load(inverse + video * FRAMES + frame)[:, None]
    clipped = tl.where(real, tl.maximum(cosine, 0.0), 0.0)
    size = tl.sqrt(tl.maximum(tl.sum(clipped * clipped, axis=0), least))
    sharp = clipped * (sharpness / size)[None, :]  # from 0 to λ: no maximum has to be taken off
    weights = tl.where(real, tl.exp(sharp - sharpness), 0.0)
    weights = weights / tl.maximum(tl.sum(weights, axis=0), 1e-30)[None, :]
    if BY_SCORES:
        match = tl.sum(weights * tl.where(real, cosine, 0.0), axis=0)
    else:
        g = tl.load(gram + (video * FRAMES + frame[:, None]) * FRAMES + frame[None, :])
        turned = tl.dot(g, weights, input_precision="tf32x3")
        squared = tl.sum(weights * turned, axis=0)
        match = tl.sum(weights * products, axis=0) / tl.sqrt(tl.maximum(squared, least_length))
    tl.store(found + video * COUNT + phrase, match, mask=real_phrase)
