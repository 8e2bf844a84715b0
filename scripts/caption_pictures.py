"""Captions with the attention of each word, drawn as pictures: writes docs/pictures/caption-NAME.jpg.

    python scripts/caption_pictures.py adaptive=runs/adaptive updown=runs/updown --world test:17
    python scripts/caption_pictures.py updown=runs/updown-flickr8k --photos photos/*.jpg --out strips

One picture for each model and photo; where there are several photos, the file is caption-NAME-PHOTO.jpg. With --world
SPLIT:NUMBER pictures are those of the built-in world.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from explanation_pictures import WIDE, from_world
from PIL import Image

from saccade.core.config import override
from saccade.core.errors import SaccadeError
from saccade.explain import draw_explanation
from saccade.explain.draw import save_drawing
from saccade.tasks.captioning.predict import DECODING, PictureCaptioner
from saccade.tasks.predict import load
from saccade.vision.pictures import Picture


def named_pictures(given: argparse.Namespace) -> dict[str, Picture]:
    """The pictures to caption, by what the files of their strips are called."""
    found: dict[str, Picture] = {f"world-{place.replace(':', '-')}": from_world(place)[0] for place in given.world}
    found |= {path.stem: path for path in given.photos}
    if not found:
        raise SaccadeError("name pictures with --world SPLIT:NUMBER or --photos FILE")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="NAME=FOLDER", help="the name in the file's name; a run or model")
    parser.add_argument("--world", nargs="+", default=[], metavar="SPLIT:NUMBER", help="pictures of the built-in world")
    parser.add_argument("--photos", nargs="+", default=[], type=Path, metavar="FILE", help="picture files")
    parser.add_argument(
        "--decoding", nargs="+", default=[], metavar="KEY=VALUE", help="num_beams=3 no_repeat_ngram_size=3 …"
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    try:
        pictures, decoding = named_pictures(given), override(DECODING, given.decoding)
        for model in given.models:
            name, equals, folder = model.partition("=")
            if not equals:
                raise SaccadeError(f'a model is given as NAME=FOLDER, such as "updown=runs/updown", not "{model}"')
            captioner = load(folder, given.device, kind=PictureCaptioner)
            for place, picture in pictures.items():
                drawn = draw_explanation(explanation := captioner.explain(picture, decoding=decoding))
                smaller = drawn.resize((WIDE, round(drawn.height * WIDE / drawn.width)), Image.Resampling.LANCZOS)
                file = f"caption-{name}.jpg" if len(pictures) == 1 else f"caption-{name}-{place}.jpg"
                path = save_drawing(smaller, given.out / file, "an explanation")
                print(f"{path}: {' '.join(explanation.words)} (log-probability {explanation.score:.2f})", flush=True)
    except SaccadeError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
