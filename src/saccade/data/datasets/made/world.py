"""The built-in world as a data set: `data=world`, made when first asked for and kept in the cache.

Splits: train, dev, test, hard (groups of pictures that differ in one binding only) and novel (held-out compositions);
biased and biased_dev (red things are mostly cubes, in test they are not); cogent_a, cogent_a_dev and cogent_b (some
kinds have half of the colours only, and in cogent_b the other half).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from saccade.core.errors import SaccadeError
from saccade.core.progress import progress_bar
from saccade.data.records import (
    Candidates,
    CaptionedDrawings,
    GroundedPhrase,
    Groundings,
    PhrasedBoxes,
    Questions,
    Referrals,
    RelatedThings,
    Relations,
    Spoken,
    joined,
)
from saccade.world import Split, WorldConfig, make_world
from saccade.world.captions import region_phrases
from saccade.world.questions.asked import ask_all
from saccade.world.referring import discuss, refer
from saccade.world.scene import Scene
from saccade.world.store import locate_split

MIN_PHRASED_SIDE = 0.02  # of the picture: smaller things are left out


def open_world(split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000) -> CaptionedDrawings:
    """One split of the world of `pictures` pictures and this seed. `root`, if given, is where the world is kept."""
    config, part = _open_part(split, root, seed, pictures)
    return _drawings(split, config, part, [[caption.text for caption in part.captions(i)] for i in range(len(part))])


def open_world_questions(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Questions[CaptionedDrawings]:
    """About 24 questions on each picture of a split, with answers and programs."""
    config, part = _open_part(split, root, seed, pictures)
    asked = ask_all(part, config)
    return Questions(
        _drawings(split, config, part, [[question.text for question in own] for own in asked]),
        answers=tuple((question.answer,) for own in asked for question in own),
        kinds=tuple(question.kind for own in asked for question in own),
        ids=tuple(f"{id}-{n:02d}" for id, own in zip(part.ids, asked, strict=True) for n in range(len(own))),
        programs=tuple(question.program for own in asked for question in own),
    )


def _drawings(split: str, config: WorldConfig, part: Split, texts: list[list[str]]) -> CaptionedDrawings:
    return CaptionedDrawings(
        name="world",
        split=split,
        ids=tuple(part.ids),
        pictures=tuple(partial(part.image, i) for i in range(len(part))),
        texts=tuple(text for own in texts for text in own),
        image_of_text=np.repeat(np.arange(len(part), dtype=np.int64), [len(own) for own in texts]),
        digest=config.digest(),
        boxes=tuple(partial(part.boxes, i) for i in range(len(part))),
    )


def open_world_phrases(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Iterator[tuple[str, Callable[[], np.ndarray], PhrasedBoxes]]:
    """(id, picture, boxes with phrases) of each picture: the things in it that can be seen."""
    _, part = _open_part(split, root, seed, pictures)
    for i, id in enumerate(part.ids):
        scene, boxes = part.scene(i), part.boxes(i)
        visible = [n for n, box in enumerate(boxes) if min(box[2] - box[0], box[3] - box[1]) > MIN_PHRASED_SIDE]
        yield id, partial(part.image, i), PhrasedBoxes(boxes[visible], tuple(region_phrases(scene, n) for n in visible))


def open_world_grounding(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Groundings[CaptionedDrawings]:
    """The captions of a split and what their phrases name; a phrase of nothing that can be seen is left out."""
    config, part = _open_part(split, root, seed, pictures)
    texts: list[list[str]] = []
    phrases: list[tuple[GroundedPhrase, ...]] = []
    for i in range(len(part)):
        boxes, captions = part.boxes(i), part.captions(i)
        seen = ((boxes[:, 2:] - boxes[:, :2]).min(axis=1) > MIN_PHRASED_SIDE) if len(boxes) else np.zeros(0, bool)
        texts.append([caption.text.replace(",", " ,") for caption in captions])
        for caption in captions:
            named = ((phrase, [n for n in phrase.things if seen[n]]) for phrase in caption.phrases)
            phrases.append(
                tuple(
                    GroundedPhrase(p.start, p.end, boxes[things], "one thing" if len(things) == 1 else "several")
                    for p, things in named
                    if things
                )
            )
    return Groundings(_drawings(split, config, part, texts), tuple(phrases))


def open_world_relations(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Relations[CaptionedDrawings]:
    """All relations between the things of each picture that can be seen.

    Some combinations of doer, act and thing are in the split "novel" alone; their parts are in all (`held_out_acts`).
    """
    config, part = _open_part(split, root, seed, pictures)
    things = []
    for i in range(len(part)):
        scene, place, boxes, kinds = _visible(part, i)
        related = [(r.subject, r.predicate, r.object) for r in scene.relations]
        triplets = tuple((place[s], p, place[o]) for s, p, o in related if s in place and o in place)
        things.append(RelatedThings(boxes, kinds, triplets))
    return Relations(_drawings(split, config, part, [[] for _ in things]), tuple(things))


def open_world_referring(
    split: str, root: Path | None = None, seed: int = 0, pictures: int = 2000
) -> Referrals[CaptionedDrawings]:
    """Expressions and dialogs, each about one of the things of its picture that can be seen; categories are kinds."""
    config, part = _open_part(split, root, seed, pictures)
    candidates: list[Candidates] = []
    rows: list[tuple[int, Spoken, tuple[int, ...], int, str]] = []
    for i in range(len(part)):
        scene, place, boxes, own = _visible(part, i)
        candidates.append(Candidates(boxes, own))
        said: list[tuple[Spoken, int, str]] = [(e.text, e.thing, e.kind) for e in refer(scene)]
        said += [(tuple(turn.text for turn in d.turns), d.thing, _dialog_kind(len(d.turns))) for d in discuss(scene)]
        rows += [(i, text, tuple(range(len(place))), place[n], kind) for text, n, kind in said if n in place]
    owners, spoken, choices, targets, kinds = tuple(zip(*rows, strict=True)) or ((),) * 5
    texts: list[list[str]] = [[] for _ in range(len(part))]
    for owner, text in zip(owners, spoken, strict=True):
        texts[owner].append(joined(text))
    return Referrals(_drawings(split, config, part, texts), spoken, tuple(candidates), choices, targets, kinds)


def _visible(part: Split, i: int) -> tuple[Scene, dict[int, int], np.ndarray, tuple[str, ...]]:
    """A scene; and of its things that can be seen: the place of each among them, their boxes and kinds."""
    scene, boxes = part.scene(i), part.boxes(i)
    seen = [n for n, box in enumerate(boxes) if min(box[2] - box[0], box[3] - box[1]) > MIN_PHRASED_SIDE]
    return scene, {n: row for row, n in enumerate(seen)}, boxes[seen], tuple(scene.things[n].kind for n in seen)


def _dialog_kind(turns: int) -> str:
    """By the number of turns: long ones are rare."""
    return f"dialog_{turns}" if turns < 4 else "dialog_4+"


def _open_part(split: str, root: Path | None, seed: int, pictures: int) -> tuple[WorldConfig, Split]:
    if pictures < 1:
        raise SaccadeError(f"a world of {pictures} pictures is empty: give pictures=2000 or so")
    settings, own = locate_split(split)
    config = WorldConfig(pictures=pictures, seed=seed, **settings)
    if root is not None and config.colours != "any":  # a world of its own, beside the other
        root = root.with_name(f"{root.name}-{config.colours}")
    with progress_bar("making the world") as progress:
        part = make_world(config, root, progress=progress).split(own)
    if not len(part):
        raise SaccadeError(f'a world of {pictures} pictures has none for the split "{split}": give pictures=2000 or so')
    return config, part
