"""Questions about captioned photos, read off their captions by rules (`language/caption_questions.py`) and balanced.

No person asked them: they are for a model that should answer plain questions about photos, and for nothing finer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.flickr import open_flickr8k
from saccade.data.records import CaptionedPhotos, Questions
from saccade.language.caption_questions import CaptionQuestion, balanced, phrased, questions_of
from saccade.language.parsing import shared_parser


def open_flickr8k_questions(split: str, root: Path | None) -> Questions[CaptionedPhotos]:
    """About three questions on each photo of a split (train, dev, extra, or a sum of them)."""
    return questions_from_captions(open_flickr8k(split, root))


def questions_from_captions(photos: CaptionedPhotos) -> Questions[CaptionedPhotos]:
    """Raises: SaccadeError if the captions give rise to none."""
    captions: list[list[str]] = [[] for _ in photos.ids]
    for text, image in zip(photos.texts, photos.image_of_text.tolist(), strict=True):
        captions[image].append(text)
    parser, place = shared_parser(), {id: n for n, id in enumerate(photos.ids)}
    asked = (
        (id, each) for id, own in zip(photos.ids, captions, strict=True) for each in questions_of(parser.parse(own))
    )
    rows: list[tuple[str, CaptionQuestion]] = [(id, phrased(id, each)) for id, each in balanced(asked)]
    if not rows:
        raise SaccadeError(
            f"{photos.name}/{photos.split}: nothing can be asked about {len(photos.ids)} photos' captions"
        )
    questions = [question for _, question in rows]
    return Questions(
        replace(
            photos,
            texts=tuple(question.text for question in questions),
            image_of_text=np.array([place[id] for id, _ in rows], dtype=np.int64),
        ),
        tuple((question.answer,) for question in questions),
        tuple(question.kind for question in questions),
        tuple(f"{id} {question.text}" for id, question in rows),
    )
