"""A sentence about a photo, grounded: every thing that it names is found, by a grounder or by any matcher."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import Alignment, RegionBatch
from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.explain.explanation import is_content
from saccade.explain.panels.grounded import GroundedPicture, PhrasePicture
from saccade.language import shared_parser
from saccade.language.tokenise import tokenise
from saccade.metrics.heat_maps import GIVEN_POWER, HeatBoxes, box_scores, covered
from saccade.metrics.pointing import with_neighbours
from saccade.models import Grounder, Matcher, Model
from saccade.tasks.grounding.locate import area_power, grounds, locate, phrase_heat, read_phrases
from saccade.tasks.predict import RegionPredictor
from saccade.tasks.uses import Line, Outcome, Use
from saccade.vision.pictures import Picture, as_array


@dataclass(frozen=True)
class FoundPhrase:
    """A phrase and the box that it means; neither box nor score if the model does not know what it names."""

    text: str
    box: tuple[float, float, float, float] | None  # x1, y1, x2, y2 in 0..1
    score: float | None  # of a grounder how likely the box is; of a matcher how well the phrase's words found a place
    levels: dict[str, int] = field(default_factory=dict)  # of a multi-level model: the layer each word chose, from 1


def _grounded(grounder: PictureGrounder, image: Any, text: str, top: int) -> Outcome:
    picture = as_array(image)
    grounded = grounder._ground(grounder.extract([picture]), text)
    lines = tuple(
        Line(one.text, details=("the model does not know it",))
        if one.box is None
        else Line(one.text, score=one.score, boxes=(one.box,))
        for one in grounded[0]
    )
    return Outcome(lines, grounder._explained(*grounded, picture, text))


class PictureGrounder(RegionPredictor[Any]):
    """A trained grounder or matcher: a picture and a sentence in, a box for each of its phrases out."""

    uses: ClassVar[tuple[Use, ...]] = (
        Use("ground", "Find what a sentence's phrases mean", "picture", _grounded, "sentence", "a man holds a guitar"),
    )
    model: Matcher | Grounder

    @classmethod
    def adopt(cls, model: Model) -> PictureGrounder | None:
        """Any matcher will do."""
        return cls(model) if grounds(model) or (isinstance(model, Matcher) and model.matches) else None

    def ground(self, image: Picture | RegionBatch, text: str, boxes: HeatBoxes = "windows") -> list[FoundPhrase]:
        """The box of every thing that a sentence names. Raises: SaccadeError if it names nothing that is known."""
        return self._ground(self.extract(image if isinstance(image, RegionBatch) else [image]), text, boxes)[0]

    @torch.no_grad()
    def _ground(
        self, regions: RegionBatch, text: str, boxes: HeatBoxes = "windows"
    ) -> tuple[list[FoundPhrase], Float[np.ndarray, "phrase region"], Float[np.ndarray, "region 4"]]:
        """The phrases, their heat (0 for one that is unknown), and the regions."""
        self.model.vocabulary.check(text)
        things = shared_parser().parse([text])[0].objects
        if not things:
            raise SaccadeError(f'"{text}" names nothing that could be found')
        known = [self.knows(" ".join(thing.words)) for thing in things]
        if not any(known):
            raise SaccadeError(f'the model knows none of the things that "{text}" names')
        texts, words = read_phrases(self.model, [text], [[(thing.start, thing.end) for thing in things]])
        texts, words = texts.to(self.device), words.to(self.device)
        warmth, boxed, mask = phrase_heat(self.model, regions, texts, words)
        places, real = boxed[0].double().cpu().numpy(), mask[0].cpu().numpy()
        heat = warmth[0].double().cpu().numpy()[:, real]
        found = locate(heat, places[real], boxes, power=area_power(self.model))
        scores, levels = heat.max(axis=1), [dict[str, int]() for _ in things]
        if not grounds(self.model):
            assert isinstance(self.model, Matcher)
            seen = self.model.align(self.model.encode_images(regions), self.model.encode_texts(texts))
            table = words[0].cpu().numpy()
            if seen.word_score is not None:
                scores = table @ seen.word_score[0].double().cpu().numpy() / table.sum(axis=1)
            if seen.word_level is not None:
                chosen, said = seen.word_level[0].tolist(), texts.words[0]
                levels = [{said[n]: chosen[n] + 1 for n in np.flatnonzero(row)} for row in table]
        phrases = [
            FoundPhrase(" ".join(thing.words), tuple(map(float, one.box)), float(score), level)  # type: ignore[arg-type]
            if is_known
            else FoundPhrase(" ".join(thing.words), None, None)
            for thing, one, score, level, is_known in zip(things, found, scores, levels, known, strict=True)
        ]
        return phrases, np.stack([one.heat for one in found]) * np.array(known)[:, None], places[real]

    def explain(self, image: Picture, text: str | None = None, *, title: str = "") -> Explanation:
        """Which regions each phrase of the sentence means: `.save("where.png")` draws it."""
        if text is None:
            raise SaccadeError("a grounder shows where the phrases of a sentence are: give one after the picture")
        picture = as_array(image)
        return self._explained(*self._ground(self.extract([picture]), text), picture, text, title)

    def _explained(
        self,
        found: list[FoundPhrase],
        heat: Float[np.ndarray, "phrase region"],
        regions: Float[np.ndarray, "region 4"],
        picture: np.ndarray,
        text: str,
        title: str = "",
    ) -> Explanation:
        weights, scores = torch.from_numpy(heat)[None], torch.tensor([[phrase.score or 0.0 for phrase in found]])
        words, real = torch.ones(1, len(found), dtype=torch.bool), torch.ones(1, len(regions), dtype=torch.bool)
        alignment = Alignment(weights, weights.amax(dim=2).mean(dim=1), words, real, scores)
        phrases = [phrase.text for phrase in found]
        drawn = Explanation.from_alignment(alignment, 0, phrases, regions, picture, title or text)
        unknown = frozenset(phrase.text for phrase in found if phrase.box is None)
        boxes = {n: np.array(one.box) for n, one in enumerate(found) if one.box is not None}
        return replace(drawn, unknown=unknown, word_boxes=boxes)

    @torch.no_grad()
    def box_shares(
        self, image: Picture | RegionBatch, phrase: str, boxes: Float[np.ndarray, "box 4"]
    ) -> Float[np.ndarray, " box"]:
        """How well each of some boxes fits a phrase, relative to the best; all alike if none of its words is known."""
        if not self.knows(phrase):
            return np.ones(len(boxes))
        texts, words = read_phrases(self.model, [phrase], [[(0, len(tokenise(phrase)))]])
        images = self.extract(image if isinstance(image, RegionBatch) else [image])
        warmth, regions, mask = phrase_heat(self.model, images, texts.to(self.device), words.to(self.device))
        heat, places = (value[..., mask[0], :].double().cpu().numpy() for value in (warmth[0].mT, regions[0]))
        scores = box_scores(heat.T, covered(boxes, places), GIVEN_POWER)[0]
        return np.asarray(scores / max(float(scores.max()), 1e-12))

    def knows(self, phrase: str) -> bool:
        """Whether the model knows any word of a phrase that shows something."""
        words, unknown = tokenise(phrase), set(self.model.vocabulary.unknown(phrase))
        return not unknown.issuperset([word for word in words if is_content(word)] or words)

    def place_phrases(self, found: Explanation, text: str) -> Explanation:
        """A matcher's explanation of a sentence, with all words of a phrase shown where the phrase is.

        The scores stay the matcher's, and so do the places of words between phrases, and of phrases that this model
        does not know.
        """
        things = shared_parser().parse([text])[0].objects
        if not any(self.knows(" ".join(thing.words)) for thing in things) or found.words != tuple(tokenise(text)):
            return found
        phrases, heat, regions = self._ground(self.extract([found.image]), text)
        weights, boxes = found.weights @ covered(regions, found.boxes).T, dict[int, np.ndarray]()
        for thing, phrase, row in zip(things, phrases, with_neighbours(heat, regions), strict=True):
            words = range(thing.start, thing.end) if phrase.box is not None else ()
            weights[list(words)] = row
            boxes |= {word: np.array(phrase.box) for word in words}
        return found.on_regions(regions, weights, boxes)

    def grounded(self, image: Picture, text: str) -> tuple[list[FoundPhrase], GroundedPicture]:
        """As `ground`, and a drawing: `.save("where.png")`."""
        picture = as_array(image)
        found, heat, regions = self._ground(self.extract([picture]), text)
        drawn = (
            PhrasePicture(phrase.text, None if phrase.box is None else np.array(phrase.box), note_of(phrase), row)
            for phrase, row in zip(found, with_neighbours(heat, regions), strict=True)
        )
        return found, GroundedPicture(picture, text, regions, tuple(drawn))


def note_of(phrase: FoundPhrase) -> str:
    """Its score, and the level of each word; or that it is unknown."""
    if phrase.score is None:
        return "(unknown)"
    levels = ", ".join(f"{word} {level}" for word, level in phrase.levels.items())
    return f"{phrase.score:.2f}" + (f" · level: {levels}" if levels else "")
