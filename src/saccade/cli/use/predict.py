"""Verbs for trained models of one task: `saccade score`, `calibrate`, `ask`, `refer`, `caption`, `densecap`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from saccade.cli.options import (
    GROUNDER,
    MATCHER,
    SIDE_ALONE,
    SIDE_ON_SHEET,
    Device,
    check_device,
    default_model,
    escape,
    listed_photos,
    print_where,
    report_broken,
    report_passed_over,
    report_unknown,
    run_data,
    save_drawings,
    say,
    sort_words,
    with_words,
    without_broken,
)
from saccade.core.errors import SaccadeError
from saccade.core.text import escaped
from saccade.tasks.captioning import LengthPenalty, Strategy, chosen_decoding

if TYPE_CHECKING:
    import numpy as np

    from saccade.tasks.captioning.predict import Captioned
    from saccade.tasks.dense_captioning.task import DescribedPhoto
    from saccade.tasks.matching.task import PictureMatcher


def score(
    pictures: list[Path],
    *,
    text: list[str],
    model: str | None = None,
    top: int = 20,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """How well each picture, or each video, fits each sentence.

    Beside the score stands how likely they fit, if the model was calibrated (`saccade calibrate`). Any number of photos
    is read in little memory. One that cannot be read is reported on standard error; the others are scored, and the exit
    code is 2. For many sentences: `saccade extract photos/ -o features --model scan-flickr8k`, then score the store.

    Example: saccade score photos/ -t "a red cube left of a blue ball" --model runs/scan

    Videos are read by a model that learned from videos; one that learned from photos looks at their frames.

    Example: saccade score features -t "two dogs run"

    Example: saccade score videos/ -t "a man plays the guitar" --model runs/hgr
    """
    import numpy as np

    from saccade.data.store.manifest import printable
    from saccade.features.extraction import hold_videos, stores_among
    from saccade.tasks.matching.task import PictureMatcher
    from saccade.tasks.predict import load

    if not text:
        raise SaccadeError('give at least one sentence with --text "…"')
    places, stores = stores_among(pictures)
    videos = hold_videos(places)
    photos = [(printable(file), file) for file in listed_photos(places, videos)]
    total = len(photos) + sum(map(len, stores))
    if not total:
        raise SaccadeError(f"{pictures[0]} holds no pictures to score")
    model = model or default_model()
    matcher = load(model, device, kind=PictureMatcher)
    report_unknown(matcher.model.vocabulary, text)
    if videos and stores:
        raise SaccadeError("score videos and feature stores apart: extract the videos, or leave the stores out")
    if not videos and photos and matcher.sees_videos:
        raise SaccadeError(f"{model} learned from videos, and {pictures[0]} holds photos")
    scored = matcher.score_videos(photos, text, model) if videos else matcher.score_places(photos, stores, text, model)
    found, broken = without_broken(scored, "scoring", total)
    if found:
        names, _, scores = zip(*found, strict=True)
        _print_scores(names, np.stack(scores), matcher, text, top, as_json)
    report_broken(broken, total)


def _print_scores(
    names: Sequence[str], scores: np.ndarray, matcher: PictureMatcher, text: list[str], top: int, as_json: bool
) -> None:
    order = (-scores[:, 0]).argsort(kind="stable")[: top or None]
    chance = matcher.probabilities(scores)
    if as_json:
        rows = [{"picture": names[i], "scores": scores[i].tolist()} for i in order]
        if chance is not None:
            rows = [{**row, "probabilities": chance[i].tolist()} for row, i in zip(rows, order, strict=True)]
        typer.echo(json.dumps(rows))
        return
    table = Table()
    table.add_column("picture", overflow="fold")
    for sentence in text:
        table.add_column(escape(sentence), justify="right", overflow="fold")
    for i in order:
        cells = [f"{s:.3f}" for s in scores[i]]
        if chance is not None:
            cells = [f"{cell}  {100 * p:3.0f} %" for cell, p in zip(cells, chance[i], strict=True)]
        table.add_row(escape(names[i]), *cells)
    Console().print(table)
    if len(order) < len(names):
        typer.echo(f"and {len(names) - len(order):,} more (--top 0 shows all)")
    if chance is not None:
        for sentence in (s for s, best in zip(text, chance.max(axis=0), strict=True) if best < 0.5):
            say(f'nothing here fits "{sentence}"')


def calibrate(words: list[str], *, split: str | None = None, device: Device = "auto", out: Path | None = None) -> None:
    """Make a matcher's scores probabilities, and see whether they can be believed.

    Every sentence of the split is scored with its own picture and with another one drawn at random; a curve with two
    numbers is fitted to these scores and kept beside the model, as calibration.json. `saccade score` and `saccade
    explain` then say how likely a sentence fits, and where nothing does. The error printed is of pictures that a curve
    fitted on the other half of them has not seen.

    Example: saccade calibrate runs/scan data=flickr8k root=data/flickr8k
    """
    from saccade.core.files import check_writable, write_json
    from saccade.lab.reports import draw_reliability
    from saccade.models import Matcher, find_model, load_model
    from saccade.models.base.model import CALIBRATION
    from saccade.tasks.evaluator import SplitForModels
    from saccade.tasks.matching.calibration import calibrate as fit
    from saccade.tasks.matching.evaluate import similarity_table
    from saccade.training.run import check_unseen

    folders, settings, split = sort_words(words, split)
    if len(folders) != 1:
        raise SaccadeError(f"one model is calibrated at a time, not {len(folders)}")
    folder = find_model(folders[0], Matcher)[0]
    config = with_words(run_data(folders[0]), settings)
    split = split or config.dev_split
    check_unseen(folders, config, split, "it is too sure of them; calibrate it on another split")
    check_writable(folder / CALIBRATION, out)
    model = load_model(folder, Matcher).to(check_device(device))
    data = SplitForModels(config, split).regions_for(model, folder)
    found = fit(similarity_table(model, data), data.image_of_text)
    write_json(folder / CALIBRATION, asdict(found.curve))
    Console(soft_wrap=True).print(
        f"{escaped(folder / CALIBRATION)}: p = σ({found.curve.slope:.3f} · score {found.curve.offset:+.3f}), fitted on "
        f"{found.pairs:,} pairs of {config.name}/{split}; expected calibration error {found.held_out.error:.1%}",
        markup=False,
        highlight=False,
    )
    if out is not None:
        draw_reliability(found.held_out, out)


def ask(
    picture: str,
    question: str | None = None,
    *,
    model: str | None = None,
    parser: str | None = None,
    out: Path | None = None,
    top: int = 5,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Answer a question about a photo, and show what the answer came from.

    A concept learner (vcml, nscl) makes a program of the question, prints its steps and draws each; it also answers
    questions about two concepts, for which no picture is needed and whose drawing is a map of all concepts.

    Example: saccade ask photo.jpg "what is the dog doing?" -o why.png

    Example: saccade ask photo.jpg "how many cubes are there?" --model runs/vcml -o steps.png

    Example: saccade ask "is red the same kind of thing as green?" --model runs/vcml -o concepts.png
    """
    from saccade.core.files import check_writable
    from saccade.explain.draw import check_format
    from saccade.tasks.predict import QuestionPredictor, load

    if question is None and Path(picture).is_file():
        raise SaccadeError(f"what is to be known of {picture}? Give a question after it")
    image = None if question is None else Path(picture)
    question = picture if question is None else question
    check_writable(out)
    if out is not None:
        check_format(out, "what an answer came from", (".html",))
    model = model or default_model("runs/updown_vqa", "updown_vqa-flickr8k")
    answerer = load(model, device, kind=QuestionPredictor)
    if parser is not None:
        answerer.use_parser(load(parser, device))
    report_unknown(answerer.model.vocabulary, [question.rstrip(" ?")])
    answers = answerer.ask(image, question, top)
    if out is not None:  # first of all: what cannot be drawn so is refused before anything is printed
        answerer.why(image, question).save(out)
    if as_json:
        typer.echo(json.dumps([asdict(answer) for answer in answers], ensure_ascii=False))
    else:
        for answer in answers:
            typer.echo(f"{100 * answer.probability:5.1f} %  {answer.text}")
        for number, step in enumerate(answers[0].steps if answers else (), start=1):
            typer.echo(f"{number:7d}  {step}")
    if out is not None:
        typer.echo(f"the picture is in {out}", err=as_json)


def ground(
    picture: Path,
    text: str,
    *,
    model: str | None = None,
    out: Path | None = Path("where.png"),
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Find what the phrases of a sentence mean in a photo: a box and a heat map for each.

    Any matcher or grounder will do. The score is how likely a grounder finds the box, or how well a matcher's words
    found a place; a multi-level model says in which layer it found each word. A phrase that the model does not know is
    listed as unknown.

    Example: saccade ground holiday.jpg "a man in a red shirt holding a guitar"

    Example: saccade ground scene.png "a red cube left of a blue ball" --model runs/multilevel --json -o where.png
    """
    from saccade.core.files import check_writable
    from saccade.explain.draw import check_format
    from saccade.tasks.grounding.locate import load_grounder
    from saccade.tasks.grounding.predict import PictureGrounder
    from saccade.vision.boxes import in_pixels
    from saccade.vision.pictures import as_array

    check_writable(out)
    if out is not None:
        check_format(out, "a grounded sentence")
    grounder = PictureGrounder(
        load_grounder(model or default_model("runs/scan", GROUNDER, MATCHER), check_device(device))
    )
    image = as_array(picture)
    found, drawn = grounder.grounded(image, text)
    report_unknown(grounder.model.vocabulary, [text])
    height, wide = image.shape[:2]
    boxes = [None if one.box is None else in_pixels(one.box, (wide, height)) for one in found]
    if as_json:
        rows = [
            {"text": phrase.text, "unknown": True} if box is None else {**asdict(phrase), "box": box, "unknown": False}
            for phrase, box in zip(found, boxes, strict=True)
        ]
        typer.echo(json.dumps({"width": wide, "height": height, "phrases": rows}, ensure_ascii=False))
    else:
        table = Table()
        levels = any(phrase.levels for phrase in found)
        for heading in ("phrase", "score", "box: x1, y1, x2, y2", *(["level"] if levels else [])):
            table.add_column(heading, justify="left" if heading in ("phrase", "level") else "right", overflow="fold")
        for phrase, box in zip(found, boxes, strict=True):
            chosen = [", ".join(f"{word} {level}" for word, level in phrase.levels.items())] if levels else []
            sides = "unknown" if box is None else ", ".join(f"{side:.0f}" for side in box)
            score = "" if phrase.score is None else f"{phrase.score:.2f}"
            table.add_row(escape(phrase.text), score, sides, *map(escape, chosen))
        Console().print(table)
    if out is not None:
        drawn.save(out)
        say(f"the picture is in {out}", err=as_json)


MAX_ROWS = 40  # pictures in the table where a file has them all


def caption(
    places: list[Path],
    *,
    model: str | None = None,
    strategy: Strategy | None = None,
    num_beams: int | None = None,
    num_return_sequences: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    max_length: int | None = None,
    length_penalty: LengthPenalty | None = None,
    no_repeat_ngram_size: int | None = None,
    seed: int = 0,
    attention: Path | None = None,
    json_file: Path | None = None,
    device: Device = "auto",
) -> None:
    """Say what is in photos, word by word.

    Captions are found by beam search with five beams unless the options say otherwise. A photo that cannot be read is
    reported on standard error; the others are captioned, and the exit code is 2.

    Example: saccade caption holiday.jpg --attention why.png

    Example: saccade caption photos/ --model runs/updown --num-beams 3 --no-repeat-ngram-size 3 --json captions.json

    Example: saccade caption holiday.jpg --model runs/updown --num-return-sequences 5 --top-p 0.9
    """
    import torch

    from saccade.core.files import check_writable, write_json
    from saccade.data.store.manifest import Broken
    from saccade.tasks.captioning.predict import DECODING, Drawings, PictureCaptioner, results, sort_places
    from saccade.tasks.predict import load

    decoding = chosen_decoding(
        DECODING,
        strategy=strategy,
        num_beams=num_beams,
        num_return_sequences=num_return_sequences,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        max_length=max_length,
        length_penalty=length_penalty,
        no_repeat_ngram_size=no_repeat_ngram_size,
    )
    keep = num_return_sequences or (None if decoding.strategy in ("sample", "diverse") else 1)
    passed_over = Counter[str]()
    photos, stores = sort_places(places, passed_over)
    report_passed_over(passed_over)
    total = len(photos) + sum(map(len, stores))
    if not total:
        raise SaccadeError(f"{places[0]} holds no pictures to caption")
    drawings = Drawings(attention, photos, stores)
    check_writable(json_file)
    model = model or default_model("runs/updown", "show_attend_tell-flickr8k")
    captioner = load(model, device, kind=PictureCaptioner)
    torch.manual_seed(seed)

    def captioned() -> Iterator[Captioned | Broken]:
        for found in captioner.caption_places(photos, stores, decoding, keep, model):
            if not isinstance(found, Broken):
                drawings.draw(found)
            yield found

    done, broken = without_broken(captioned(), "captioning", total)
    shown = done[:MAX_ROWS] if json_file is not None else done
    if done:
        plain = decoding.strategy != "diverse" and decoding.length_penalty == "none"
        Console().print(_caption_table(shown, "log p" if plain else "score"))
    if len(shown) < len(done):
        typer.echo(f"and {len(done) - len(shown):,} more")
    if json_file is not None and done:
        write_json(json_file, results(done))
        say(f"the captions are in {json_file}")
    for line in drawings.finish():
        say(line)
    report_broken(broken, total)


def _caption_table(done: Sequence[Captioned], score: str) -> Table:
    table = Table()
    table.add_column("picture", overflow="fold")
    table.add_column("caption", overflow="fold")
    table.add_column(score, justify="right")
    for picture in done:
        for number, said in enumerate(picture.captions):
            table.add_row(escape(picture.id) if not number else "", escape(said.text) or "–", f"{said.score:.2f}")
    return table


def densecap(
    photos: list[Path],
    *,
    model: Path = Path("runs/densecap"),
    out: Path | None = None,
    json_file: Path | None = None,
    top: int = 20,
    least: float = 0.1,
    num_beams: int = 1,
    device: Device = "auto",
) -> None:
    """Find the parts of a photo that are worth a phrase, and say one of each.

    The score is how sure the model is that a box is worth a phrase; boxes that overlap a surer one are left
    out. A photo that cannot be read is reported on standard error; the others are described, and the exit code is 2.

    Example: saccade densecap holiday.jpg --model runs/densecap -o phrases.png --json phrases.json
    """
    from saccade.core.files import check_writable, write_json
    from saccade.decoding import DecodingConfig
    from saccade.explain.draw import check_format
    from saccade.tasks.dense_captioning.task import PictureDescriber
    from saccade.tasks.predict import load

    if out is not None:
        check_format(out, "a picture of phrases")
    files = listed_photos(photos)
    check_writable(out, json_file)
    describer = load(model, device, kind=PictureDescriber)
    decoding = DecodingConfig(strategy="beam" if num_beams > 1 else "greedy", num_beams=num_beams, max_length=16)
    side = SIDE_ALONE if len(files) == 1 else SIDE_ON_SHEET
    described = describer.describe_photos(files, top, least, decoding, side)
    done, broken = without_broken(described, "describing", len(files))
    console = Console()
    for photo in done:
        console.print(_phrase_table(photo))
    if json_file is not None and done:
        write_json(json_file, [photo.facts(str(model)) for photo in done])
        say(f"the phrases are in {json_file}")
    if out is not None and done:
        save_drawings([photo.drawing for photo in done], out, 0)
        print_where(out, len(done))
    report_broken(broken, len(files))


def _phrase_table(photo: DescribedPhoto) -> Table:
    title = f"{escaped(photo.file.name)}  {photo.width} × {photo.height}"
    table = Table(title=Text(title, "bold"), title_justify="left")
    table.add_column("phrase", overflow="fold")
    table.add_column("score", justify="right")
    table.add_column("box: x1, y1, x2, y2", justify="right")
    for region, box in zip(photo.regions, photo.boxes(), strict=True):
        table.add_row(escape(region.phrase), f"{region.score:.2f}", ", ".join(f"{side:.0f}" for side in box))
    return table
