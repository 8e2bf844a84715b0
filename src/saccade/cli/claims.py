"""`saccade claims`: train and measure what papers claim, and write tables, plots and verdicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from saccade.cli.options import check_device
from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.lab.claims import Claim, Findings, Outcome


def claims(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME|KEY=VALUE]...",
            help="Which claims, or `all`; none lists them. KEY=VALUE words are settings for every run.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="How often each variant is trained, from other weights.", min=1)] = 3,
    data: Annotated[
        list[str] | None, typer.Option(help="What to measure on: world, flickr8k; may be given again.")
    ] = None,
    root: Annotated[Path, typer.Option(help="The folder of Flickr8k.")] = Path("data/flickr8k"),
    runs: Annotated[Path, typer.Option(help="Where trained runs are kept, for this claim and others.")] = Path(
        "runs/claims"
    ),
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for pages, figures and plots.")] = Path("claims"),
    jobs: Annotated[int, typer.Option(help="Runs at once, each in a process of its own.", min=1)] = 1,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no more runs after so many minutes; the next call goes on.", min=0)
    ] = None,
    lean: Annotated[bool, typer.Option("--lean", help="Keep what was measured of a run, not its weights.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Train nothing: write reports from what is there.")] = False,
    device: Annotated[
        str, typer.Option(help="Where the runs are trained: cpu, cuda, cuda:1 …; auto: on the GPU if there is one.")
    ] = "auto",
) -> None:
    """Put papers' claims to the test: train each variant over several seeds, compare them, say whether it holds.

    A variant that several claims share is trained once. A command that was stopped goes on when given again; with
    --report the pages are written anew without training. docs/claims/index.md has the rule of the verdicts.

    Example: saccade claims scan-attention scan-negatives --seeds 3 --jobs 2
    """
    from saccade.lab.claims import Request, claim_names, gather, load_claim, run_claims, write_index, write_report

    console = Console()
    chosen = [name for name in names or [] if "=" not in name]
    words = tuple(name for name in names or [] if "=" in name)
    if not chosen:
        if words:
            raise SaccadeError("name the claims that the settings are for, or `all`; `saccade claims` lists them")
        _list(console, [load_claim(name) for name in claim_names()])
        return
    wanted = claim_names() if "all" in chosen else dict.fromkeys(chosen)
    asked = [load_claim(name) for name in wanted]
    # a report can be written where the runs were not trained
    place = device if report and device != "auto" else check_device(device)
    request = Request(tuple(dict.fromkeys(data or ["world"])), seeds, words, root, place)
    if not report:
        from saccade.lab.workers import cores

        outcome = run_claims(asked, request, runs, jobs, max(1, cores() // jobs), minutes, lean, console)
        _tell(console, outcome)
    found = [gather(claim, request, runs) for claim in asked]
    if report and not any(split.comparisons for findings in found for split in findings.splits):
        raise SaccadeError(
            f"{runs} holds no runs of {', '.join(wanted)} with these settings, so no page was written; "
            "--report needs the --data, --root and KEY=VALUE words of the command that trained them"
        )
    for findings in found:
        write_report(findings, request, out)
        _show(console, findings)
    write_index(out)
    console.print(f"written: {out}/index.md and one page a claim", markup=False, highlight=False)


def _list(console: Console, known: list[Claim]) -> None:
    table = Table(title="Claims", title_justify="left")
    for heading in ("name", "it says", "paper"):
        table.add_column(heading, overflow="fold")
    for claim in known:
        table.add_row(claim.name, escape(claim.statement), escape(claim.venue))
    console.print(table)
    console.print("next: saccade claims scan-attention (on the world), or saccade claims all --help", highlight=False)


def _tell(console: Console, outcome: Outcome) -> None:
    if outcome.failed:
        console.print(f"{len(outcome.failed)} failed:", highlight=False)
        for name, why in outcome.failed.items():
            console.print(f"  {name}: {why}", markup=False, highlight=False, soft_wrap=True)
    if outcome.left:
        console.print(
            f"the time was up; runs not begun: {len(outcome.left)}; the same command goes on", highlight=False
        )


def _show(console: Console, findings: Findings) -> None:
    for split in findings.splits:
        differences = ", ".join(f"{one.better} > {one.worse} {one.mean:+.1f}" for one in split.comparisons)
        console.print(
            f"{findings.claim.name} on {split.title}: {split.verdict}{f' ({differences})' if differences else ''}",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
    if findings.missing:
        console.print(f"  runs still missing: {len(findings.missing)}, see its page", highlight=False)
