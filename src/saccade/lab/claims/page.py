"""The report of a claim: NAME.md, NAME.json, NAME.png and NAME-curves.png, and its row in the table of all claims."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import Any, get_args

import numpy as np

from saccade.core.files import read_json, read_text, write_json, write_text
from saccade.lab.claims.claim import Claim, claim_names, evaluator_for
from saccade.lab.claims.findings import Findings, SplitFindings
from saccade.lab.claims.plan import Request, data_defaults
from saccade.lab.claims.statistics import Comparison, Verdict
from saccade.lab.reports import FAINT, INK, colour, markdown_table, new_figure, quiet, save_figure
from saccade.metrics import mean_and_spread

BEGIN, END = "<!-- claims: begin -->", "<!-- claims: end -->"
EARLIER = "earlier.json"  # counts of verdicts under another rule
INDEX = f"# Claims\n\n{BEGIN}\n{END}\n"


def write_report(findings: Findings, request: Request, out: Path) -> None:
    """Page, figures and picture of one claim."""
    claim = findings.claim
    drawn = draw_claim(findings, out / f"{claim.name}.png")
    if not drawn:
        (out / f"{claim.name}.png").unlink(missing_ok=True)
    draw_curves(findings, out / f"{claim.name}-curves.png")
    write_json(out / f"{claim.name}.json", figures(findings, request))
    write_text(out / f"{claim.name}.md", page(findings, request, drawn))


def command_of(findings: Findings, request: Request) -> str:
    """The command that makes a report anew; photos are named where users keep them, not where they lay."""
    names = dict.fromkeys(split.data.name for split in findings.splits)
    extractors = dict.fromkeys(split.data.extractor for split in findings.splits if split.data.extractor)
    words = ["saccade claims", findings.claim.name, f"--seeds {request.seeds}", *(f"--data {name}" for name in names)]
    words += [f"--root data/{name}" for name in names if not name.startswith("world")]
    words += [f"--extractor {name}" for name in extractors]
    words += [f"--rate {rate:g}" for rate in request.rates]
    kinds = {str(facts.get("device", "cpu")).split()[0] for facts in findings.facts.values()}
    words += ["--device cuda"] if "cuda" in kinds else []
    return " ".join([*words, *map(shlex.quote, request.words)])


def figures(findings: Findings, request: Request) -> dict[str, Any]:
    """Everything of a report as plain values."""
    claim = findings.claim
    return {
        "claim": claim.name,
        "title": claim.title,
        "statement": claim.statement,
        "metric": claim.metric,
        "command": command_of(findings, request),
        "splits": [
            {
                "data": split.data.name,
                "extractor": split.data.extractor,
                "split": split.split,
                "verdict": split.verdict,
                "why": split.why,
                "chance": dict(one.chance) if (one := split.any_scores()) is not None else None,
                "variants": {
                    label: {str(seed): dict(one.figures) for seed, one in sorted(by_seed.items())}
                    for label, by_seed in split.scores.items()
                },
                "comparisons": [asdict(comparison) for comparison in split.comparisons],
            }
            for split in findings.splits
        ],
        "sides": [
            {
                "data": side.data.title,
                "variant": side.label,
                "tried": {str(rate): best for rate, best in side.tried.items()},
                "flat": side.flat,
                "runs": [run["run"] for run in side.runs],
            }
            for side in findings.sides
        ],
        "runs": {
            name: {key: value for key, value in facts.items() if key != "curve"}  # it is drawn, and kept with the run
            for name, facts in sorted(findings.facts.items())
        },
        "missing": dict(findings.missing),
        "published": [{**asdict(one), "values": dict(one.values)} for one in claim.published],
    }


def page(findings: Findings, request: Request, drawn: bool) -> str:
    claim = findings.claim
    parts = [
        f"# {claim.title}",
        f"> {claim.statement}",
        f"{claim.paper} ({claim.venue}). [How claims are measured and judged](index.md).",
        "\n".join(
            f"- {split.title}: **{split.verdict}**{f': {split.why}' if split.why else ''}" for split in findings.splits
        ),
        f"![Each variant's {claim.metric_name}]({claim.name}.png)" if drawn else "",
        claim.note,
        "## Variants",
        _variants(claim),
        *(part for split in findings.splits for part in _figures(claim, split)),
        *_differences(findings),
        *_training(findings),
        *_published(claim),
        "## How it was made",
        *_making(findings, request),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _variants(claim: Claim) -> str:
    rows = []
    for variant in claim.variants:
        words = [f"`{' '.join(variant.settings)}`"] if variant.settings else []
        words += [f"`{' '.join(given)}` on {data}" for data, given in variant.settings_on.items()]
        made = ", ".join(words) or "the recipe as it is"
        if variant.ensemble:
            made = f"similarities of {' and '.join(variant.ensemble)} averaged"
        if variant.figure is not None:
            made = f"no model: a {claim.metric_name} of {variant.figure:g}"
        rows.append([variant.label, variant.system if variant.trained else "", made])
    return markdown_table(["variant", "system", "settings"], rows, words=3)


def _figures(claim: Claim, split: SplitFindings) -> list[str]:
    some = split.any_scores()
    if some is None:
        return [f"## On {split.title}", "Not measured yet."]
    columns = claim.evaluator.shown(claim.metric)
    rows = []
    if some.chance:
        rows.append(["chance", *(f"{some.chance[column]:.1f}" for column in columns), ""])
    for label, by_seed in split.scores.items():
        if claim.variant(label).figure is not None:
            continue
        values = [split.figures(label, column) for column in columns]
        cells = [mean_and_spread(one) if one else "–" for one in values]
        rows.append([label, *cells, str(len(by_seed))])
    counts = ", ".join(f"{count:,} {what}" for what, count in some.counts.items())
    head = ["", *(claim.evaluator.metrics[column] for column in columns), "seeds"]
    return [
        f"## On {split.title}",
        f"{claim.evaluator.unit}, mean ± standard deviation over seeds ({counts}).",
        markdown_table(head, rows),
    ]


def _differences(findings: Findings) -> list[str]:
    found = [(split, one) for split in findings.splits for one in split.comparisons]
    if not found:
        return []
    rows = [[f"{one.better} > {one.worse}", split.title, one.verdict, *_tested(one)] for split, one in found]
    head = ["expected", "on", "verdict", "difference", "each seed", "95 % over pictures", "p, pictures", "p, seeds"]
    whole = (
        f"{findings.claim.metric_name} is a figure of a split as a whole and no sum over its pictures, so there is no "
        "test over pictures: the verdict rests on the seeds alone."
    )
    parts = [f"## Differences in {findings.claim.metric_name}", markdown_table(head, rows, words=3)]
    return [*parts, whole] if any(one.p_pictures is None for _, one in found) else parts


def _tested(one: Comparison) -> list[str]:
    spread = f" ± {one.spread:.1f}" if one.spread is not None else ""
    return [
        f"{one.mean:+.1f}{spread}",
        ", ".join(f"{value:+.1f}" for value in one.differences),
        f"{one.interval[0]:+.1f} … {one.interval[1]:+.1f}" if one.interval is not None else "–",
        _p(one.p_pictures) if one.p_pictures is not None else "–",
        _p(one.p_seeds) if one.p_seeds is not None else "–",
    ]


def _p(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def _training(findings: Findings) -> list[str]:
    """How far each side was trained, and what the held-out part said."""
    sides = [side for side in findings.sides if side.runs]
    if not sides:
        return []
    rows = []
    for side in sides:
        mark = dict.fromkeys([max(side.tried.values())], "**")
        tried = [f"{mark.get(best, '')}{best:.1f}{mark.get(best, '')} at {rate:g}" for rate, best in side.tried.items()]
        steps = [f"{run['best_step']:,}" for run in side.runs]
        end = "flat" if side.flat else "still rising"
        rows.append([side.data.title, side.label, ", ".join(tried), ", ".join(steps), end])
    metric = _selection(findings)
    head = ["on", "variant", f"best {metric} by learning rate", "steps to the best, each seed", "at the end"]
    return [
        "## Training",
        f"{metric} on the held-out part of the training split: it ends a run, says which model to keep and chooses the "
        "learning rate with the first seed ([the rule](index.md#how-a-side-is-trained)).",
        f"![{metric} on the held-out part against steps]({findings.claim.name}-curves.png)",
        markdown_table(head, rows, words=len(head)),
    ]


def _selection(findings: Findings) -> str:
    """What the held-out part is measured by, as readers know it."""
    names = evaluator_for(findings.claim.system).metrics
    return next(names[run["selection"]] for side in findings.sides for run in side.runs)


def _published(claim: Claim) -> list[str]:
    parts = []
    for one in claim.published:
        rows = [[label, f"{value:.1f}"] for label, value in one.values.items()]
        name = claim.evaluator.metrics[one.metric]
        parts += [f"{one.data}, {name}; from {one.source}:", markdown_table(["", name], rows)]
    intro = "Other data, other features, longer training: only the direction can be compared."
    return ["## Published", intro, *parts] if parts else []


def _making(findings: Findings, request: Request) -> list[str]:
    lines = [f"```console\n$ {command_of(findings, request)}\n```"]
    for name, extractor in {split.data.name: split.data.extractor for split in findings.splits}.items():
        defaults, system = data_defaults()[name], findings.claim.system
        lines.append(f"*{name}*: {defaults.note_for(system)}.")
        shared = " ".join(word for word in defaults.of(system, extractor) if not word.startswith("extractor="))
        lines.append(f"Settings of {system} that all its variants share there: `{shared}`.")
    if findings.facts:
        seconds = [float(facts["seconds"]) for facts in findings.facts.values() if "seconds" in facts]
        devices = sorted({str(facts.get("device", "unknown")) for facts in findings.facts.values()})
        took = f"; training took {min(seconds):.0f} to {max(seconds):.0f} s, beside others" if seconds else ""
        lines.append(f"{_runs(len(findings.facts))} on {' and '.join(devices)}{took}.")
    if findings.missing:
        lines.append(f"Missing: {_runs(len(findings.missing))}.")
        lines.append("\n".join(f"- `{name}`: {why}" for name, why in findings.missing.items()))
    return lines


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"


def write_index(out: Path) -> None:
    """Renew the table of all claims in index.md, between its markers, from the figures that lie beside it."""
    path = out / "index.md"
    text = read_text(path) if path.exists() else INDEX
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not found or not closed:
        before, after = f"{text.rstrip()}\n\n", "\n"
    write_text(path, f"{before}{BEGIN}\n{_overview(out)}\n{END}{after}")


def _overview(out: Path) -> str:
    reports = {name: read_json(out / f"{name}.json") for name in claim_names() if (out / f"{name}.json").exists()}
    verdicts = {name: {_title(split): split for split in report["splits"]} for name, report in reports.items()}
    columns = list(dict.fromkeys(title for by_split in verdicts.values() for title in by_split))
    rows = []
    for name, report in reports.items():
        marked = f"[{name}]({name}.md){'' if 'sides' in report else ' †'}"  # from before there was such a rule
        rows.append([marked, report["statement"], *(_verdict(verdicts[name].get(column)) for column in columns)])
    table = markdown_table(["claim", "it says", *columns], rows, words=2 + len(columns))
    return f"{_counts(out, reports)}\n\n{table}"


def _title(split: Mapping[str, Any]) -> str:
    """With the extractor of photos; reports of before there were several had the first."""
    extractor = split.get("extractor") or next(iter(data_defaults()[split["data"]].extractors), "")
    return f"{split['data']}, {split['split']}{extractor and f' ({extractor})'}"


def _counts(out: Path, reports: Mapping[str, Mapping[str, Any]]) -> str:
    """How many claims got which verdict, beside an earlier count if `earlier.json` has one."""
    now: dict[str, Counter[str]] = {}
    for report in reports.values():
        for split in report["splits"] if "sides" in report else ():  # others are from before there was such a rule
            now.setdefault(_title(split), Counter())[split["verdict"]] += 1
    counted = {"trained until flat": now}
    if (out / EARLIER).exists():
        earlier = read_json(out / EARLIER)
        counted = {earlier["trained"]: earlier["verdicts"], **counted}
    kinds: tuple[str, ...] = get_args(Verdict)[::-1]
    rows = [
        [title, how, *(str(some[title].get(kind, 0)) for kind in kinds)]
        for title in dict.fromkeys(title for some in counted.values() for title in some)
        for how, some in counted.items()
        if title in some
    ]
    return markdown_table(["on", "", *kinds], rows, words=2)


def _verdict(split: Mapping[str, Any] | None) -> str:
    if split is None:
        return ""
    differences = ", ".join(f"{one['mean']:+.1f}" for one in split["comparisons"])
    return f"{split['verdict']}{f' ({differences})' if differences else ''}"


PANEL_WIDTH, ROW_HEIGHT = 2.55, 0.46  # inches


def draw_claim(findings: Findings, path: Path) -> bool:
    """Draw what was measured; False, and no file, if that is nothing."""
    panels = [split for split in findings.splits if split.any_scores() is not None]
    if not panels:
        return False
    labels = [variant.label for variant in findings.claim.variants]
    longest = max(max(len(line) for line in fill(label, 24).splitlines()) for label in labels)
    left, above, below = 0.35 + 0.085 * longest, 0.62, 0.55
    size = left + PANEL_WIDTH * len(panels) + 0.15, above + below + ROW_HEIGHT * len(labels)
    figure = new_figure(size, dpi=192)
    for column, split in enumerate(panels):
        x = (left + PANEL_WIDTH * column) / size[0]
        height = ROW_HEIGHT * len(labels) / size[1]
        axes = figure.add_axes((x, below / size[1], (PANEL_WIDTH - 0.35) / size[0], height))
        _draw_panel(axes, split, labels, findings.claim.metric, named=column == 0)
    figure.text(left / size[0], 0.06 / size[1], findings.claim.metric_name, fontsize=8, color=FAINT, va="bottom")
    save_figure(figure, path)
    return True


def draw_curves(findings: Findings, path: Path) -> None:
    """Each side on the held-out part, a line a seed; a full dot is the model kept of a run that ended flat."""
    sides = [side for side in findings.sides if any(run.get("curve") for run in side.runs)]
    if not sides:
        path.unlink(missing_ok=True)
        return
    titles = list(dict.fromkeys(side.data.title for side in sides))
    labels = [variant.label for variant in findings.claim.variants]
    figure = new_figure((0.4 + 3.0 * len(titles), 2.9), dpi=110, layout="constrained")
    for axes, title in zip(figure.subplots(1, len(titles), squeeze=False)[0], titles, strict=True):
        lows = []
        for side in (side for side in sides if side.data.title == title):
            ink = colour(labels.index(side.label))
            for run in side.runs:
                steps, values = zip(*run["curve"], strict=True)
                lows.append(values[len(values) // 5])
                axes.plot(steps, values, color=ink, linewidth=1.1, alpha=0.8)
                inside = ink if run["flat"] else "white"
                axes.plot(run["best_step"], run["held_out"], "o", color=ink, markerfacecolor=inside, markersize=4.5)
            axes.plot([], [], color=ink, label=side.label)
        low, high = min(lows), axes.get_ylim()[1]
        axes.set_ylim(low - 0.05 * (high - low), high)  # the first rise from nothing would leave no room for the rest
        axes.set_title(fill(title, 26), loc="left", fontsize=9, color=INK, fontweight="bold")
        axes.set_xlabel("step", fontsize=8, color=FAINT)
        axes.set_ylabel(f"{_selection(findings)}, held out", fontsize=8, color=FAINT)
        quiet(axes)
        axes.legend(loc="lower right", fontsize=7, framealpha=0.75, edgecolor="none")
    save_figure(figure, path)


def _draw_panel(axes: Any, split: SplitFindings, labels: list[str], metric: str, named: bool) -> None:
    from matplotlib.ticker import MaxNLocator

    for row, label in enumerate(labels):
        values = split.figures(label, metric)
        ink = colour(row)
        if not values:
            axes.text(
                0.02, row, "not measured", transform=axes.get_yaxis_transform(), va="center", fontsize=7.5, color=FAINT
            )
            continue
        mean = float(np.mean(values))
        if len(values) > 1:
            spread = float(np.std(values, ddof=1))
            axes.plot(
                [mean - spread, mean + spread],
                [row, row],
                color=ink,
                linewidth=6,
                alpha=0.28,
                solid_capstyle="butt",
                zorder=2,
            )
        axes.plot([mean, mean], [row - 0.24, row + 0.24], color=ink, linewidth=2.2, zorder=3)
        offsets = np.linspace(-0.1, 0.1, len(values)) if len(values) > 1 else [0.0]
        axes.plot(
            values,
            row + np.asarray(offsets),
            "o",
            color=ink,
            markersize=4.2,
            markeredgecolor="white",
            markeredgewidth=0.7,
            zorder=4,
        )
        axes.annotate(f"{mean:.1f}", (mean, row - 0.27), fontsize=7.5, color=INK, ha="center", va="bottom")
    axes.set_ylim(len(labels) - 0.45, -0.62)
    axes.margins(x=0.14)
    low, high = axes.get_xlim()
    if high - low < 4:  # a spread of a point must not look like a gulf
        axes.set_xlim((low + high) / 2 - 2, (low + high) / 2 + 2)
    axes.set_yticks(range(len(labels)), [fill(label, 24) for label in labels] if named else [], fontsize=8.5)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    quiet(axes, grid="x")
    extractor = (split.data.extractor or "").partition("#")[0]  # how its maps are joined would not fit in
    title, under = f"{split.data.name}, {split.split}", [split.verdict, *filter(None, [extractor])]
    axes.set_title(title, loc="left", fontsize=9.5, color=INK, fontweight="bold", pad=16)
    axes.text(0, 1.0, " · ".join(under), transform=axes.transAxes, fontsize=8, color=FAINT, va="bottom")
