"""`saccade metrics`: captions and answers against what people said, and metrics against what people think."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli import described
from saccade.cli.options import say

if TYPE_CHECKING:
    from saccade.data.datasets.photos.judgements import Judgements
    from saccade.metrics.captions.meteor import MeteorTables

app = typer.Typer(no_args_is_help=True, help="Score captions and answers, and see which scores people agree with.")


@app.command()
@described
def score(
    candidates: Path,
    references: Path,
    *,
    only: list[str] | None = None,
    words: str = "auto",
    frequencies: Path | None = None,
    train: Path | None = None,
    each: Path | None = None,
    as_json: bool = False,
) -> None:
    """How good are captions, beside those that people wrote?

    Both files may be in any of the formats of docs/metrics.md: COCO's, Karpathy's, JSON lines, tables.

    Example: saccade metrics score results.json annotations/captions_val2014.json --each scores.jsonl
    """
    from dataclasses import asdict

    from saccade.core.files import check_writable, write_text
    from saccade.core.progress import progress_bar
    from saccade.data.formats.captions import pair_captions, read_caption_results
    from saccade.metrics.captions.cider import DocumentFrequencies
    from saccade.metrics.captions.meteor import load_meteor_tables
    from saccade.metrics.captions.report import caption_scores, caption_words, diversity

    check_writable(each)
    given = read_caption_results(references)
    paired = pair_captions(read_caption_results(candidates), given)
    left = len(given.texts) - len(paired)
    if left > 0:
        typer.echo(
            f"note: {left:,} of the {len(given.texts):,} pictures of {references} have no caption to score", err=True
        )
    said, wanted = [text for text, _ in paired.values()], [texts for _, texts in paired.values()]
    tables = load_meteor_tables(words)
    weights = DocumentFrequencies.load(frequencies) if frequencies is not None else None
    with progress_bar("scoring") as tell:
        scores = caption_scores(said, wanted, weights, tables, only, tell)
    known = [caption_words(t) for texts in read_caption_results(train).texts.values() for t in texts] if train else None
    judged = asdict(diversity([caption_words(text) for text in said], known))
    language = {name: value for name, value in judged.items() if value is not None}
    figures = {name: found.corpus for name, found in scores.items()}
    if each is not None:
        lines = [
            {"image_id": image, "caption": text} | {name: float(found.each[n]) for name, found in scores.items()}
            for n, (image, (text, _)) in enumerate(paired.items())
        ]
        write_text(each, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    if as_json:
        typer.echo(
            json.dumps({"pictures": len(paired), "meteor_stages": tables.stages, **figures, "language": language})
        )
        return
    table = Table("metric", title=f"{len(paired):,} caption{'s' if len(paired) > 1 else ''}")
    table.add_column("score", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:.4f}")
    table.add_section()
    for name, value in language.items():
        table.add_row(name, f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    Console().print(table)
    if "meteor" in figures:
        typer.echo(tables.describe())
    if each is not None:
        say(f"the scores of each picture are in {each}")


@app.command()
@described
def answers(
    results: Path,
    truth: Path,
    *,
    split: str | None = None,
    as_: str | None = None,
    wordnet: str = "auto",
    each: Path | None = None,
    as_json: bool = False,
) -> None:
    """How good are answers to questions, beside those that people gave?

    Where several people answered: VQA accuracy as the official evaluator has it, and with answers always normalised.
    Where one truth is known: the share of answers that equal it, and WUPS at 0.9 and 0.0. Questions without an answer
    count as wrong.

    Example: saccade metrics answers results.json v2_mscoco_val2014_annotations.json

    Example: saccade metrics answers results.json data/daquar --split test
    """
    from saccade.core.files import check_writable, write_text
    from saccade.data.formats.answers import check_known, read_answers, read_truth
    from saccade.language.wordnet import load_nouns
    from saccade.metrics.answers import answer_scores, by_kind, score_answers
    from saccade.metrics.wups import wups_scores

    check_writable(each)
    said, known = read_answers(results), read_truth(truth, split, as_)
    check_known(said, known, results)
    scores, nouns = answer_scores(list(known.answers.values())), None
    if "accuracy" in scores and (nouns := load_nouns(wordnet)) is not None:
        scores |= wups_scores(nouns)
    if missing := len(known.answers) - len(said):
        among = f"{missing:,} of the {len(known.answers):,} questions of {known.name}"
        typer.echo(f"note: {among} have no answer, which counts as wrong", err=True)
    found = score_answers([said.get(id) for id in known.answers], list(known.answers.values()), scores)
    kinds = list(known.kinds.values())
    parts = {name: by_kind(values, kinds) for name, values in found.items()}
    if each is not None:
        lines = [
            {"question_id": id, "answer": said.get(id)} | {name: float(values[n]) for name, values in found.items()}
            for n, id in enumerate(known.answers)
        ]
        write_text(each, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    figures = {name: float(values.mean()) for name, values in found.items()}
    names = sorted({kind for kind in kinds if kind})
    if as_json:
        by = {k: {"questions": kinds.count(k)} | {name: part[k] for name, part in parts.items()} for k in names}
        typer.echo(json.dumps({"questions": len(known.answers), "answered": len(said), **figures, "by_kind": by}))
        return
    table = Table("kind", title=f"{len(known.answers):,} questions of {known.name}, in %")
    for heading in ("questions", *figures):
        table.add_column(heading, justify="right")
    table.add_row("all", f"{len(known.answers):,}", *(f"{100 * value:.2f}" for value in figures.values()))
    table.add_section()
    for kind in names:
        table.add_row(kind, f"{kinds.count(kind):,}", *(f"{100 * part[kind]:.2f}" for part in parts.values()))
    Console().print(table)
    if "accuracy" in scores and nouns is None:
        typer.echo("WUPS needs WordNet's nouns: `pip install saccade[wordnet]`, or --wordnet FOLDER")
    if each is not None:
        typer.echo(f"the scores of each question are in {each}")


@app.command()
@described
def correlate(
    folder: Path,
    *,
    captions: list[Path] | None = None,
    only: list[str] | None = None,
    words: str = "auto",
    as_json: bool = False,
) -> None:
    """Do metrics rank captions as people do? Kendall's tau of each metric with Flickr8k's judgements.

    Captions of other photos are scored against a photo's own; judgements of a photo's own captions are left out.

    Example: saccade metrics correlate data/flickr8k -m meteor -m cider_d
    """
    from saccade.data.datasets.photos.judgements import read_judgements
    from saccade.metrics.captions.meteor import load_meteor_tables

    tables = load_meteor_tables(words)
    found = [(judged, _correlate(judged, only, tables)) for judged in read_judgements(folder, captions or ())]
    if as_json:
        sets = {
            judged.kind: {
                "judgements": len(judged.rows),
                "left_out": {"own_captions": judged.own, "captions_missing": judged.unknown},
                "metrics": figures,
            }
            for judged, figures in found
        }
        typer.echo(json.dumps({"meteor_stages": tables.stages, **sets}))
        return
    for judged, figures in found:
        columns = list(next(iter(figures.values())))
        table = Table("metric", *columns, title=f"{judged.kind}: {len(judged.rows):,} judgements")
        for name, values in figures.items():
            table.add_row(name, *(f"{values[column]:.3f}" for column in columns))
        Console().print(table)
        typer.echo(
            f"left out: {judged.own:,} of a photo's own captions, {judged.unknown:,} whose captions are in no file"
        )
    if any("meteor" in figures for _, figures in found):
        typer.echo(tables.describe())


def _correlate(judged: Judgements, only: list[str] | None, tables: MeteorTables) -> dict[str, dict[str, float]]:
    """Of each metric τ_b and τ_c with the mean of the judges, and with every judge's grade as a case of its own."""
    import numpy as np

    from saccade.core.progress import progress_bar
    from saccade.metrics.captions.cider import DocumentFrequencies
    from saccade.metrics.captions.report import caption_scores, caption_words
    from saccade.metrics.statistics import kendall

    said, wanted = [row.caption for row in judged.rows], [row.references for row in judged.rows]
    photos = dict(zip((row.image for row in judged.rows), wanted, strict=True))
    weights = DocumentFrequencies.of([[caption_words(text) for text in texts] for texts in photos.values()])
    with progress_bar(f"scoring ({judged.kind})") as tell:
        scores = caption_scores(said, wanted, weights, tables, only, tell)
    grades = np.array([row.scores for row in judged.rows])
    figures: dict[str, dict[str, float]] = {}
    for name, score in scores.items():
        mean = kendall(score.each, grades.mean(1))
        figures[name] = {"tau_b": mean.b, "tau_c": mean.c}
        if grades.shape[1] > 1:
            all_three = kendall(np.repeat(score.each, grades.shape[1]), grades.ravel())
            figures[name] |= {"tau_b_each": all_three.b, "tau_c_each": all_three.c}
    return figures
