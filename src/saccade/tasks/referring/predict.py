"""A trained referrer with pictures and sentences instead of tensors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import Alignment, CandidateBatch
from saccade.core.errors import SaccadeError
from saccade.data.formats.regions import read_boxes
from saccade.data.records import Candidates, Spoken, joined
from saccade.explain import Explanation
from saccade.explain.panels.referring import ReferralPicture
from saccade.features.decoding import in_fractions
from saccade.models import Referrer
from saccade.tasks.grounding.predict import PictureGrounder
from saccade.tasks.predict import RegionPredictor
from saccade.tasks.referring.dialog import learned_dialogs, turns_multiplied
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision import load_extractor
from saccade.vision.boxes import as_boxes
from saccade.vision.pictures import Picture, as_array, open_sized

DETECTOR = "bottomup"  # finds the candidates of a model whose own extractor finds no things
MOST, LEAST = 20, 0.1  # candidates that a detector gives, and how sure it must be of each
GROUNDED = 4.0  # the power of what a grounder says of candidates; from 2 to 4 it makes little difference


@dataclass(frozen=True)
class Referent:
    """A box, how likely it is meant, and what the detector calls it."""

    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in 0..1
    probability: float
    name: str = ""


def _referred(referrer: PictureReferrer, image: Any, text: str, top: int) -> Outcome:
    picture = as_array(image)
    found = referrer.refer(picture, text)[: top or None]
    lines = tuple(Line(one.name or "box", probability=one.probability, boxes=(one.box,)) for one in found)
    return Outcome(lines, referrer.explain(picture, text))


class PictureReferrer(RegionPredictor[Referrer]):
    """A trained referrer: a picture and an expression or a dialog in, the box that it means out.

    A text is an expression, or the turns of a dialog ("is it red? no", …), which a model that learned expressions alone
    reads by their phrases. Candidates are boxes of your own (an array
    [box, 4] in 0..1, or `Candidates` with their categories), or what a detector finds.
    """

    grounder: PictureGrounder | None = None  # asked too, if set: how well each candidate fits the words of a phrase

    uses = (
        Use(
            "refer", "Find the thing that is meant", "picture", _referred, "expression", "the second cup from the left"
        ),
    )

    def candidates(self, image: Picture, detector: str | None = None) -> Candidates:
        """What a detector finds, each thing once; without a name, that of the model itself if it is one.

        Raises: SaccadeError if it finds nothing.
        """
        own = detector is None and self.extractor.has_names
        finder = self.extractor if own else load_extractor(detector or DETECTOR, device=self.device)
        if not finder.has_names:
            raise SaccadeError(
                f'the extractor "{finder.name}" finds no things to choose among: give boxes or a detector'
            )
        found = finder.graph([image])[0].surest(MOST, LEAST).regions
        if not found:
            raise SaccadeError("the detector finds nothing to choose among: give boxes")
        return Candidates(
            np.array([region.box for region in found], np.float32), tuple(region.labels["kind"] for region in found)
        )

    def given(self, image: Picture, boxes: np.ndarray) -> Candidates:
        """Boxes of a user's own, by the names that the model's extractor has for them, if it has names."""
        checked = as_boxes(boxes, "the candidates").numpy()
        if not self.extractor.has_names:
            return Candidates(checked, ("",) * len(checked))
        named = self.extractor.describe([image], [checked])[0]
        return Candidates(checked, tuple(region.labels.get("kind", "") for region in named))

    def refer(self, image: Picture, text: Spoken, candidates: Candidates | np.ndarray | None = None) -> list[Referent]:
        """All candidates, the likeliest first."""
        chosen, chances, _ = self._read(image, text, candidates)
        order = np.argsort(-chances[-1], kind="stable")
        return [Referent(tuple(chosen.boxes[i].tolist()), float(chances[-1, i]), chosen.categories[i]) for i in order]

    def show(
        self,
        image: Picture,
        text: Spoken,
        candidates: Candidates | np.ndarray | None = None,
        title: str = "",
    ) -> ReferralPicture:
        """What is meant, the rest dimmed; of a dialog, after every turn: `.save("which.png")` draws it."""
        chosen, chances, _ = self._read(image, text, candidates)
        picture = as_array(image)
        if isinstance(text, str):
            return ReferralPicture(picture, chosen.boxes, (text,), chances[-1:], title)
        after = [self._read(image, text[:n], chosen)[1][-1] for n in range(1, len(text))]
        before = np.full(len(chosen.boxes), 1 / len(chosen.boxes))
        steps = (f"{len(chosen.boxes)} candidates", *text)
        return ReferralPicture(picture, chosen.boxes, steps, np.stack([before, *after, chances[-1]]), title)

    @torch.no_grad()
    def _read(
        self, image: Picture, text: Spoken, candidates: Candidates | np.ndarray | None
    ) -> tuple[Candidates, Float[np.ndarray, "step candidate"], tuple[str, ...]]:
        """The candidates, how likely each is after every step of reading, and the steps in words (not <end>).

        With a grounder, what it says of an expression is multiplied into the last step.
        A model that learned no dialogs reads one by the phrases of its turns (`dialog.py`).
        Raises: SaccadeError if nothing is said, or the model knows none of the words.
        """
        if not joined(text).strip():
            raise SaccadeError("say what is meant: an expression, or a dialog of one turn or more")
        if candidates is None:
            candidates = self.candidates(image)
        elif not isinstance(candidates, Candidates):
            candidates = self.given(image, candidates)
        seen = self.extractor.extract([image], [candidates.boxes]).to(self.device)
        categories = torch.tensor([self.model.category_ids(candidates.categories)], device=self.device)
        boxes = CandidateBatch(seen.features, seen.mask, seen.boxes, categories)
        regions = self.extract([image])
        grounded = None if self.grounder is None else self.grounder.extract([image])

        def read(said: Spoken) -> tuple[Float[np.ndarray, "step candidate"], tuple[str, ...]]:
            self.model.vocabulary.check(joined(said))
            texts = self.model.read_spoken([said])
            found = self.model.refer(regions, boxes, texts.to(self.device))
            steps = texts.shown[0][: len(texts.shown[0]) - self.model.config.end]
            chances = found.steps.softmax(dim=2)[0].cpu().numpy()
            if self.grounder is not None and grounded is not None and isinstance(said, str):
                weighed = chances[-1] * self.grounder.box_shares(grounded, said, candidates.boxes) ** GROUNDED
                chances[-1] = weighed / weighed.sum()
            return chances, steps

        if isinstance(text, str) or learned_dialogs(self.model.vocabulary):
            return candidates, *read(text)
        vocabulary, count = self.model.vocabulary, len(candidates.boxes)
        return candidates, turns_multiplied(text, vocabulary, count, lambda phrase: read(phrase)[0][-1]), text

    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        """How likely each candidate is after every word of an expression, or every turn of a dialog (one a line)."""
        if text is None:
            raise SaccadeError("a referrer shows what an expression means: give one after the picture")
        picture = as_array(image)
        lines = tuple(line for line in text.splitlines() if line.strip())
        chosen, chances, steps = self._read(picture, lines if len(lines) > 1 else text, None)
        read = len(steps)  # what follows are steps of thinking: of these the last is shown
        words = [*steps, f"→ {chosen.categories[int(chances[-1].argmax())] or 'box'}"]
        weights = torch.from_numpy(np.concatenate([chances[:read], chances[-1:]]))[None]
        known = weights.new_ones(1, len(words), dtype=torch.bool)
        there = weights.new_ones(1, len(chosen.boxes), dtype=torch.bool)
        alignment = Alignment(weights, weights[:, -1].amax(dim=1), known, there)
        boxes = torch.from_numpy(chosen.boxes)
        found = Explanation.from_alignment(alignment, 0, words, boxes, picture, title or text)
        return replace(found, unknown=frozenset(self.model.vocabulary.unknown(text)))


def given_boxes(path: Path, photo: Path) -> Float[np.ndarray, "box 4"]:
    """A photo's boxes of a file (`saccade.data.formats.regions.read_boxes`), as parts of its width and height.

    Raises: SaccadeError if the file has none for it, or one leaves the photo.
    """
    given = read_boxes(path).of([photo.name], path)
    boxes = given.boxes[photo.name]
    if given.unit == "fraction":
        return boxes
    size = (given.sizes or {}).get(photo.name) or open_sized(photo)[1]
    return in_fractions(boxes, *size, f"{path}, {photo.name}")
