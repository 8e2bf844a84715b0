"""The explanation of one match by each matching model, drawn: writes docs/pictures/explain-NAME.jpg.

    python scripts/explanation_pictures.py imram=runs/imram camp=runs/camp gsmn=runs/gsmn vsrn=runs/vsrn \\
        --world test:3
    python scripts/explanation_pictures.py gsmn=runs/gsmn --picture holiday.jpg --text "two dogs run on the grass"

With --world SPLIT:NUMBER, the picture is one of the built-in world and the sentence, if not given, its first caption.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.explain import draw_explanation
from saccade.explain.draw import save_drawing
from saccade.tasks.predict import load
from saccade.vision.pictures import Picture
from saccade.world import WorldConfig, make_world

WIDE = 1600  # of a written picture: sharp enough on a page, and a few hundred kilobytes


def from_world(place: str) -> tuple[Picture, str]:
    """A picture of the world and its first caption."""
    split, _, number = place.partition(":")
    if not number.isdigit():
        raise SaccadeError(f'--world needs a split and a number, such as "test:3", not "{place}"')
    pictures = make_world(WorldConfig()).split(split)
    if int(number) >= len(pictures):
        raise SaccadeError(f"the split {split} of the world has {len(pictures)} pictures, there is no picture {number}")
    return np.asarray(pictures.image(int(number))), pictures.captions(int(number))[0].text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER", help="the name in the file's name; a run or model")
    parser.add_argument("--world", metavar="SPLIT:NUMBER", help="a picture of the built-in world")
    parser.add_argument("--picture", type=Path, help="a picture file, instead of --world")
    parser.add_argument("--text", help="the sentence; with --world, the first caption if not given")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    try:
        if given.world:
            picture, text = from_world(given.world)
            text = given.text or text
        elif given.picture and given.text:
            picture, text = given.picture, given.text
        else:
            raise SaccadeError("give either --world SPLIT:NUMBER, or --picture and --text")
        for model in given.models:
            name, equals, folder = model.partition("=")
            if not equals:
                raise SaccadeError(f'a model is given as NAME=FOLDER, such as "imram=runs/imram", not "{model}"')
            explanation = load(folder, given.device).explain(picture, text)
            drawn = draw_explanation(explanation)
            smaller = drawn.resize((WIDE, round(drawn.height * WIDE / drawn.width)), Image.Resampling.LANCZOS)
            path = save_drawing(smaller, given.out / f"explain-{name}.jpg", "an explanation")
            print(f"{path}: {text} (score {explanation.score:.3f})")
    except SaccadeError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
