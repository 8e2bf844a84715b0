"""A gallery of right and wrong answers: writes docs/pictures/answers-NAME.jpg.

    python scripts/answer_pictures.py world=runs/updown_vqa
    python scripts/answer_pictures.py photos=updown_vqa-flickr8k --photos photos

On the world, two right answers and one wrong of every kind, the first of the test split. With --photos questions are
those that rules read off the photos' captions (`saccade.language.caption_questions`), one of each text.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from saccade.core.errors import SaccadeError
from saccade.data import DataConfig, open_records
from saccade.explain.draw import save_drawing
from saccade.lab.reports import INK, new_figure
from saccade.language.caption_questions import questions_of
from saccade.language.parsing import shared_parser
from saccade.tasks.answering.task import PictureAnswerer
from saccade.tasks.predict import load
from saccade.vision.pictures import Picture, as_array

COLUMNS, PANEL = 6, 2.1  # inches
RIGHT, WRONG = "#00785a", "#bf4b00"


class Asked(NamedTuple):
    picture: Picture
    kind: str
    text: str
    truth: str


class Shown(NamedTuple):
    asked: Asked
    answer: str
    probability: float

    @property
    def right(self) -> bool:
        return self.answer == self.asked.truth


def world_questions(config: DataConfig, split: str) -> Iterator[Asked]:
    data = open_records(config, split, "questions")
    rows = zip(data.pictures.image_of_text.tolist(), data.kinds, data.texts, data.answers, strict=True)
    yield from (Asked(data.pictures.pictures[n](), kind, text, answers[0]) for n, kind, text, answers in rows)


def photo_questions(root: Path) -> Iterator[Asked]:
    data = open_records(DataConfig("coco_mini", root), "train+dev")
    for n, path in enumerate(data.paths):
        captions = [text for text, owner in zip(data.texts, data.image_of_text, strict=True) if owner == n]
        yield from (Asked(path, *question) for question in questions_of(shared_parser().parse(captions)))


def choose(asked: Iterator[Asked], answerer: PictureAnswerer, right: int, wrong: int) -> list[Shown]:
    """So many right and wrong answers of every kind, each picture and each text once; kind by kind."""
    found: dict[str, list[Shown]] = {}
    texts: set[str] = set()
    pictures: set[int | str] = set()
    for one in asked:
        own = found.setdefault(one.kind, [])
        key = str(one.picture) if isinstance(one.picture, Path) else hash(as_array(one.picture).tobytes())
        if one.text in texts or key in pictures or len(own) == right + wrong:
            continue
        best = answerer.ask(one.picture, one.text, top=1)[0]
        shown = Shown(one, best.text, best.probability)
        if sum(other.right == shown.right for other in own) < (right if shown.right else wrong):
            own.append(shown)
            texts.add(one.text)
            pictures.add(key)
    return [shown for kind in sorted(found) for shown in sorted(found[kind], key=lambda s: not s.right)]


def draw(shown: Sequence[Shown], path: Path) -> Path:
    rows = -(-len(shown) // COLUMNS)
    figure = new_figure((COLUMNS * PANEL, rows * (PANEL + 0.75)), 110)
    for place, one in enumerate(shown):
        axes = figure.add_subplot(rows, COLUMNS, place + 1)
        axes.imshow(as_array(one.asked.picture))
        axes.set_axis_off()
        said = f"{one.answer} ({100 * one.probability:.0f} %)" + ("" if one.right else f", truth: {one.asked.truth}")
        axes.set_title(textwrap.fill(one.asked.text, 34), fontsize=7, color=INK, pad=3)
        axes.text(0.5, -0.04, said, transform=axes.transAxes, ha="center", va="top", fontsize=8,
                  color=RIGHT if one.right else WRONG)  # fmt: skip
    figure.tight_layout(pad=0.6)
    canvas = figure.canvas
    canvas.draw()
    from PIL import Image

    drawn = Image.frombytes("RGBA", canvas.get_width_height(), bytes(canvas.buffer_rgba())).convert("RGB")  # type: ignore[attr-defined]
    return save_drawing(drawn, path, "a gallery")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="NAME=MODEL", help="the name in the file's name; a run or model")
    parser.add_argument("--photos", type=Path, default=None, help="a folder as photos/ of this repository")
    parser.add_argument("--pictures", type=int, default=DataConfig().pictures, help="the world's size")
    parser.add_argument("--split", default="test", help="of the world")
    parser.add_argument("--right", type=int, default=2)
    parser.add_argument("--wrong", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    try:
        name, equals, folder = given.model.partition("=")
        if not equals:
            raise SaccadeError(f'a model is given as NAME=MODEL, such as "world=runs/updown_vqa", not "{given.model}"')
        asked = (
            photo_questions(given.photos)
            if given.photos
            else world_questions(DataConfig(pictures=given.pictures), given.split)
        )
        shown = choose(asked, load(folder, "cpu", kind=PictureAnswerer), given.right, given.wrong)
        print(draw(shown, given.out / f"answers-{name}.jpg"))
    except SaccadeError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
