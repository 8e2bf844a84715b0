"""Which codes go through the MaxSim kernel, in what blocks, and the launch itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.kernels import kernels_wanted
from saccade.ops.region_codes import RegionCodes

if TYPE_CHECKING:
    from saccade.ops.maxsim import Queries

KERNEL_DTYPES = (torch.float16, torch.bfloat16, torch.int8)
_WORD_BYTES = 64 << 10  # of shared memory
_EVERYWHERE = False  # tests: launch on the CPU too, in Triton's interpreter


@dataclass(frozen=True)
class Shape:
    """How the kernel cuts its work: pictures of a block, warps, and blocks of codes on their way at once."""

    pictures: int = 64
    warps: int = 4
    stages: int = 3
    bulk: bool = True  # fetch with the tensor memory accelerator where the codes allow it


def shape_for(codes: RegionCodes) -> Shape:
    """What is quick for codes of such a width."""
    return Shape() if codes.dim <= 256 else Shape(pictures=128, warps=8)


def can_launch(queries: Queries, codes: RegionCodes) -> bool:
    """On a GPU with Triton: codes of half precision or bytes, short enough for shared memory."""
    if codes.vectors.device.type != "cuda" and not _EVERYWHERE:
        return False
    if codes.vectors.dtype not in KERNEL_DTYPES or not len(codes) or not len(queries.words) or not kernels_wanted():
        return False
    from saccade.ops.kernels.maxsim import MOST_WORDS
    from saccade.ops.kernels.maxsim_wide import MOST_WIDE

    return codes.dim <= MOST_WIDE and max(queries.lengths) <= MOST_WORDS and codes.vectors.is_contiguous()


def can_choose(queries: Queries, codes: RegionCodes) -> bool:
    """Whether `launch_chosen` can score these: codes of half precision, and each query's words in shared memory."""
    if not can_launch(queries, codes) or codes.vectors.dtype == torch.int8:
        return False
    words, wide = (max(16, _power_of_two(size)) for size in (max(queries.lengths), codes.dim))
    return words * wide * codes.vectors.element_size() <= _WORD_BYTES


def launch(
    queries: Queries, codes: RegionCodes, bound: bool = False, shape: Shape | None = None
) -> tuple[Float[Tensor, "query picture"], Float[Tensor, "query block"]]:
    """The scores, and the best score of each block of `shape.pictures` pictures."""
    from saccade.ops.kernels.maxsim import MOST_WORDS

    shape = shape or shape_for(codes)
    device = codes.vectors.device
    blocks = -(-len(codes) // shape.pictures)
    scores = torch.empty(len(queries), len(codes), device=device)
    peaks = torch.empty(len(queries), blocks, device=device)
    first = 0
    while first < len(queries):  # as many queries at a time as registers hold words of
        stop = first + 1
        while stop < len(queries) and sum(queries.lengths[first : stop + 1]) <= MOST_WORDS:
            stop += 1
        some = queries.part(first, stop)
        if len(some.words):
            _launch(some, codes, bound, shape, scores[first:stop], peaks[first:stop])
        else:
            _without_words(codes, scores[first:stop], peaks[first:stop], shape.pictures)
        first = stop
    return scores, peaks


def _launch(queries: Queries, codes: RegionCodes, bound: bool, shape: Shape, scores: Tensor, peaks: Tensor) -> None:
    import triton.language as tl

    from saccade.ops.kernels.maxsim import MOST_DIM, maxsim_kernel, word_blocks
    from saccade.ops.kernels.maxsim_wide import CHUNK, maxsim_wide_kernel

    device, dim = codes.vectors.device, codes.dim
    integer = codes.vectors.dtype == torch.int8
    chunks = -(-dim // CHUNK) if dim > MOST_DIM else 0
    wide = chunks * CHUNK or max(32 if integer else 16, _power_of_two(dim))
    parts = word_blocks(len(queries.words))
    spare = sum(parts) - len(queries.words)
    empty = torch.empty(0, device=device)
    scale, word_scale, reach, error, off, size = (empty,) * 6
    words = queries.words
    if integer:
        words, word_scale, off, size = queries.to_bytes()
        word_scale = F.pad(word_scale, (0, spare))
        scale, reach, error = _present(codes.scale), _present(codes.reach), _present(codes.error)
    asking = codes.vectors.new_zeros(sum(parts), wide)
    asking[: len(words), :dim] = words
    owner = torch.cat([queries.owner.int(), asking.new_full((spare,), -1, dtype=torch.int32)])
    ragged = codes.regions is None
    bulk = shape.bulk and not ragged and not chunks and wide == dim and codes.vectors.data_ptr() % 16 == 0
    source: Any = codes.vectors
    if bulk:
        from triton.tools.tensor_descriptor import TensorDescriptor

        pitch = dim * _number(codes.regions)
        source = TensorDescriptor(codes.vectors, [len(codes), pitch], [pitch, 1], [shape.pictures, dim])
    given = (codes.starts, scale, asking, word_scale, owner, reach, error, off, size, scores, peaks, len(codes))
    options: dict[str, Any] = {
        "FIRST": parts[0],
        "SECOND": parts[1],
        "THIRD": parts[2],
        "PICTURES": shape.pictures,
        "QUERIES": max(16, _power_of_two(len(queries))),
        "INTEGER": integer,
        "BOUND": bound and integer,
        "STAGES": shape.stages,
        "ADDEND": tl.bfloat16 if device.type == "cuda" else tl.float32,
        "num_warps": shape.warps,
        "num_stages": shape.stages,
    }
    blocks = peaks.shape[1]
    if chunks:
        maxsim_wide_kernel[(blocks,)](source, *given, dim, blocks, len(queries), CHUNKS=chunks, DIM=CHUNK, **options)
        return
    maxsim_kernel[(blocks,)](
        source,
        *given,
        codes.regions or 0,
        dim,
        blocks,
        len(queries),
        DIM=wide,
        PADDED=wide != dim,
        RAGGED=ragged,
        TMA=bulk,
        **options,
    )


def launch_chosen(
    queries: Queries, codes: RegionCodes, chosen: Int[Tensor, "query choice"], stages: int = 3
) -> Float[Tensor, "query choice"]:
    """MaxSim of each query with the pictures chosen for it, codes of half precision."""
    from saccade.ops.kernels.maxsim import chosen_kernel

    device, dim = codes.vectors.device, codes.dim
    wide = max(16, _power_of_two(dim))
    longest = max(16, _power_of_two(max(queries.lengths)))
    words = codes.vectors.new_zeros(len(queries), longest, wide)
    lengths = torch.tensor(queries.lengths, dtype=torch.int32).to(device)
    words[:, :, :dim][torch.arange(longest, device=device) < lengths[:, None]] = queries.words.to(words.dtype)
    scores = torch.empty(chosen.shape, device=device)
    pictures, stages = (64, stages) if wide <= 256 else (16, 2)
    chosen_kernel[(-(-chosen.shape[1] // pictures), len(queries))](
        codes.vectors,
        codes.starts,
        words,
        lengths,
        chosen.contiguous(),
        scores,
        chosen.shape[1],
        codes.regions or 0,
        dim,
        DIM=wide,
        WORDS=longest,
        PICTURES=pictures,
        RAGGED=codes.regions is None,
        STAGES=stages,
        num_warps=4,
        num_stages=stages,
    )
    return scores


def _without_words(codes: RegionCodes, scores: Tensor, peaks: Tensor, block: int) -> None:
    scores.zero_().masked_fill_(codes.starts.diff() == 0, -torch.inf)
    missing = peaks.shape[1] * block - len(codes)
    peaks.copy_(F.pad(scores, (0, missing), value=-torch.inf).view(*peaks.shape, block).amax(dim=2))


def _present(value: Tensor | None) -> Tensor:
    assert value is not None
    return value


def _number(value: int | None) -> int:
    assert value is not None
    return value


def _power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()
