"""The explanation of one match: what every model's alignment becomes before it is drawn, and how a reader takes it in.

Which words carry content, which attend to the same place, in which colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8
from numpy import ndarray as Array
from PIL import Image

from saccade.batch import Alignment
from saccade.core.errors import SaccadeError
from saccade.core.text import escaped
from saccade.explain.draw import FAINT, INK, PALETTE, Colour, size_like, spread
from saccade.metrics.pointing import with_neighbours

MAX_WORDS = 50  # of a sentence that are drawn
_SPECIAL = ("<pad>", "<start>", "<end>")
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
    probability: float | None = None  # that the sentence fits the picture, if the model says so
    unknown: frozenset[str] = frozenset()  # words that the model does not know
    generated: bool = False  # by a captioner: the score is a log-probability, words' scores are probabilities
    more: int = 0  # words of the sentence beyond these, which are left out
    word_boxes: Mapping[int, Float[Array, " 4"]] = field(default_factory=dict)  # what a word means, where that is known

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
        sizes = {"word": len(self.words), "region": regions}
        for name in ("weights", "boxes", "word_score", "score", *_OPTIONAL):
            value = getattr(self, name)
            if value is None:
                continue
            if axes := _OPTIONAL.get(name):  # there may be any number of steps but none
                sizes["step"] = max(1, len(value)) if value.ndim else 1
                if value.shape != tuple(sizes[axis] for axis in axes):
                    wanted = ", ".join("steps" if axis == "step" else f"{sizes[axis]} {axis}s" for axis in axes)
                    raise SaccadeError(f"an explanation's {name} must be [{wanted}], not {value.shape}")
            if not np.isfinite(value).all():
                raise SaccadeError(f"an explanation's {name} must be finite numbers")
            if (name.endswith("_gate") or name == "sentinel") and not ((value >= 0) & (value <= 1)).all():
                raise SaccadeError(f"an explanation's {name} must lie in 0..1, not in {value.min():g}..{value.max():g}")
        for word, box in self.word_boxes.items():
            if not 0 <= word < len(self.words) or np.shape(box) != (4,) or not np.isfinite(box).all():
                raise SaccadeError(f"an explanation's word_boxes must be four finite numbers each, not {word}: {box}")

    @property
    def fits(self) -> bool:
        """False if the model says that nothing in the picture fits: no place is then drawn as a find."""
        return self.probability is None or self.probability >= 0.5

    def picture(self, side: float) -> Image.Image:
        """The picture at about the area of a square of this side, neither side above a quarter more."""
        size = size_like(self.image.shape[1] / self.image.shape[0], side, side * 1.25)
        return Image.fromarray(self.image).resize(size, Image.Resampling.LANCZOS)

    def heat(self, word: int, size: tuple[int, int] | None = None) -> Float[Array, "height width"]:
        """Where word number `word` attends, 0..1, at the picture's own size or at `size` = (height, width)."""
        return spread(self.weights[word], self.boxes, size or (self.image.shape[0], self.image.shape[1]))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The places the content words attend to, in the order of the sentence.

        Words get one colour when their strongest boxes are the same place. So "red" and "cube" share a colour exactly
        when the model bound them to one object, which is what a reader wants to check. A word whose box is known is
        there.
        """
        share = shares(self.weights)
        found: list[tuple[Float[Array, " 4"], int, list[int], float]] = []  # box, region, words, strength
        # The surest word names the place; vaguer words then join it.
        for word in sorted(range(len(self.words)), key=lambda i: -float(share[i].max(initial=0.0))):
            if not self.shows(word) or not chooses(share[word]):
                continue
            region = int(share[word].argmax())
            box = self.word_boxes.get(word, self.boxes[region])
            overlaps = [overlap(place[0], box) for place in found]
            if max(overlaps, default=0.0) >= SAME_PLACE:
                found[int(np.argmax(overlaps))][2].append(word)
            else:
                found.append((box, region, [word], float(share[word, region])))
        kept = sorted(found, key=lambda place: (-len(place[2]), -place[3]))[: len(PALETTE)]
        kept.sort(key=lambda place: min(place[2]))
        return tuple(
            Place(box, region, tuple(sorted(words)), strength, colour)
            for (box, region, words, strength), colour in zip(kept, PALETTE, strict=False)
        )

    def outlines(self, word: int, weights: Float[Array, " region"]) -> list[tuple[Float[Array, " 4"], float]]:
        """The boxes drawn around what a word found, faintest first, and how strong each is beside the strongest: the
        word's own box, or those of the regions that have most of its `weights`."""
        if word in self.word_boxes:
            return [(self.word_boxes[word], 1.0)]
        share = shares(weights[None])[0]
        return [(self.boxes[region], float(share[region] / share.max())) for region in top_regions(share)]

    @cached_property
    def colours(self) -> dict[int, Colour]:
        """Of the words that have a place."""
        return {word: place.colour for place in self.places for word in place.words}

    def ink(self, word: int) -> str:
        """A word's colour on paper: that of its place, else darker where it may show something."""
        if word in self.colours:
            return self.colours[word].ink
        return INK if self.shows(word) else FAINT

    def shows(self, word: int) -> bool:
        """Whether a word may have been found in the picture: it names something, the model knows it, and they fit."""
        return self.fits and is_content(self.words[word]) and not self.is_unknown(self.words[word])

    def is_unknown(self, word: str) -> bool:
        return word in self.unknown or word == "<unk>"  # as a captioner may say

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The words as they are shown: those that the model does not know say so."""
        return tuple(escaped(f"{word} (unknown)" if self.is_unknown(word) else word) for word in self.words)

    def shortened(self, most: int = MAX_WORDS) -> Explanation:
        """At most so many words, the first; every drawing and page begins with it, or a text would fill a wall."""
        if len(self.words) <= most:
            return self
        kept: dict[str, Any] = {"words": self.words[:most], "weights": self.weights[:most]}
        kept["word_boxes"] = {word: box for word, box in self.word_boxes.items() if word < most}
        for name, axes in {**_OPTIONAL, "word_score": ("word",)}.items():
            if (value := getattr(self, name)) is not None:
                kept[name] = value[tuple(slice(most if axis == "word" else None) for axis in axes)]
        return replace(self, **kept, more=self.more + len(self.words) - most)

    def on_regions(
        self,
        boxes: Float[Array, "region 4"],
        weights: Float[Array, "word region"],
        word_boxes: Mapping[int, Float[Array, " 4"]],
    ) -> Explanation:
        """The same sentence with the same scores, its words shown on other regions; what was told of the former ones is
        left out."""
        told = {name: None for name, axes in _OPTIONAL.items() if "region" in axes}
        return replace(self, boxes=boxes, weights=weights, word_boxes=word_boxes, **told)  # type: ignore[arg-type]

    @cached_property
    def strengths(self) -> Float[Array, " word"] | None:
        """The words' scores in 0..1. Cosines stay as they are; scores of a larger scale are divided by the largest."""
        if self.word_score is None:
            return None
        scores = np.asarray(self.word_score, dtype=np.float64)
        largest = float(np.abs(scores).max(initial=0.0))
        scaled: Float[Array, " word"] = np.clip(scores / largest if largest > 1.0 + 1e-4 else scores, 0.0, 1.0)
        return scaled

    @property
    def share(self) -> Share | None:
        """How far a matcher's words let in what they found; how much of a captioner's attention went to no region."""
        if self.sentinel is not None:
            return Share(self.sentinel, "sentinel", "sentinel: the share of the attention that went to no region")
        if self.word_gate is not None:
            return Share(self.word_gate, "gate", "gate: how far a word lets in what it found")
        return None

    @property
    def score_note(self) -> str:
        """The score in words."""
        more = f"… and {self.more:,} more word{'s' if self.more > 1 else ''} · " if self.more else ""
        if self.generated:
            return f"{more}log-probability {self.score:.2f} · bars: how sure of each word"
        if self.probability is None:
            return f"{more}score {self.score:.3f}"
        sure = f"{100 * self.probability:.0f} %"
        verdict = f"fits: {sure}" if self.fits else f"nothing here fits ({sure} that it does)"
        return f"{more}{verdict} · score {self.score:.3f}"

    def label(self, place: Place) -> str:
        """A place's words as a tag, each word once: neighbours in the sentence joined by a space, others by a dot."""
        text, seen, before = "", set[str](), -2
        for index in place.words:
            word = self.words[index]
            if word not in seen:
                text += (" " if index == before + 1 else " · ") * bool(text) + word
                seen.add(word)
                before = index
        return text

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
        may be arrays, tensors or (for the image) a Pillow picture. The cells of a grid get the weights by which words
        point (`saccade.metrics.pointing`), so that what is drawn is what is measured.
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
            weights=with_neighbours(array("weights", ("word", "region")), boxes),
            boxes=boxes,
            score=float(alignment.score[index]),
            word_score=array("word_score", ("word",)),
            title=title,
            **{name: array(name, axes) for name, axes in _ALIGNED.items()},
        )


# Words that hold a sentence together but show nothing by themselves. Words of place that a picture can show (left,
# behind, above …) are content.
_FUNCTION = (
    "a an the this that these those some any each every its it he she they his her their there here and or but nor as "
    "of to in on at by with from for into onto is are was were be been being am has have had do does did can could "
    "will would who whom which what while where when than then so not no "
    "i you we me us my your our see seen image photo shows n't 's 'm 'd 'll 're 've"
)
FUNCTION_WORDS = frozenset(_FUNCTION.split())
SAME_PLACE = 0.5  # two boxes that overlap this much (intersection over union) are one place to the extractor
BOXES_PER_WORD = 3


@dataclass(frozen=True)
class Place:
    """A part of the picture, and the content words whose strongest region lies there."""

    box: Float[Array, " 4"]
    region: int  # the one with this box
    words: tuple[int, ...]
    strength: float  # the largest share of its attention that one of the words gives to this box
    colour: Colour


def is_content(word: str) -> bool:
    """Does the word name something a picture can show?"""
    return any(c.isalnum() for c in word) and word.lower() not in FUNCTION_WORDS


def overlap(one: Float[Array, " 4"], other: Float[Array, " 4"]) -> float:
    """Intersection over union of two boxes."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    shared = max(width, 0.0) * max(height, 0.0)
    union = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1]) - shared
    return float(shared / union) if union > 0 else float(np.array_equal(one, other))


def chooses(share: Float[Array, " region"]) -> bool:
    """Whether a word attends to some regions more than to others; one region alone is always chosen."""
    largest = float(share.max(initial=0.0))
    return largest > 0 and (len(share) == 1 or float(share.min()) < largest * (1 - 1e-4))


def top_regions(share: Float[Array, " region"]) -> list[int]:
    """The few regions a word attends to most, faintest first (drawn first), none below a third of the strongest."""
    if not chooses(share):  # all alike: whichever were drawn would be an accident
        return []
    order = np.argsort(-share, kind="stable")[:BOXES_PER_WORD]
    return [int(r) for r in order if share[r] > 0 and share[r] >= share.max() / 3][::-1]


def shares(weights: Float[Array, "word region"]) -> Float[Array, "word region"]:
    """Each word's weights as shares of its own attention (rows sum to one, or to zero where it attends to nothing)."""
    positive = np.clip(weights, 0, None)
    total = positive.sum(axis=1, keepdims=True)
    share: Float[Array, "word region"] = np.divide(positive, total, out=np.zeros_like(positive), where=total > 0)
    return share


@dataclass(frozen=True)
class Share:
    """A number of 0..1 that some models have for each word, drawn as a framed bar beneath it."""

    values: Float[Array, " word"]
    name: str
    note: str  # how to read it
