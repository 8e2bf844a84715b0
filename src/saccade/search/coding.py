"""From a matcher's codes to the bytes of a row, and back.

Codes are kept as int8 with one scale a picture, or as float16. The vector of a whole picture, by which the first stage
finds candidates, is the model's own where it has one, and else the mean of the picture's codes, of unit length. A model
whose words and regions lie in no common space (a cross-encoder, HGR's levels side by side) has none: it scores
everything.

Regions that a linear map encodes lie in a subspace: SCAN's 1,024 numbers of 384 features have but 385 dimensions. Where
a model's scores depend on products and lengths alone, which is tried and not assumed, codes are kept in that subspace,
at a third of the room and of the time. Words keep one more number, the length of what lies outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.errors import SaccadeError
from saccade.models import CrossEncoder
from saccade.nn import unit
from saccade.search.region_codes import RegionCodes
from saccade.tasks.matching.task import PictureMatcher

Codes = Literal["int8", "float16"]
Whole = Literal["pooled", "mean", "carried", "none"]
MOST_REDUCED = 0.7  # of the numbers of a code, for it to be worth it
PROBE = "a man and a dog on the grass"
PROBE_NUMBERS = 8  # of a sentence's code, by which an index knows its model
PROBE_TOLERANCE = 0.02  # relative; other devices and precisions round otherwise


@dataclass(frozen=True)
class CodeFormat:
    """How an index keeps the codes of its model."""

    dim: int = 1  # of the codes as they are kept
    codes: Codes = "int8"
    whole: Whole = "mean"  # carried: the model's own, but no text has the like
    vector_dim: int = 0  # of `whole`
    reduced: bool = False  # codes are kept in the subspace in which they lie
    own_boxes: bool = False  # whether the model joins regions, and says where its codes lie
    probe: tuple[float, ...] = field(default=())

    @property
    def compares(self) -> bool:
        """Whether a sentence has a vector that can be compared with a whole picture's."""
        return self.whole in ("pooled", "mean")

    @property
    def itemsize(self) -> int:
        return 1 if self.codes == "int8" else 2


@dataclass(frozen=True)
class Encoded:
    """A picture as a row keeps it."""

    codes: np.ndarray  # [region dim] int8 or float16
    scale: float
    boxes: np.ndarray  # [region 4] float32
    vector: np.ndarray | None  # float16


@dataclass(frozen=True)
class StoredCodes:
    """Packed codes of some rows, in their order."""

    codes: RegionCodes  # vectors int8 or float16, not yet scaled
    scales: Float[Tensor, " image"]
    boxes: list[np.ndarray]
    vectors: Tensor | None

    def pick(self, rows: Int[Tensor, " choice"]) -> StoredCodes:
        """Some of the rows, in the order given."""
        vectors = None if self.vectors is None else self.vectors[rows]
        boxes = [self.boxes[row] for row in rows.tolist()]
        return StoredCodes(self.codes.pick(rows), self.scales[rows], boxes, vectors)


def _read_probe(matcher: PictureMatcher) -> TextBatch:
    """A sentence that the model can read."""
    try:
        return matcher.read(PROBE)
    except SaccadeError:  # it knows none of the words: other worlds have others
        known = (word for word in matcher.model.vocabulary.words[4:] if word.isalpha())
        return matcher.read(" ".join(islice(known, 6)))


@torch.no_grad()
def probe(matcher: PictureMatcher) -> tuple[float, ...]:
    """A few numbers that another model, or other weights, would not give."""
    numbers = matcher.model.encode_texts(_read_probe(matcher)).words[0].float().sum(dim=0)
    return tuple(round(float(value), 4) for value in numbers[:PROBE_NUMBERS])


@torch.no_grad()
def probe_dim(matcher: PictureMatcher) -> int:
    return matcher.model.encode_texts(_read_probe(matcher)).words.shape[2]


def check_probe(matcher: PictureMatcher, kept: CodeFormat, name: object, folder: object) -> None:
    """Raises: SaccadeError if the codes of an index were made by another model."""
    own, known = np.array(probe(matcher)), np.array(kept.probe)
    if own.shape != known.shape or np.abs(own - known).max(initial=0.0) > PROBE_TOLERANCE * np.abs(known).max(
        initial=1.0
    ):
        raise SaccadeError(
            f"{name} is not the model that {folder} was made with, or was trained since: index anew with it"
        )


@torch.no_grad()
def format_of(
    matcher: PictureMatcher, codes: Codes, region_dim: int | None = None
) -> tuple[CodeFormat, Float[Tensor, "dim reduced"] | None]:
    """How a model's codes are kept, from what it makes of four regions of noise; and the subspace in which they lie."""
    model = matcher.model
    dim = region_dim or getattr(model.config, "region_dim", None) or matcher.extractor.dim
    corners = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 1.0, 0.5], [0.0, 0.5, 0.5, 1.0], [0.5, 0.5, 1.0, 1.0]])
    generator = torch.Generator().manual_seed(0)
    blank = RegionBatch(torch.randn(1, 4, dim, generator=generator), torch.ones(1, 4, dtype=torch.bool), corners[None])
    image = model.encode_images(blank.to(matcher.device))
    text = model.encode_texts(_read_probe(matcher))
    basis = subspace(matcher, image, text)
    image, text = reduced_images(image, basis), reduced_texts(text, basis)
    whole, size = whole_of(matcher, image, text)
    own_boxes, dim = image.boxes is not None, image.regions.shape[2]
    return CodeFormat(dim, codes, whole, size, basis is not None, own_boxes, probe(matcher)), basis


def subspace(matcher: PictureMatcher, image: ImageCode, text: TextCode) -> Float[Tensor, "dim reduced"] | None:
    """An orthonormal basis of where a linear encoder's codes lie, if that is much smaller than where they are written
    and the model scores and aligns there as it did; else None."""
    layer = getattr(getattr(matcher.model, "regions", None), "fc", None)
    if not isinstance(layer, nn.Linear) or layer.in_features + 1 > MOST_REDUCED * layer.out_features:
        return None
    bias = [] if layer.bias is None else [layer.bias.detach()[:, None]]
    spanned = torch.cat([layer.weight.detach(), *bias], dim=1).double().cpu()
    basis = torch.linalg.qr(spanned).Q
    turned = torch.randn(
        basis.shape[1], basis.shape[1], dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    basis = (basis @ torch.linalg.qr(turned).Q).float().to(image.regions.device)  # no number larger than the others
    small = reduced_images(image, basis), reduced_texts(text, basis)
    try:
        pairs = [
            (matcher.model.similarity(*codes), matcher.model.locate(*codes).weights) for codes in ((image, text), small)
        ]
    except RuntimeError:  # a layer that reads the codes themselves
        return None
    same = all(torch.allclose(one, other, atol=1e-4) for one, other in zip(*pairs, strict=True))
    return basis if same else None


def reduced_images(image: ImageCode, basis: Float[Tensor, "dim reduced"] | None) -> ImageCode:
    if basis is None:
        return image
    return replace(image, regions=functional.pad(image.regions.float() @ basis, (0, 1)))


def reduced_texts(text: TextCode, basis: Float[Tensor, "dim reduced"] | None) -> TextCode:
    """Words in the subspace, and how much of each lies outside: products with regions and lengths stay as they are."""
    if basis is None:
        return text
    inside = text.words.float() @ basis
    outside = (text.words.float().square().sum(dim=2) - inside.square().sum(dim=2)).clamp(min=0).sqrt()
    return replace(text, words=torch.cat([inside, outside[..., None]], dim=2))


def whole_of(matcher: PictureMatcher, image: ImageCode, text: TextCode) -> tuple[Whole, int]:
    if image.pooled is not None and isinstance(matcher.model, CrossEncoder):
        return "carried", image.pooled.shape[-1]
    if isinstance(matcher.model, CrossEncoder):
        return "none", 0
    if image.pooled is not None and text.pooled is not None and image.pooled.shape[-1] == text.pooled.shape[-1]:
        return "pooled", image.pooled.shape[-1]
    if image.pooled is not None:
        return "carried", image.pooled.shape[-1]
    if image.regions.shape[-1] == text.words.shape[-1]:
        return "mean", image.regions.shape[-1]
    return "none", 0


@torch.no_grad()
def encode(
    matcher: PictureMatcher,
    regions: RegionBatch,
    kept: CodeFormat,
    basis: Float[Tensor, "dim reduced"] | None,
    names: Sequence[str],
) -> list[Encoded]:
    """The rows of some pictures. Raises: SaccadeError if a code is NaN or infinite."""
    image = reduced_images(matcher.model.encode_images(regions), basis)
    boxes = regions.boxes if image.boxes is None else image.boxes
    vectors = images_whole(image, kept)
    found = []
    for n, name in enumerate(names):
        mask = image.mask[n]
        own = image.regions[n][mask].float().cpu()
        placed = (
            boxes[n][mask].float().cpu().numpy()
            if len(boxes[n]) == len(mask)
            else np.tile(np.array([0, 0, 1, 1], np.float32), (len(own), 1))
        )
        vector = None if vectors is None else vectors[n].float().cpu()
        found.append(packed(own, placed, vector, kept, name))
    return found


def packed(codes: Tensor, boxes: np.ndarray, vector: Tensor | None, kept: CodeFormat, name: str) -> Encoded:
    """Codes rounded as an index keeps them. Raises: SaccadeError if they are not finite, or of another size."""
    if codes.ndim != 2 or codes.shape[1] != kept.dim or boxes.shape != (len(codes), 4):
        raise SaccadeError(
            f'"{name}": codes {list(codes.shape)} and boxes {list(boxes.shape)}, '
            f"[region, {kept.dim}] and [region, 4] were expected"
        )
    if not len(codes):
        raise SaccadeError(f'"{name}" has no regions')
    if not bool(codes.isfinite().all()) or (vector is not None and not bool(vector.isfinite().all())):
        raise SaccadeError(f'"{name}": its codes hold NaN or infinite numbers')
    boxes = np.ascontiguousarray(boxes, dtype=np.float32)
    if not np.isfinite(boxes).all():
        raise SaccadeError(f'"{name}": its boxes hold NaN or infinite numbers')
    short = None if vector is None else vector.numpy().astype(np.float16)
    if kept.codes == "float16":
        half = codes.numpy().astype(np.float16)
        if not np.isfinite(half).all():
            raise SaccadeError(f'"{name}": its codes are too large for float16')
        return Encoded(half, 1.0, boxes, short)
    scale = float(np.float32(float(codes.abs().max()) / 127)) or 1.0
    return Encoded((codes / scale).round().clamp(-127, 127).to(torch.int8).numpy(), scale, boxes, short)


def images_whole(image: ImageCode, kept: CodeFormat) -> Float[Tensor, "image vector_dim"] | None:
    if kept.whole == "none":
        return None
    if kept.whole in ("pooled", "carried"):
        return image.pooled
    mask = image.mask[..., None]
    return unit((image.regions * mask).sum(dim=1))


def texts_whole(text: TextCode, kept: CodeFormat) -> Float[Tensor, "text vector_dim"] | None:
    if not kept.compares:
        return None
    if kept.whole == "pooled":
        return text.pooled
    mask = text.mask[..., None]
    return (text.words * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


def image_code(stored: StoredCodes, kept: CodeFormat, device: torch.device) -> ImageCode:
    """What the model made of the pictures, but for the rounding, padded to the one with most regions."""
    codes, count = stored.codes, len(stored.codes)
    scales = stored.scales.to(device)
    if codes.regions is not None:
        regions = codes.vectors.view(count, codes.regions, kept.dim).to(device).float()
        mask = torch.ones(count, codes.regions, dtype=torch.bool, device=device)
    else:
        sizes = codes.starts.diff()
        mask = torch.arange(int(sizes.max()))[None] < sizes[:, None]
        regions = torch.zeros(*mask.shape, kept.dim)
        regions[mask] = codes.vectors.float()
        regions, mask = regions.to(device), mask.to(device)
    if kept.codes == "int8":
        regions *= scales[:, None, None]
    own = kept.whole in ("pooled", "carried")
    pooled = stored.vectors.to(device).float() if own and stored.vectors is not None else None
    boxes = None
    if kept.own_boxes:
        boxes = torch.zeros(*mask.shape, 4, device=device)
        for n, placed in enumerate(stored.boxes):
            boxes[n, : len(placed)] = torch.from_numpy(placed.copy()).to(device)
    return ImageCode(regions, mask, pooled, boxes)


def unpacked(table: Any, kept: CodeFormat, vectors: Tensor | None) -> StoredCodes:
    """The codes of rows as Arrow has them: columns codes, scale, regions and boxes, whose sizes were checked."""
    kind = np.int8 if kept.codes == "int8" else np.float16
    parts = [np.frombuffer(value.as_buffer(), kind) for value in table["codes"]]
    counts = torch.from_numpy(table["regions"].to_numpy().astype(np.int64))
    rows = torch.from_numpy(np.concatenate(parts) if parts else np.zeros(0, kind)).view(-1, kept.dim)
    boxes = [np.frombuffer(value.as_buffer(), np.float32).reshape(-1, 4) for value in table["boxes"]]
    scales = torch.from_numpy(table["scale"].to_numpy().copy())
    return StoredCodes(RegionCodes.rows(rows, counts), scales, boxes, vectors)
