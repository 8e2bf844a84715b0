"""Phrases that look for frames, in one kernel: a program has the frames of some videos and some phrases.

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

REDUCED = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}  # types of products; the interpreter has float32's
LEAST = 1e-20  # square of the least that a norm over frames counts as
LEAST_LENGTH = 1e-16  # square of that of an attended vector


@dataclass(frozen=True)
class Tile:
    """What a program has: so many frames, of one video or several, and so many phrases."""

    rows: int
    phrases: int
    numbers: int  # of a vector, that are read at once
    warps: int
    stages: int


TILES = {True: Tile(64, 128, 64, 4, 3), False: Tile(64, 128, 32, 4, 4)}  # of 16 bits, or of 32


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
        tile = TILES[phrases.dtype in REDUCED]
        videos = max(1, tile.rows // places)
        phrase_matches_kernel[(triton.cdiv(len(phrases), tile.phrases), triton.cdiv(count, videos))](
            *(frames.vectors, frames.gram, frames.inverse, frames.there, phrases.contiguous(), found),
            *(count, len(phrases), dim, sharpness, LEAST, LEAST_LENGTH),
            VIDEOS=videos,
            FRAMES=places,
            PHRASES=tile.phrases,
            NUMBERS=tile.numbers,
            BY_SCORES=by_scores,
            INSIDE=REDUCED.get(phrases.dtype, tl.float32) if phrases.is_cuda else tl.float32,
            num_warps=tile.warps,
            num_stages=tile.stages,
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
    count,
    phrase_count,
    DIM,
    sharpness,
    least,
    least_length,
    VIDEOS: tl.constexpr,
    FRAMES: tl.constexpr,
    PHRASES: tl.constexpr,
    NUMBERS: tl.constexpr,
    BY_SCORES: tl.constexpr,
    INSIDE: tl.constexpr,
):
    ROWS: tl.constexpr = VIDEOS * FRAMES
    row = tl.arange(0, ROWS)
    video = tl.program_id(1).to(tl.int64) * VIDEOS + tl.arange(0, VIDEOS)
    frame = tl.program_id(1).to(tl.int64) * ROWS + row  # among the frames of all videos
    real_frame = frame < count * FRAMES
    phrase = tl.program_id(0) * PHRASES + tl.arange(0, PHRASES)
    number = tl.arange(0, NUMBERS)
    real_phrase = phrase < phrase_count
    own_frames = frames + frame[:, None] * DIM
    own_phrases = phrases + phrase[None, :].to(tl.int64) * DIM
    flat = tl.zeros((ROWS, PHRASES), dtype=tl.float32)
    for start in range(0, DIM, NUMBERS):
        within = start + number < DIM
        v = tl.load(own_frames + start + number[None, :], mask=real_frame[:, None] & within[None, :], other=0.0)
        c = tl.load(own_phrases + start + number[:, None], mask=within[:, None] & real_phrase[None, :], other=0.0)
        flat = tl.dot(v.to(INSIDE), c.to(INSIDE), flat, input_precision="tf32x3")
    products = flat.reshape(VIDEOS, FRAMES, PHRASES)
    there_flat = tl.load(there + frame, mask=real_frame, other=0)
    real = there_flat.reshape(VIDEOS, FRAMES, 1) > 0
    cosine = products * tl.load(inverse + frame, mask=real_frame, other=0.0).reshape(VIDEOS, FRAMES, 1)
    clipped = tl.where(real, tl.maximum(cosine, 0.0), 0.0)
    size = tl.sqrt(tl.maximum(tl.sum(clipped * clipped, axis=1), least))
    sharp = clipped * (sharpness / size)[:, None, :]  # from 0 to λ: no maximum has to be taken off
    weights = tl.where(real, tl.exp(sharp - sharpness), 0.0)
    weights = weights / tl.maximum(tl.sum(weights, axis=1), 1e-30)[:, None, :]
    if BY_SCORES:
        match = tl.sum(weights * tl.where(real, cosine, 0.0), axis=1)
    else:  # the Gram matrices of the videos, one below the other along the diagonal
        same = (row[:, None] // FRAMES == row[None, :] // FRAMES) & real_frame[:, None]
        g = tl.load(gram + frame[:, None] * FRAMES + row[None, :] % FRAMES, mask=same, other=0.0)
        turned = tl.dot(g, weights.reshape(ROWS, PHRASES), input_precision="tf32x3").reshape(VIDEOS, FRAMES, PHRASES)
        squared = tl.sum(weights * turned, axis=1)
        match = tl.sum(weights * products, axis=1) / tl.sqrt(tl.maximum(squared, least_length))
    own = found + video[:, None] * phrase_count + phrase[None, :]
    tl.store(own, match, mask=(video < count)[:, None] & real_phrase[None, :])
