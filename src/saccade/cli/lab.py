"""The lab's verbs: `saccade demo`, `saccade leaderboard`, `saccade claims`, `saccade tune`, `saccade probe`."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from saccade.cli.options import (
    Device,
    check_device,
    escape,
    figure_table,
    is_data_word,
    run_data,
    say,
    sort_words,
    with_words,
)
from saccade.core.errors import SaccadeError
from saccade.core.text import escaped

if TYPE_CHECKING:
    from saccade.lab.claims.claim import Claim
    from saccade.lab.claims.findings import Findings
    from saccade.lab.claims.run import Outcome
    from saccade.lab.leaderboard.board import Board, First
    from saccade.lab.probe import ModelProbe, Questions


def demo(settings: list[str] | None = None, *, out: Path = Path("demo"), pictures: int = 2000, seed: int = 0) -> None:
    """See the idea work: make a world, train SCAN on it, search it by sentence, and show why each picture was found.

    Makes pictures with captions, turns them into regions, trains SCAN and a pooled baseline, measures both on ordinary
    pictures and on hard twins (the same words bound otherwise), and writes a page to look at: OUT/report.html. Takes
    about two minutes on two cores and needs no network.

    Example: saccade demo --out demo
    """
    from saccade.core.interrupt import advise
    from saccade.lab.demo import run_demo

    console = Console()
    advise("the same command begins the demo again, and finds in the cache what was made")
    start = time.perf_counter()
    path, summary = run_demo(settings or [], out, pictures, seed, console)
    console.print(f"\n{summary}", highlight=False)
    console.print(f"[bold]{escape(str(path))}[/bold]  ({time.perf_counter() - start:.0f} s in all)", highlight=False)


def leaderboard(
    models: list[str] | None = None,
    *,
    runs: list[Path] | None = None,
    split: str | None = None,
    ensembles: bool = False,
    first: str | None = None,
    rerank: int = 32,
    blend: float = 0.0,
    again: Path | None = None,
    device: Device = "auto",
    out: Path | None = None,
    json_file: Path | None = None,
    plot: Path | None = None,
) -> None:
    """Compare matching models on one data set: recall both ways, size, what an index keeps, time and memory.

    Runs that differ in their seed alone are one row, with mean ± standard deviation. Times are taken on this machine,
    so that they compare systems and not papers.

    Example: saccade leaderboard --runs runs/claims/world --ensembles -o docs/results/leaderboard-world.md
    """
    from saccade.core.files import read_json, write_json, write_text
    from saccade.lab.leaderboard.board import First
    from saccade.lab.leaderboard.page import board_figures, board_from, board_page, draw_board

    console = Console()
    if again is not None:
        if models or runs or first is not None:
            raise SaccadeError("--from shows what was measured before: give no models or runs with it")
        board, command = board_from(read_json(again), str(again))
    else:
        stage = None if first is None else First(first, rerank, blend)
        board, command = _measured(console, models or [], runs or [], split, ensembles, device, stage)
    console.print(_figures(board), _costs(board), sep="\n")
    if plot:
        draw_board(board, plot)
    if out:
        write_text(
            out, board_page(board, command, Path(os.path.relpath(plot, out.parent)).as_posix() if plot else None)
        )
    if json_file:
        write_json(json_file, board_figures(board, command))


def _measured(
    console: Console,
    given: list[str],
    runs: list[Path],
    split: str | None,
    ensembles: bool,
    device: str,
    first: First | None,
) -> tuple[Board, str]:
    """The board of these models, and the command that makes it anew."""
    from saccade.core.progress import progress_bar
    from saccade.lab.leaderboard.board import choose_contenders, measure_board
    from saccade.tasks.evaluator import SplitForModels
    from saccade.training.run import check_unseen

    named = {k: v.split(",") for k, _, v in (w.partition("=") for w in given if "=" in w and not is_data_word(w))}
    folders, words, split = sort_words([word for word in given if "=" not in word or is_data_word(word)], split)
    below = runs or ([] if folders or named or not Path("runs").is_dir() else [Path("runs")])
    data_name = next((w.partition("=")[2] for w in words if w.startswith(("data=", "data.name=", "name="))), None)
    entered = choose_contenders(folders, named, below, data_name)
    if entered.left_out:
        runs_left = f"{entered.left_out} run{'s' if entered.left_out > 1 else ''}"
        console.print(f"left out: {runs_left} on other data", highlight=False)
    config = with_words(entered.data, words)
    models = [folder for contender in entered.contenders for folder in contender.folders]
    models += [] if first is None else [first.folder]
    check_unseen(models, config, split or config.test_split, "compare on another split")
    with progress_bar("scoring") as tell:
        split_for_models = SplitForModels(config, split or config.test_split)
        board = measure_board(entered.contenders, split_for_models, device, ensembles, tell, first)
    return board, _command(given, below if runs else [], split, ensembles, device, first)


def _figures(board: Board) -> Table:
    """Means, and how far seeds lie apart in the first figure: a terminal is narrow. The page gives every spread."""
    from saccade.lab.leaderboard.page import best_cells
    from saccade.metrics import mean_and_spread

    title = f"{board.data}/{board.split}: {board.images:,} pictures, {board.texts:,} texts"
    table = figure_table(title, board.benchmark.narrow_headings)
    first, *others = metrics = list(board.benchmark.figures)
    for kind in ("single", "ensemble"):
        rows = board.of_kind(kind)
        best = best_cells(rows, metrics)
        for i, row in enumerate(rows):
            cells = [mean_and_spread([one[first] for one in row.figures])]
            cells += [f"{row.mean(metric):.1f}" for metric in others]
            cells = [f"[bold green]{cell}[/]" if (i, j) in best else cell for j, cell in enumerate(cells)]
            table.add_row(escape(row.name), *cells, end_section=i == len(rows) - 1)
    table.add_row("chance", *(f"{board.chance[metric]:.1f}" for metric in metrics))
    return table


def _costs(board: Board) -> Table:
    from saccade.lab.leaderboard.page import cost_cells

    headings = [column.heading for column in board.benchmark.costs.values()]
    table = figure_table(f"what it costs, on {board.device}", ("model", *headings))
    for row in board.rows:
        table.add_row(escape(row.name), *cost_cells(row, board.benchmark))
    return table


def _command(
    given: Sequence[str],
    below: Sequence[Path],
    split: str | None,
    ensembles: bool,
    device: str,
    first: First | None,
) -> str:
    """What makes the table anew; folders are named as given, data as a user would keep them."""
    words = [f"root=data/{Path(w[5:]).name}" if w.startswith("root=") else w for w in given if w[:6] != "split="]
    words += [word for folder in below for word in ("--runs", str(folder))]
    words += ["--split", split] if split else []
    words += ["--ensembles"] if ensembles else []
    if first is not None:
        words += ["--first", first.folder, "--rerank", str(first.count)]
        words += ["--blend", f"{first.blend:g}"] if first.blend else []
    words += ["--device", device] if device != "cpu" else []
    return shlex.join(["saccade", "leaderboard", *words])


def curves(runs: list[Path], *, out: Path = Path("curves.png")) -> None:
    """Draw how runs went: every loss they learned from, by objective, and every figure of the dev split.

    Example: saccade curves runs/interbert runs/interbert_matching -o curves.png
    """
    from saccade.core.files import check_writable
    from saccade.lab.curves import draw_run_curves

    check_writable(out)
    drawn = draw_run_curves(runs, out)
    say(f"{', '.join(drawn)}; the picture is in {out}")


def claims(
    names: list[str] | None = None,
    *,
    seeds: int = 3,
    data: list[str] | None = None,
    extractor: list[str] | None = None,
    rate: list[float] | None = None,
    root: Path = Path("data/flickr8k"),
    runs: Path = Path("runs/claims"),
    out: Path = Path("claims"),
    jobs: int = 1,
    minutes: float | None = None,
    lean: bool = False,
    report: bool = False,
    device: str = "auto",
) -> None:
    """Put papers' claims to the test: train each variant over several seeds, compare them, say whether it holds.

    Each is trained until a held-out part of the training split rises no more, at two learning rates of which that part
    chooses; a claim with a side that still rose at its last step is undecided. A variant that several claims share is
    trained once. A command that was stopped goes on when given again; with --report the pages are written anew without
    training. docs/claims/index.md has the rule of the verdicts.

    Example: saccade claims scan-attention scan-negatives --seeds 3 --jobs 2
    """
    from saccade.lab.claims.claim import claim_names, load_claim
    from saccade.lab.claims.findings import gather
    from saccade.lab.claims.page import write_index, write_report
    from saccade.lab.claims.plan import Request
    from saccade.lab.claims.run import run_claims

    console = Console()
    chosen = [name for name in names or [] if "=" not in name]
    words = tuple(name for name in names or [] if "=" in name)
    if not chosen:
        if words:
            raise SaccadeError("name the claims that the settings are for, or `all`; `saccade claims` lists them")
        _list(console, [load_claim(name) for name in claim_names()])
        return
    wanted = claim_names() if "all" in chosen else dict.fromkeys(chosen)
    chosen_claims = [load_claim(name) for name in wanted]
    # a report can be written where the runs were not trained
    place = device if report and device != "auto" else check_device(device)
    extractors, rates = tuple(dict.fromkeys(extractor or [])), tuple(dict.fromkeys(rate or []))
    request = Request(tuple(dict.fromkeys(data or ["world"])), seeds, words, root, place, extractors, rates)
    if not report:
        from saccade.core.interrupt import advise
        from saccade.lab.workers import cores

        advise("the same command goes on, with unfinished runs too")

        outcome = run_claims(chosen_claims, request, runs, jobs, max(1, cores() // jobs), minutes, lean, console)
        _report(console, outcome)
    found = [gather(claim, request, runs) for claim in chosen_claims]
    if report and not any(split.comparisons for findings in found for split in findings.splits):
        raise SaccadeError(
            f"{runs} holds no runs of {', '.join(wanted)} with these settings, so no page was written; "
            "--report needs the --data, --root and KEY=VALUE words of the command that trained them"
        )
    for findings in found:
        write_report(findings, request, out)
        _show(console, findings)
    write_index(out)
    console.print(f"written: {escaped(out)}/index.md and one page a claim", markup=False, highlight=False)


def _list(console: Console, known: list[Claim]) -> None:
    table = Table(title="Claims", title_justify="left")
    for heading in ("name", "it says", "paper"):
        table.add_column(heading, overflow="fold")
    for claim in known:
        table.add_row(claim.name, escape(claim.statement), escape(claim.venue))
    console.print(table)
    console.print("next: saccade claims scan-attention (on the world), or saccade claims all --help", highlight=False)


def _report(console: Console, outcome: Outcome) -> None:
    if outcome.failed:
        console.print(f"{len(outcome.failed)} failed:", highlight=False)
        for name, why in outcome.failed.items():
            console.print(escaped(f"  {name}: {why}"), markup=False, highlight=False, soft_wrap=True)
    if outcome.left:
        console.print(f"the time was up; runs not done: {outcome.left}; the same command goes on", highlight=False)


def _show(console: Console, findings: Findings) -> None:
    for split in findings.splits:
        differences = ", ".join(f"{one.better} > {one.worse} {one.mean:+.1f}" for one in split.comparisons)
        shown = f"{split.verdict}{f': {split.why}' if split.why else ''}{f' ({differences})' if differences else ''}"
        console.print(
            f"{findings.claim.name} on {split.title}: {shown}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if findings.missing:
        console.print(f"  runs still missing: {len(findings.missing)}, see its page", highlight=False)


def tune(
    plan: str, settings: list[str] | None = None, *, out: Path = Path("runs/tune"), trials: int | None = None
) -> None:
    """Search for settings, stage by stage, each choice a training run that is judged by the dev split.

    PLAN is `hierarchical` (each of its tasks alone, then all together) or a YAML file with a system and its stages. All
    choices of a stage are tried, or with --trials so many that Optuna draws. What is finished is not trained again.

    Example: saccade tune hierarchical data=world in_memory=true -o runs/tune
    """
    from saccade.core.interrupt import advise
    from saccade.lab.tune import best_words, read_plan, search_settings

    known = read_plan(plan)
    advise("the same command goes on, with an unfinished run too")
    console = Console()
    done = search_settings(known, settings or [], out, trials, console)
    best = shlex.join(["saccade", "train", known.system, *(settings or []), *best_words(known, done)])
    console.print(f"written: {escaped(out)}/results.md", markup=False, highlight=False)
    console.print(f"next: {escaped(best)}", markup=False, highlight=False, soft_wrap=True)


def probe(
    models: list[str],
    *,
    split: str | None = None,
    photos: int = 300,
    device: Device = "auto",
    out: Path | None = None,
) -> None:
    """Does a matcher bind words to things, and are its reasons its reasons?

    Four questions about photos with Flickr30k Entities. Binding: does a true caption score above itself with two nouns,
    two adjectives or the sides of a relation exchanged, or one noun replaced by another of its kind? Pointing: does the
    last word of a phrase point into the phrase's box? Reasons: does the score fall when the regions that the words
    point at are taken away first, and rise when they come first, more than in a random order? Entailment: does a
    sentence that the photo entails score above one that it contradicts? Give a pooled model (vse) too, to compare with.

    Example: saccade probe scan-flickr8k data=flickr8k root=data/flickr8k split=dev
    """
    from saccade.core.files import check_writable, write_json, write_text
    from saccade.core.progress import progress_bar
    from saccade.lab.probe import probe_figures, probe_models, probe_page
    from saccade.training.run import check_unseen

    folders, words, split = sort_words(models, split)
    if not folders:
        raise SaccadeError("name at least one matcher to probe, for one scan-flickr8k")
    config = with_words(run_data(folders[0]), words)
    split = split or config.dev_split
    check_unseen(folders, config, split, "probe it on another split")
    files = (out / "binding.md", out / "binding.json") if out else ()
    check_writable(*files)
    with progress_bar("probing") as tell:
        questions, found = probe_models(folders, config, split, photos, device, tell)
    Console().print(_answers(questions, found))
    if files:
        said = [f"root=data/{Path(w[5:]).name}" if w.startswith("root=") else w for w in words]
        command = shlex.join(["saccade", "probe", *folders, *said, f"split={split}", "--photos", str(photos)])
        write_text(files[0], probe_page(questions, found, command))
        write_json(files[1], probe_figures(questions, found, command))


def _answers(questions: Questions, found: Sequence[ModelProbe]) -> Table:
    """A column a model: there are more figures than a terminal has room for beside each other."""
    from saccade.lab.probe import show_areas

    title = f"{questions.data}/{questions.split}: {questions.photos:,} photos, {len(questions.foils):,} foils"
    table = figure_table(title, ("", *(one.name for one in found), "chance"))
    for kind in found[0].binding:
        cells = [f"{one.binding[kind].own.value:.1f}" for one in found]
        table.add_row(f"true caption wins: {kind}", *cells, "50.0")
        table.add_row("  with another photo", *(f"{one.binding[kind].blind.value:.1f}" for one in found), "50.0")
    table.add_section()
    if found[0].pointing:
        cells = [f"{one.pointing['all'].model:.1f}" for one in found]
        table.add_row("words point at their things", *cells, f"{found[0].pointing['all'].random:.1f}")
        table.add_row("  the middle of the photo", *[""] * len(found), f"{found[0].pointing['all'].middle:.1f}")
        table.add_section()
    areas = [show_areas(one.reasons) for one in found]
    for n, label in enumerate(("deletion: regions pointed at least", "insertion: most", "random regions")):
        table.add_row(label, *(each[n] for each in areas), "")
    table.add_section()
    if questions.entailment:
        cells = [f"{one.entailment.value:.1f}" if one.entailment else "–" for one in found]
        table.add_row("entailed above contradicted", *cells, "50.0")
    return table
