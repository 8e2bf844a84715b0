"""`saccade import` and `saccade verify`: official checkpoints, and what they computed."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

from saccade.cli.options import say
from saccade.core.errors import SaccadeError, did_you_mean


def import_checkpoint(system: str, checkpoint: Path, *, out: Path, vocabulary: Path | None = None) -> None:
    """Turn an official checkpoint into a model folder (config.json, model.safetensors, vocabulary.json).

    The file is read with an allow-list: nothing in it is run.

    Example: saccade import scan model_best.pth.tar --vocabulary vocab/f30k_precomp_vocab.json -o models/scan-f30k
    Example: saccade import updown model-best.pth -o models/updown
    """
    from saccade.core.files import atomic_folder
    from saccade.interop import IMPORTERS
    from saccade.interop.words import read_vocabulary, vocabulary_beside

    if system not in IMPORTERS:
        raise SaccadeError(
            f'there is no importer for "{system}"{did_you_mean(system, IMPORTERS)} (there are: {", ".join(IMPORTERS)})'
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SaccadeError(f"{out} exists already: choose another folder")
    if not checkpoint.is_file():
        raise SaccadeError(f"{checkpoint} does not exist")
    words = read_vocabulary(vocabulary) if vocabulary is not None else vocabulary_beside(checkpoint.parent)
    if words is None and not IMPORTERS[system].brings_words:
        raise SaccadeError(
            f"{checkpoint} needs its vocabulary: give --vocabulary FILE (vocab.json, vocab.pkl, WORDMAP.json, "
            "word_counts.txt: the one that came with it)"
        )
    model = IMPORTERS[system](checkpoint, words)
    with atomic_folder(out) as temporary:
        model.save_pretrained(temporary)
    say(f"{system}: {model.parameter_count():,} parameters, {len(model.vocabulary):,} words, in {out}")


def verify_folder(system: str, folder: Path, *, json_file: Path | None = None, full: bool = False) -> None:
    """Reproduce what the official code computed, stage by stage; exit code 1 if any stage is off.

    Example: saccade verify scan tests/golden/scan
    """
    from saccade.core.files import write_json
    from saccade.interop import Stage, as_json, verify

    cases = list(verify(system, folder))
    table = Table(title=f"{system}: {folder}", title_justify="left")
    for heading in ("case", "stage", "compared", "max difference", "tolerance", "verdict"):
        table.add_column(heading, justify="left" if heading in ("case", "stage", "verdict") else "right")
    for case in cases:
        groups: dict[str, list[Stage]] = {}
        for stage in case.stages:
            kind = stage.stage if full or not stage.holds or stage.excuse else stage.stage.split("__")[0]
            groups.setdefault(kind, []).append(stage)
        for kind, stages in groups.items():
            worst = max(stages, key=lambda s: s.difference / s.tolerance if s.tolerance else s.difference)
            holds = all(s.holds for s in stages)
            verdict = worst.excuse or ("holds" if holds else "FAILS")
            style = "dim" if worst.excuse else "green" if holds else "bold red"
            row = (case.name, kind, str(len(stages)), f"{worst.difference:.1e}", f"{worst.tolerance:.0e}")
            table.add_row(*row, f"[{style}]{verdict}[/]")
    Console().print(table)
    result = as_json(cases)
    if json_file:
        write_json(json_file, result)
    total, failed = len(result["stages"]), sum(not s["holds"] for s in result["stages"])
    typer.echo(f"{total - failed} of {total} stages hold in {len(cases)} cases")
    if failed:
        raise typer.Exit(1)
