"""The explanation of one match: what every model's alignment becomes before it is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image

from saccade.batch import Alignment
from saccade.core.errors import SaccadeError
from saccade.explain.draw import spread

_SPECIAL = ("<pad>", "<start>", "<end>")  # <unk> never appears here: words are kept as written
_ALIGNED = {  # what only some models' alignments say, by the axes it has beside the pair
    "region_score": ("region",),
    "steps": ("step", "word", "region"),
    "word_gate": ("word",),
    "region_gate": ("region",),
    "word_links": ("word", "word"),
    "region_links": ("region", "region"),
}
_OPTIONAL = {**_ALIGNED, "sentinel": ("word",)}


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a picture and a sentence match, or why a captioner said it: each word with the regions it attended to.

    Data alone: `saccade.explain` has the functions that draw and save it.
    """

    image: UInt8[Array, "height width 3"]
    words: tuple[str, ...]  # without <start> and <end>
    weights: Float[Array, "word region"]
    boxes: Float[Array, "region 4"]  # x1, y1, x2, y2 in 0..1
    score: float
    word_score: Float[Array, " word"] | None = None  # how well each word found its regions
    title: str = ""
    region_score: Float[Array, " region"] | None = None  # how well each region found its words
    steps: Float[Array, "step word region"] | None = None  # the weights of each, if there are several
    word_gate: Float[Array, " word"] | None = None  # 0..1: how far each word lets in what it found
    region_gate: Float[Array, " region"] | None = None
    word_links: Float[Array, "word word"] | None = None  # how much the first word takes from the second
    region_links: Float[Array, "region region"] | None = None
    sentinel: Float[Array, " word"] | None = None  # β, 0..1: the share of a word's attention that no region got
    said: bool = False  # by a captioner: the score is a log-probability, words' scores are probabilities

    def __post_init__(self) -> None:
        if self.image.ndim != 3 or self.image.shape[2] != 3 or self.image.dtype != np.uint8 or not self.image.size:
            raise SaccadeError(
                f"an explanation's image must be uint8 [height, width, 3], not {self.image.dtype} {self.image.shape}"
            )
        if not self.words:
            raise SaccadeError("there is nothing to explain: the sentence has no words")
        regions = len(self.boxes)
        if self.boxes.shape != (regions, 4) or not regions:
            raise SaccadeError(f"an explanation's boxes must be [region, 4], not {self.boxes.shape}")
        if self.weights.shape != (len(self.words), regions):
            raise SaccadeError(
                f"an explanation's weights must be [{len(self.words)} words, {regions} regions], not "
                f"{self.weights.shape}"
            )
        if self.word_score is not None and self.word_score.shape != (len(self.words),):
            raise SaccadeError(f"an explanation needs {len(self.words)} word scores, not {self.word_score.shape}")
        for name in ("weights", "boxes", "word_score", "score", *_OPTIONAL):
            value = getattr(self, name)
            if value is None:
                continue
            if name in _OPTIONAL:
                self._check_shape(name, value)
            if not np.isfinite(value).all():
                raise SaccadeError(f"an explanation's {name} must be finite numbers")
            if (name.endswith("_gate") or name == "sentinel") and not ((value >= 0) & (value <= 1)).all():
                raise SaccadeError(f"an explanation's {name} must lie in 0..1, not in {value.min():g}..{value.max():g}")

    def _check_shape(self, name: str, value: Array) -> None:
        """An optional array has the axes that _OPTIONAL names; there may be any number of steps but none."""
        sizes = {"step": max(1, len(value)) if value.ndim else 1, "word": len(self.words), "region": len(self.boxes)}
        if value.shape != tuple(sizes[axis] for axis in _OPTIONAL[name]):
            wanted = ", ".join("steps" if axis == "step" else f"{sizes[axis]} {axis}s" for axis in _OPTIONAL[name])
            raise SaccadeError(f"an explanation's {name} must be [{wanted}], not {value.shape}")

    def heat(self, word: int, size: tuple[int, int] | None = None) -> Float[Array, "height width"]:
        """Where word number `word` looks, 0..1, at the picture's own size or at `size` = (height, width)."""
        return spread(self.weights[word], self.boxes, size or (self.image.shape[0], self.image.shape[1]))

    def save(self, path: Path | str) -> Path:
        """Drawn as a picture (.png, .jpg, .webp) or as a page (.html) at `path`, whole or not at all."""
        from saccade.explain.html.figure import save_explanation  # which draws what this file describes

        return save_explanation(self, path)

    @staticmethod
    def from_alignment(
        alignment: Alignment, index: int, words: Sequence[str], boxes: Any, image: Any, title: str = ""
    ) -> Explanation:
        """Pair number `index` of an alignment, without its padding and its <start> and <end>.

        `words` are those of the sentence as in `TextBatch.words`; `boxes` [region, 4] and `image` [height, width, 3]
        may be arrays, tensors or (for the image) a Pillow picture.
        """
        word_mask = alignment.word_mask[index].cpu().numpy()
        region_mask = alignment.region_mask[index].cpu().numpy()
        positions = np.flatnonzero(word_mask)
        if len(words) != len(positions):
            raise SaccadeError(f"the alignment has {len(positions)} words, the sentence {len(words)}")
        kept = [i for i, word in enumerate(words) if word not in _SPECIAL]
        boxes = np.asarray(boxes, dtype=np.float64)
        if len(boxes) == len(region_mask):
            boxes = boxes[region_mask]
        if len(boxes) != region_mask.sum():
            raise SaccadeError(f"the alignment has {region_mask.sum()} regions, but there are {len(boxes)} boxes")
        real = {"word": positions[kept], "region": np.flatnonzero(region_mask)}

        def array(name: str, axes: tuple[str, ...]) -> Any:
            """A tensor of the alignment, if it is there, as an array of the words and regions that are drawn."""
            tensor = getattr(alignment, name)
            if tensor is None:
                return None
            result: Array = tensor[index].detach().double().cpu().numpy()
            sizes = {"word": len(word_mask), "region": len(region_mask)}
            if len(axes) != result.ndim or any(sizes.get(k, n) != n for k, n in zip(axes, result.shape, strict=True)):
                raise SaccadeError(
                    f"the alignment's {name} must be [pair, {', '.join(axes)}], not {tuple(tensor.shape)}"
                )
            for axis, kind in enumerate(axes):
                result = result.take(real[kind], axis) if kind in real else result
            return result

        if isinstance(image, Image.Image):
            image = image.convert("RGB")
        return Explanation(
            image=np.asarray(image),
            words=tuple(words[i] for i in kept),
            weights=array("weights", ("word", "region")),
            boxes=boxes,
            score=float(alignment.score[index]),
            word_score=array("word_score", ("word",)),
            title=title,
            **{name: array(name, axes) for name, axes in _ALIGNED.items()},
        )
