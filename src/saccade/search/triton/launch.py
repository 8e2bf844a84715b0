"""In what blocks codes go through the MaxSim kernels, and the launches themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from saccade.search.maxsim import QueryWords
from saccade.search.region_codes import RegionCodes
from saccade.search.triton import CHUNK, MAX_NARROW_DIM, power_of_two
from saccade.search.triton.maxsim import chosen_kernel, maxsim_kernel, maxsim_wide_kernel
from saccade.search.triton.words import LaunchGroup, PreparedWords, prepare_words


@dataclass(frozen=True)
class Shape:
    """How the kernel cuts its work: pictures of a block, warps, and blocks of codes on their way at once."""

    pictures: int = 64
    warps: int = 4
    stages: int = 3
    bulk: bool = True  # fetch with the tensor memory accelerator where the codes allow it


def shape_for(codes: RegionCodes) -> Shape:
    """What is quick for such codes: bytes are so soon multiplied that more of them must be on their way."""
    if codes.dim > 256:
        return Shape(pictures=128, warps=8)
    return Shape(stages=6) if codes.vectors.dtype == torch.int8 and codes.regions is not None else Shape()


def words_for(queries: QueryWords, codes: RegionCodes, exact: RegionCodes | None = None) -> PreparedWords:
    """The words as codes of such a kind want them, and the exact ones behind them."""
    integer = codes.vectors.dtype == torch.int8
    half = codes if not integer else exact
    return prepare_words(queries, None if half is None else half.vectors.dtype, integer)


def launch(
    queries: QueryWords,
    codes: RegionCodes,
    bound: bool = False,
    shape: Shape | None = None,
    words: PreparedWords | None = None,
) -> tuple[Float[Tensor, "query picture"], Float[Tensor, "query block"]]:
    """The scores, and the best score of each block of `shape.pictures` pictures."""
    shape = shape or shape_for(codes)
    words = words or words_for(queries, codes)
    blocks = -(-len(codes) // shape.pictures)
    scores = torch.empty(len(queries), len(codes), device=codes.vectors.device)
    peaks = torch.empty(len(queries), blocks, device=codes.vectors.device)
    for group in words.groups:
        _launch(words, group, codes, bound, shape, scores[group.first : group.stop], peaks[group.first : group.stop])
    return scores, peaks


def _launch(
    prepared: PreparedWords,
    group: LaunchGroup,
    codes: RegionCodes,
    bound: bool,
    shape: Shape,
    scores: Tensor,
    peaks: Tensor,
) -> None:
    device, dim = codes.vectors.device, codes.dim
    integer = codes.vectors.dtype == torch.int8
    words = (prepared.wholes if integer else prepared.halves)[group.rows]
    wide = words.shape[1]
    of_queries = slice(group.first, group.stop)
    scale, reach, error = [prepared.off] * 3 if codes.bounds is None else codes.bounds.unbind()  # read for bytes only
    ragged = codes.regions is None
    chunks = wide // CHUNK if dim > MAX_NARROW_DIM else 0
    whole = not ragged and not chunks and wide == dim and codes.vectors.data_ptr() % 16 == 0
    bulk = shape.bulk and whole and (not codes.vectors.is_cuda or torch.cuda.get_device_capability(device) >= (9, 0))
    source: Any = codes.vectors
    if bulk:
        from triton.tools.tensor_descriptor import TensorDescriptor

        assert codes.regions is not None
        pitch = dim * codes.regions
        source = TensorDescriptor(codes.vectors, [len(codes), pitch], [pitch, 1], [shape.pictures, dim])
    given = (
        *(codes.starts, scale, words, prepared.scale[group.rows], prepared.owner[group.rows], reach, error),
        *(prepared.off[of_queries], prepared.size[of_queries], scores, peaks, len(codes)),
    )
    options: dict[str, Any] = {
        "FIRST": group.parts[0],
        "SECOND": group.parts[1],
        "THIRD": group.parts[2],
        "PICTURES": shape.pictures,
        "QUERIES": max(16, power_of_two(len(scores))),
        "INTEGER": integer,
        "BOUND": bound and integer,
        "STAGES": shape.stages,
        "ADDEND": tl.bfloat16 if device.type == "cuda" else tl.float32,
        "num_warps": shape.warps,
        "num_stages": shape.stages,
    }
    blocks = peaks.shape[1]
    if chunks:
        maxsim_wide_kernel[(blocks,)](source, *given, dim, blocks, len(scores), CHUNKS=chunks, DIM=CHUNK, **options)
        return
    maxsim_kernel[(blocks,)](
        *(source, *given, codes.regions or 0, dim, blocks, len(scores)),
        DIM=wide,
        PADDED=wide != dim,
        RAGGED=ragged,
        TMA=bulk,
        **options,
    )


def launch_chosen(
    queries: QueryWords,
    codes: RegionCodes,
    chosen: Int[Tensor, "query choice"],
    counts: Int[Tensor, " query"] | None = None,
    keys: bool = False,
    words: PreparedWords | None = None,
    shape: Shape | None = None,
) -> Shaped[Tensor, "query choice"]:
    """MaxSim of each query with the first `counts` pictures chosen for it, codes of half precision; −∞ with no picture.

    With `keys`, whole numbers that are sorted by score and then by picture (see `lists.py`).
    """
    words = words or words_for(queries, codes)
    wide, longest = (max(16, power_of_two(size)) for size in (codes.dim, max(queries.lengths)))
    shape = shape or _chosen_shape(longest, wide)
    found = torch.empty(chosen.shape, dtype=torch.int64 if keys else torch.float32, device=chosen.device)
    chosen_kernel[(-(-chosen.shape[1] // shape.pictures), len(queries))](
        codes.vectors,
        codes.starts,
        words.halves,
        words.table,
        chosen.contiguous(),
        words.table if counts is None else counts,
        found,
        chosen.shape[1],
        codes.regions or 0,
        codes.dim,
        words.halves.shape[1],
        len(queries),
        DIM=wide,
        WORDS=longest,
        PICTURES=shape.pictures,
        RAGGED=codes.regions is None,
        COUNTED=counts is not None,
        KEYS=keys,
        STAGES=shape.stages,
        num_warps=shape.warps,
        num_stages=shape.stages,
    )
    return found


def _chosen_shape(words: int, wide: int) -> Shape:
    """Few pictures a program, so that even a short list gives work to the whole GPU; words in registers."""
    warps = next(warps for warps in (2, 4, 8) if words * wide <= 2048 * warps or warps == 8)
    return Shape(pictures=16, warps=warps, stages=4 if wide <= 256 else 2, bulk=False)
