"""HGR's table of all pairs: phrases look for frames, each by itself, and are compared with what they attended to.

    s_ij  = c_j · v_i / |v_i|,   φ_ij = softmax_i(λ [s_ij]₊ / √(Σ_i [s_ij]₊²))
    R_j   = Σ_i φ_ij (c_j · v_i) / √(φ_jᵀ G φ_j),   G = V Vᵀ
    S     = mean over the levels of the event's cosine, and of R_j pooled over the phrases j of a sentence

SCAN divides by a norm over the words, so that the words of a sentence compete; here the norm is over the frames, and
nothing about a phrase hangs on its sentence. So a kernel takes the real phrases of all sentences in one row.
`models/hgr.py` has the equations in full, and the plain form.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.ops import gpu
from saccade.ops.all_pairs import ALL_PAIRS, PairsProblem
from saccade.ops.dispatch import Backend, Operator, anything
from saccade.ops.form import product_dtype
from saccade.ops.tiling import slices

MOST_FRAMES = 128  # a program of the kernel holds all frames of a video


def _suits_triton(problem: PairsProblem) -> str | None:
    if (reason := gpu.refuses(problem.images.regions.device)) is not None:
        return reason
    if torch.is_grad_enabled():
        return "a gradient is wanted"
    if problem.images.regions.dtype == torch.float64:
        return "the vectors are of float64"
    frames = problem.images.mask.shape[1]
    if not 0 < frames <= MOST_FRAMES or not problem.pairs:
        return f"a video has {frames} frames, a program of the kernel 1 to {MOST_FRAMES}"
    return None if problem.model.config.local else "no phrase is matched"


def triton_phrases(problem: PairsProblem) -> Float[Tensor, "image text"]:
    """A kernel for the phrases of all sentences; their matches are pooled by sentence, some videos at a time."""
    from saccade.ops.triton.phrase_matching import pack_frames, phrase_matches

    model, dtype = problem.model, product_dtype(problem.images.regions)
    with torch.autocast(problem.like.device.type, enabled=False), gpu.on_gpu_of(problem.like):
        images, texts = problem.sides
        tables = [model.event_pairs(images, texts)] if images.event is not None else []
        for level in range(len(model.config.local)):
            there = texts.real[:, level]
            owner = there.nonzero()[:, 0]
            phrases = texts.vectors[:, level][there].to(dtype)
            frames = pack_frames(images, level, dtype)
            table = phrases.new_zeros(len(images), len(texts), dtype=torch.float32)
            most = max(1, problem.budget // (4 * max(1, len(phrases))))
            for rows in slices(len(images), -(-len(images) // most)):
                found = phrase_matches(frames[rows], phrases, model.config.sharpness, model.config.fusion == "scores")
                table[rows].index_add_(1, owner, found)
            counts = there.sum(dim=1).clamp(min=1) if model.config.phrase_pool == "mean" else 1
            tables.append(table / counts)
        return torch.stack(tables).mean(dim=0)


PHRASE_MATCHING: Operator[PairsProblem, Tensor] = Operator(
    "phrase_matching",
    (
        Backend("triton", _suits_triton, triton_phrases, gpu.triton_unavailable),
        Backend("torch", anything, ALL_PAIRS),
    ),
    torch.bfloat16,
)
