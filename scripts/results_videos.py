"""Videos and sentences: writes docs/results/videos-DATA.{md,json}, and of the split hard videos-DATA-hard.

    python scripts/results_videos.py world_videos [--split hard] [--seeds 3] [--jobs 4] [--device cuda] [--only hgr …]
    python scripts/results_videos.py msvd --root data/msvd_vgg16
    python scripts/results_videos.py roles

Every run is `saccade train SYSTEM data=DATA` with its recipe and another seed, in a process of its own, `jobs` at once,
measured by `saccade eval` and by choices: a video, a sentence that is true of it, and the same made false. Both are
kept in --runs and not made again, so that a long table can be made in several goes (--only), and written from what is
there (--report). `roles` measures how well semantic roles are read: of the world's captions, which are known, and of
sentences whose roles a person wrote down (tests/language/role_sentences.txt).
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from results_answering import of_each_seed, saccade, table_parser
from rich.console import Console

from saccade.core.files import read_json, read_text, write_json, write_text
from saccade.data import CaptionedImages
from saccade.lab.reports import markdown_table
from saccade.language.parsing.roles import RoleGraph, RoleNode
from saccade.language.roles import shared_roles
from saccade.metrics import mean_and_spread
from saccade.models import Matcher, load_model
from saccade.tasks.evaluator import SplitForModels
from saccade.tasks.matching.evaluate import encode_all_images, encode_all_texts
from saccade.tasks.matching.refined import pair_scores
from saccade.training.run import load_run_config
from saccade.world.videos.captions import VideoCaption
from saccade.world.videos.films import FilmConfig, make_clips

SYSTEMS = {  # title, system, settings over its recipe
    "vse": ("pooled ([VSE++](../systems/vse.md))", "vse", []),
    "scan": ("[SCAN](../systems/scan.md), frames as regions", "scan", []),
    "hgr": ("[HGR](../systems/hgr.md)", "hgr", []),
    "hgr-event": ("HGR, the event alone", "hgr", ["levels=[event]"]),
    "hgr-no-reasoning": ("HGR, no reasoning", "hgr", ["graph_layers=0"]),
    "hgr-no-roles": ("HGR, no role vectors", "hgr", ["roles=none"]),
}
FIGURES = {
    "i2t_r1": "video→text R@1", "i2t_r5": "R@5", "i2t_r10": "R@10",
    "t2i_r1": "text→video R@1", "t2i_r5": "R@5", "t2i_r10": "R@10", "rsum": "rsum",
}  # fmt: skip
DATA = {"world_videos": "test", "msvd": "dev"}  # and the split that is measured
TITLES = {"world_videos": "The world's videos", "msvd": "MSVD, frames of VGG16"}
CHOICES = {
    "order": "order",
    "roles": "roles",
    "shuffled": "words shuffled",
    "action": "action",
}
ABOUT_CHOICES = {
    "order": "the order of two events exchanged",
    "roles": "who does it and to whom exchanged",
    "shuffled": "the same words in a random order",
    "action": "its verb replaced by that of another sentence",
}
CHECKED = Path(__file__).parents[1] / "tests" / "language" / "role_sentences.txt"
CHOSEN_TEXTS = 2000  # sentences that are made false, at most
console = Console()


@dataclass(frozen=True)
class Question:
    """A video, by its place, a true sentence and a false one."""

    image: int
    true: str
    false: str
    kind: str


# Choices


def of_world(pictures: int, seed: int, split: str) -> Iterator[Question]:
    """The world knows what is false: the order of events, or who does what to whom."""
    config = FilmConfig(videos=pictures, seed=seed, hard_groups=max(min(pictures // 20, 100), 1))
    for image, clip in enumerate(make_clips(config, split)):
        for caption in clip.captions:
            if caption.distractor is not None:
                yield Question(image, caption.text, caption.distractor, "roles" if caption.kind == "event" else "order")


def of_sentences(data: CaptionedImages, seed: int = 0) -> Iterator[Question]:
    """Made false by their roles: a verb's two sides exchanged, the verb replaced, all words shuffled."""
    draw = random.Random(seed)
    places = sorted(draw.sample(range(len(data.texts)), min(CHOSEN_TEXTS, len(data.texts))))
    graphs = shared_roles().read([data.texts[place] for place in places])
    verbs = sorted({graph.words(node) for graph in graphs for node in graph.nodes if _doing(graph, node)})
    for place, graph in zip(places, graphs, strict=True):
        image, words = int(data.image_of_text[place]), list(graph.tokens)
        true = " ".join(words)
        if (swapped := exchanged(graph)) is not None:
            yield Question(image, true, swapped, "roles")
        action = next((node for node in graph.nodes if _doing(graph, node)), None)
        if action is not None:
            other = draw.choice([verb for verb in verbs if verb != graph.words(action)])
            yield Question(
                image, true, " ".join([*words[: action.places[0]], other, *words[action.places[0] + 1 :]]), "action"
            )
        mixed = draw.sample(words, len(words))
        if mixed != words:
            yield Question(image, true, " ".join(mixed), "shuffled")


def _doing(graph: RoleGraph, node: RoleNode) -> bool:
    return node.is_action and len(node.places) == 1 and graph.words(node).endswith("ing")


def exchanged(graph: RoleGraph) -> str | None:
    """The sentence with the phrases of an action's ARG0 and ARG1 exchanged; None where there are no two to exchange."""
    for number, node in enumerate(graph.nodes):
        sides = {role: graph.nodes[entity] for action, entity, role in graph.edges if action == number}
        if not node.is_action or not {"ARG0", "ARG1"} <= sides.keys():
            continue
        first, second = sorted((sides["ARG0"].places, sides["ARG1"].places))
        whole = all(places == tuple(range(places[0], places[-1] + 1)) for places in (first, second))
        words = list(graph.tokens)
        texts = [words[places[0] : places[-1] + 1] for places in (first, second)]
        if whole and first[-1] < second[0] and texts[0] != texts[1] and "by" not in (texts[0][0], texts[1][0]):
            between = words[first[-1] + 1 : second[0]]
            return " ".join([*words[: first[0]], *texts[1], *between, *texts[0], *words[second[-1] + 1 :]])
    return None


@torch.no_grad()
def choices(folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """How often the true sentence scores higher, in per cent, by kind; a tie counts half."""
    model = load_model(folder, Matcher).to(arguments.device).eval()
    config = load_run_config(folder).data
    data: CaptionedImages = SplitForModels(config, arguments.split).regions_for(model, str(folder))
    if arguments.data == "world_videos":
        asked = list(of_world(config.pictures, config.seed, arguments.split))
    else:
        asked = list(of_sentences(data))
    images = encode_all_images(model, data)
    scores = []
    for texts in ([one.true for one in asked], [one.false for one in asked]):
        codes = encode_all_texts(model, texts)
        places = torch.tensor([one.image for one in asked], device=images.regions.device)
        scores.append(
            pair_scores(model, images, codes, places, torch.arange(len(texts), device=places.device)).double()
        )
    won = (scores[0] > scores[1]).double() + 0.5 * (scores[0] == scores[1])
    by_kind = defaultdict(list)
    for one, value in zip(asked, won.tolist(), strict=True):
        by_kind[one.kind].append(value)
    return {kind: 100 * sum(values) / len(values) for kind, values in by_kind.items()} | {
        f"{kind}_count": float(len(values)) for kind, values in by_kind.items()
    }


# The table


def run_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    folder: Path = arguments.runs / arguments.data / f"{name}-{seed}"
    return folder


def figures_of(name: str, seed: int, arguments: argparse.Namespace) -> Path:
    return run_of(name, seed, arguments).with_name(f"{name}-{seed}.{arguments.split}.json")


def train(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """One run in a process of its own, unless it is finished."""
    _, system, settings = SYSTEMS[name]
    folder = run_of(name, seed, arguments)
    if (folder / "last").exists():
        return
    root = [f"root={arguments.root}"] if arguments.root else []
    words = [system, f"data={arguments.data}", *root, *settings, "in_memory=true", f"trainer.seed={seed}"]
    words += [f"accelerator={arguments.device}", *arguments.settings, "-o", str(folder)]
    done = saccade(["train", *(["--resume", str(folder)] if folder.exists() else words)], folder.with_suffix(".log"))
    console.print(f"{folder.name}: {'trained' if done else f'failed, see {folder.name}.log'}", highlight=False)


def measure(name: str, seed: int, arguments: argparse.Namespace) -> None:
    """Its figures, unless they are there."""
    folder, figures = run_of(name, seed, arguments), figures_of(name, seed, arguments)
    if figures.exists() or not (folder / "last").exists():
        return
    words = ["eval", str(folder), "--split", arguments.split, "--json", str(figures), "--device", arguments.device]
    if not saccade(words, folder.with_suffix(".log")):
        console.print(f"{figures.name}: could not be measured, see the log", highlight=False)
        return
    kept = read_json(figures)
    write_json(figures, {**kept, "choices": choices(folder, arguments)})
    console.print(f"{figures.name}: done", highlight=False)


def report(arguments: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = {}
    chance: dict[str, float] = {}
    facts: Mapping[str, object] = {}
    devices = set()
    for name in SYSTEMS:
        for seed in range(arguments.seeds):
            path = figures_of(name, seed, arguments)
            if path.exists():
                kept = read_json(path)
                chance, facts = kept["results"]["chance"], kept["protocol"]
                (own,) = (figures for row, figures in kept["results"].items() if row != "chance")
                found.setdefault(name, []).append({**own, **kept["choices"]})
                devices.add(str(read_json(run_of(name, seed, arguments) / "environment.json")["device"]))
    if not found:
        console.print("no run is finished yet")
        return
    asked = [kind for kind in CHOICES if kind in next(iter(found.values()))[0]]
    columns = [*FIGURES, *asked]
    counts = next(iter(found.values()))[0]
    table = [["by chance", *(f"{chance[key]:.1f}" for key in FIGURES), *("50.0" for _ in asked), ""]]
    for name, runs in found.items():
        cells = [mean_and_spread([run[key] for run in runs]) for key in columns]
        table.append([SYSTEMS[name][0], *cells, str(len(runs))])
    said = "; ".join(f"*{CHOICES[kind]}*: {ABOUT_CHOICES[kind]} ({int(counts[f'{kind}_count']):,})" for kind in asked)
    command = f"python scripts/results_videos.py {arguments.data}"
    command += f" --root data/{arguments.root.name}" if arguments.root else ""
    command += f" --split {arguments.split}" if arguments.split != DATA[arguments.data] else ""
    command += f" --seeds {arguments.seeds} --device {arguments.device}"
    command += f" --settings {' '.join(arguments.settings)}" if arguments.settings else ""
    page = f"""# {TITLES[arguments.data]}{": " + arguments.split if arguments.split != DATA[arguments.data] else ""}

The **{arguments.split}** split: {_protocol(facts)}. Per cent, mean ± standard deviation over seeds;
[recall](../glossary.md#recall) both ways. The last columns are choices between a true sentence and the same made
false, of which chance has half right: {said}.

{markdown_table(["", *FIGURES.values(), *(CHOICES[kind] for kind in asked), "seeds"], table)}

Made by `{command}` on {" and ".join(sorted(devices))}.
"""
    name = f"videos-{arguments.data}" + (f"-{arguments.split}" if arguments.split != DATA[arguments.data] else "")
    write_text(arguments.out / f"{name}.md", page)
    kept = {"command": command, "device": sorted(devices), "split": arguments.split, "protocol": facts}
    write_json(arguments.out / f"{name}.json", {**kept, "chance": chance, "results": found})
    console.print(page, markup=False)


def _protocol(facts: Mapping[str, object]) -> str:
    queries, each, seconds = facts["queries"], facts["captions_each"], facts.get("seconds")
    assert isinstance(queries, Mapping)
    assert isinstance(each, list)
    length = f", {seconds[0]:.1f} to {seconds[2]:.1f} s long" if isinstance(seconds, list) else ""
    return (
        f"{queries['i2t']:,} videos{length}, {queries['t2i']:,} sentences ({each[0]} to {each[1]} a video), "
        f"ties {facts['ties']}"
    )


# Roles

Said = frozenset[tuple[str, str, str]]  # action, role, phrase; an action by itself has the role V


def read_checked(path: Path = CHECKED) -> list[tuple[str, str, Said]]:
    """Part, sentence and roles of every checked sentence."""
    found: list[tuple[str, str, set[tuple[str, str, str]]]] = []
    part = ""
    for line in read_text(path).splitlines():
        if line.startswith("# part:"):
            part = line.partition(":")[2].strip()
        elif line.startswith("  "):
            action, _, rest = line.strip().partition(": ")
            pairs = [entry.partition(" ")[::2] for entry in rest.split(", ")]
            found[-1][2].update({(action, "V", action), *((action, role, phrase) for role, phrase in pairs)})
        elif line and not line.startswith("#"):
            found.append((part, line, set()))
    return [(part, sentence, frozenset(roles)) for part, sentence, roles in found]


def said_by(graph: RoleGraph) -> Said:
    words = [graph.words(node) for node in graph.nodes]
    actions = {(word, "V", word) for word, node in zip(words, graph.nodes, strict=True) if node.is_action}
    return frozenset(actions | {(words[action], role, words[entity]) for action, entity, role in graph.edges})


def said_in_world(caption: VideoCaption) -> Said:
    words, found = caption.words, set()
    for clause in caption.clauses:
        verb = " ".join(words[clause.verb.start : clause.verb.end])
        found |= {(verb, role.name, " ".join(words[role.start : role.end])) for role in clause.roles}
    return frozenset(found)


def agreement(found: Sequence[Said], true: Sequence[Said]) -> dict[str, float]:
    """Sentences that are right in every role, precision and recall of roles, in per cent."""
    right = sum(len(one & other) for one, other in zip(found, true, strict=True))
    exact = sum(one == other for one, other in zip(found, true, strict=True))
    return {
        "sentences": float(len(true)),
        "exact": 100 * exact / len(true),
        "precision": 100 * right / max(1, sum(map(len, found))),
        "recall": 100 * right / max(1, sum(map(len, true))),
    }


def measure_roles(pictures: int = 2000) -> dict[str, dict[str, float]]:
    checked, reader = read_checked(), shared_roles()
    rows = {}
    for part, title in (("seen", "captions that the rules were written with"), ("unseen", "captions set apart")):
        sentences = [(sentence, roles) for own, sentence, roles in checked if own == part]
        found = [said_by(graph) for graph in reader.read([sentence for sentence, _ in sentences])]
        rows[title] = agreement(found, [roles for _, roles in sentences])
    config = FilmConfig(videos=pictures, hard_groups=max(min(pictures // 20, 100), 1))
    world = [caption for split in ("test", "hard") for clip in make_clips(config, split) for caption in clip.captions]
    found = [said_by(graph) for graph in reader.read([caption.text for caption in world])]
    rows["the world's captions"] = agreement(found, [said_in_world(caption) for caption in world])
    return rows


def report_roles(out: Path) -> None:
    rows = measure_roles()
    lines = [
        [title, f"{own['sentences']:.0f}", *(f"{own[key]:.1f}" for key in ("exact", "precision", "recall"))]
        for title, own in rows.items()
    ]
    page = f"""# Semantic roles

How well the rules of the package read who does what to whom ([role graphs](../parsing.md)), in per cent: sentences that
are right in every role, and precision and recall of roles, where the action, the role and all words of the phrase must
be right. The captions were written for this table, with the roles that a person gave them; no rule was changed for the
sake of the second part.

{markdown_table(["", "sentences", "all right", "precision", "recall"], lines)}

Made by `python scripts/results_videos.py roles`.
"""
    write_text(out / "roles.md", page)
    write_json(out / "roles.json", rows)
    console.print(page, markup=False)


def main() -> None:
    if sys.argv[1:2] == ["roles"]:
        report_roles(Path("docs/results"))
        return
    parser = table_parser(__doc__, "videos", DATA, SYSTEMS)
    arguments = parser.parse_args()
    arguments.split = arguments.split or DATA[arguments.data]
    (arguments.runs / arguments.data).mkdir(parents=True, exist_ok=True)
    wanted = [name for name in SYSTEMS if not arguments.only or name in arguments.only]
    if not arguments.report:
        of_each_seed(wanted, arguments, train)
        arguments.jobs = 1  # in this process, one after the other
        of_each_seed(wanted, arguments, measure)
    report(arguments)


if __name__ == "__main__":
    main()
