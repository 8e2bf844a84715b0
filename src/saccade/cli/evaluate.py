"""`saccade eval`: recall@K both ways of matchers, one or several averaged; caption metrics of captioners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.data_words import run_data, sort_words, with_words
from saccade.cli.decoding_options import BeamOption, HowOption, LongestOption, PenaltyOption, RepeatOption
from saccade.cli.device import Device
from saccade.core.errors import SaccadeError
from saccade.metrics import CUTOFFS, WAYS

KINDS = {"matching": "matcher", "captioning": "captioner", "dense_captioning": "dense captioner"}
FOR_MATCHERS = ("--folds", "--weights", "--raw", "--ensemble", "--quick")
RECALLS = [f"{way}_r{k}" for way in WAYS for k in CUTOFFS]


def evaluate(
    models: Annotated[list[str], typer.Argument(metavar="MODEL...", help="Run or model folders, and KEY=VALUE words.")],
    split: Annotated[str | None, typer.Option(help="Which split; the run's test split if not given.")] = None,
    folds: Annotated[int, typer.Option(help="Cut the pictures into so many folds and average (COCO 1K: 5).")] = 1,
    ensemble: Annotated[
        bool,
        typer.Option("--ensemble", help="Also average the models' similarities, each brought to the same spread."),
    ] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="Average the similarities as they are, as VSRN's and GSMN's papers do."),
    ] = False,
    weights: Annotated[
        str | None, typer.Option(metavar="2,1", help="How much each model counts in the average; equally if not given.")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Score first in 16 bits on a GPU, in bytes on a CPU where the model can, then again in full wherever "
            "a rank hangs on it: the same recalls, sooner.",
        ),
    ] = False,
    how: HowOption = None,
    beam: BeamOption = None,
    longest: LongestOption = None,
    length_penalty: PenaltyOption = None,
    no_repeat: RepeatOption = None,
    captions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep what a captioner said, in COCO's results format; of several models each gets a file of its own.",
        ),
    ] = None,
    device: Device = "cpu",
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    """How good models are: matchers by recall, captioners by BLEU, METEOR, ROUGE-L, CIDEr and scene graphs, dense
    captioners by mean average precision.

    Of matchers Recall@1, 5, 10 from pictures to texts and from texts to pictures, beside chance; --folds, --quick,
    --ensemble, --raw and --weights are for them, and the last two, ways of averaging, imply --ensemble. Of captioners
    what they say of each picture of the split is scored against what people said, times 100 as in papers; --how,
    --beam, --longest, --length-penalty, --no-repeat and --captions are for them, and where nothing is said captions are
    found as in the run's own evaluations.

    The data are those of the first run unless KEY=VALUE words say otherwise (data=precomp root=f30k_precomp). Models
    may be of different systems and extractors.

    Example: saccade eval runs/scan runs/vse --split hard --ensemble

    Example: saccade eval runs/updown runs/adaptive --beam 5 --captions said.json
    """
    from saccade.core.files import write_json
    from saccade.metrics import chance, check_folds, recall
    from saccade.models import Matcher, load_model
    from saccade.tasks import SplitForModels, ensemble_of, similarity_table

    folders, words, split = sort_words(models, split)
    if not folders:
        raise SaccadeError("name at least one run or model folder to evaluate")
    ensemble = ensemble or raw or weights is not None
    for_captioners = {
        "--how": how,
        "--beam": beam,
        "--longest": longest,
        "--length-penalty": length_penalty,
        "--no-repeat": no_repeat,
        "--captions": captions,
    }
    matching = (folds > 1, weights, raw, ensemble, quick)
    for_matchers = dict(zip(FOR_MATCHERS, matching, strict=True))
    kind = _kind(folders)
    _refuse(for_captioners if kind != "captioning" else {}, kind, folders[0])
    _refuse(for_matchers if kind != "matching" else {}, kind, folders[0])
    if kind == "dense_captioning":
        from saccade.cli.evaluate_dense import evaluate_dense

        config = with_words(run_data(folders[0]), words)
        evaluate_dense(folders, config, split or config.test_split, device, json_file)
        return
    if kind == "captioning":
        from saccade.cli.evaluate_captions import evaluate_captioners

        options = {"how": how, "beam": beam, "longest": longest, "penalty": length_penalty, "no_repeat": no_repeat}
        config = with_words(run_data(folders[0]), words)
        evaluate_captioners(folders, config, split or config.test_split, options, device, captions, json_file)
        return
    if ensemble and len(folders) == 1:
        raise SaccadeError(f"an ensemble needs two models or more, and {folders[0]} is the only one given")
    if ensemble and quick:
        raise SaccadeError(
            "--quick is exact in what ranks hang on and an ensemble averages whole tables: leave one out"
        )
    shares = _weights(weights, len(folders)) if weights is not None else None
    config = with_words(run_data(folders[0]), words)
    seen = SplitForModels(config, split or config.test_split)
    rows: dict[str, dict[str, float]] = {}
    tables = []
    for folder in folders:
        model = load_model(folder, Matcher).to(device)
        data = seen.regions_for(model, folder)
        check_folds(len(data.images), folds)
        rows.setdefault("chance", chance(data.image_of_text, len(data.images), folds))
        tables.append(similarity_table(model, data, quick=quick))
        rows[folder] = recall(tables[-1], data.image_of_text, folds)
    if ensemble:
        rows["ensemble"] = recall(ensemble_of(tables, shares, raw), data.image_of_text, folds)
    Console().print(_table(f"{data.name}/{data.split}: {len(data.images)} pictures, {len(data.texts)} texts", rows))
    if json_file:
        write_json(json_file, {"data": data.name, "split": data.split, "folds": folds, "results": rows})


def _kind(folders: Sequence[str]) -> str:
    """Whether these are all of one kind, before the first is evaluated, which may take a while."""
    from saccade.models import Captioner, DenseCap, Matcher, Model, find_model

    found: dict[str, str] = {}
    for folder in folders:
        model: type[Model] = find_model(folder)[1]
        if issubclass(model, Matcher):
            found.setdefault("matching", folder)
        elif issubclass(model, Captioner):
            found.setdefault("captioning", folder)
        elif issubclass(model, DenseCap):
            found.setdefault("dense_captioning", folder)
        else:
            raise SaccadeError(
                f"{folder} holds a model of {model.name}, and `saccade eval` is for matchers and captioners"
            )
    if len(found) > 1:
        (one, first), (other, second) = sorted(found.items(), key=lambda item: list(KINDS).index(item[0]))[:2]
        raise SaccadeError(
            f"{first} is a {KINDS[one]} and {second} a {KINDS[other]}: what they do has no measure in common, "
            "evaluate them one after the other"
        )
    return next(iter(found))


def _refuse(options: Mapping[str, Any], kind: str, folder: str) -> None:
    """Options of another kind of model."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        other = "matchers" if given[0] in FOR_MATCHERS else "captioners"
        raise SaccadeError(f"{given[0]} is for {other}, and {folder} is a {KINDS[kind]}")


def _weights(text: str, models: int) -> list[float]:
    from saccade.tasks import check_weights

    try:
        weights = [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SaccadeError(f"--weights {text}: numbers with commas between them were expected, such as 2,1") from error
    check_weights(weights, models)
    return weights


def _table(title: str, rows: Mapping[str, Mapping[str, float]]) -> Table:
    table = recall_table(title)
    for name, figures in rows.items():
        table.add_row(escape(name), *(f"{figures[key]:.1f}" for key in ("rsum", *RECALLS)))
    return table


def recall_table(title: str) -> Table:
    """The headings: a name, rsum, the six recalls; narrow, so that names have room in a terminal."""
    table = Table(title=escape(title), title_justify="left")
    table.add_column("\n\nmodel", overflow="fold")
    table.add_column("\n\nrsum", justify="right", no_wrap=True)
    for way in WAYS.values():
        first = way.replace("→", "\n→")
        for k in CUTOFFS:
            table.add_column(f"{first}\nR@{k}" if k == CUTOFFS[0] else f"\n\nR@{k}", justify="right", no_wrap=True)
    return table
