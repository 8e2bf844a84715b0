"""`saccade parse` and `saccade graph`: the things, attributes and relations of sentences and of photos."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.tree import Tree

from saccade.cli.options import SIDE_ALONE, Device, escape, listed_photos, say
from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.language import Parse, Parser, SceneGraph

MAX_PRINTED_SENTENCES = 20
BATCH = 1024


def parse(
    text: list[str] | None = None,
    *,
    file: Path | None = None,
    parser: str = "rules",
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Which things does a sentence name, what are they like, and how do they stand to each other?

    Example: saccade parse "a brown dog in front of a wooden fence chases two cats" --picture graph.png
    """
    from saccade.explain.draw import check_format
    from saccade.language import load_parser

    if out is not None and out.suffix.lower() not in (".conllu", ".json"):
        raise SaccadeError(f"{out}: parses are written as .conllu (trees) or .json (scene graphs)")
    if picture is not None:
        check_format(picture, "a scene graph")
    sentences = [*(text or []), *(_lines(file) if file is not None else [])]
    if not any(sentence.strip() for sentence in sentences):
        raise SaccadeError('give at least one sentence, as in `saccade parse "a dog chases a cat"`, or --file')
    reader = load_parser(parser)
    parses = _parse_all(reader, sentences)
    console = Console()
    for sentence, parsed in list(zip(sentences, parses, strict=True))[:MAX_PRINTED_SENTENCES]:
        console.print(graph_tree(sentence, parsed.graph))
    if len(sentences) > MAX_PRINTED_SENTENCES:
        console.print(f"and {len(sentences) - MAX_PRINTED_SENTENCES:,} more")
    if out is not None:
        _write(out, reader.name, sentences, parses)
        say(f"{len(parses):,} {'parse is' if len(parses) == 1 else 'parses are'} in {out}")
    if picture is not None:
        from saccade.explain.panels.scene_graph import save_scene_graph

        save_scene_graph(parses[0].graph, picture, sentences[0])
        say(f"the picture is in {picture}")


def graph(
    photos: list[Path],
    *,
    extractor: str = "bottomup",
    out: Path | None = None,
    top: int = 10,
    device: Device = "auto",
) -> None:
    """The scene graph of a photo: its things, what they are like, and how they stand to each other.

    Example: saccade graph holiday.jpg --extractor bottomup:runs/detector -o graph.png
    """
    import numpy as np

    from saccade.core.files import write_json
    from saccade.explain.draw import check_format, save_drawing
    from saccade.explain.panels.scene_graph import draw_picture_graph
    from saccade.vision import load_extractor, open_picture

    files = listed_photos(photos)
    drawn = out is not None and out.suffix.lower() != ".json"
    if out is not None and drawn:
        check_format(out, "a scene graph", (".json",))
        if len(files) != 1:
            raise SaccadeError(f"{out}: a drawing shows one photo, there are {len(files)}; -o graphs.json takes many")
    network, console = load_extractor(extractor, device), Console()
    facts: list[dict[str, Any]] = []
    for file in files:
        picture = open_picture(file)
        size = picture.size
        found = network.graph([picture])[0].surest(top or None)
        facts.append({"photo": str(file), "extractor": extractor, **dict(zip(("width", "height"), size, strict=True))})
        facts[-1] |= found.to_json(*size)
        console.print(graph_tree(file.name, found.words(numbered=True)))
        if out is not None and drawn:
            picture.thumbnail((SIDE_ALONE, SIDE_ALONE))
            save_drawing(draw_picture_graph(np.asarray(picture), found), out, "a scene graph")
    if not network.has_relations:
        say(f'note: the extractor "{extractor}" names things but knows no relations', err=True)
    if out is not None and not drawn:
        write_json(out, {"pictures": facts})
    if out is not None:
        say(f"the {'picture is' if drawn else 'graphs are'} in {out}")


def _lines(file: Path) -> list[str]:
    from saccade.data.text_files import read_lines

    return [line.strip() for _, line in read_lines(file) if line.strip()]


def _parse_all(parser: Parser, sentences: Sequence[str]) -> list[Parse]:
    from saccade.core.progress import progress_bar

    found: list[Parse] = []
    with progress_bar("parsing") as tell:
        for start in range(0, len(sentences), BATCH):
            found += parser.parse(sentences[start : start + BATCH])
            if len(sentences) > BATCH:
                tell(len(found), len(sentences))
    return found


def graph_tree(title: str, graph: SceneGraph) -> Tree:
    """The things as branches, with what is said of each."""
    tree = Tree(f"[bold]{escape(title)}[/]")
    said: dict[Any, list[str]] = {thing: [] for thing in graph.objects}
    for attribute in graph.attributes:
        said[attribute.object].append(attribute.word)
    for thing in graph.objects:
        words = ", ".join(said[thing])
        branch = tree.add(f"[cyan]{escape(thing.name)}[/]" + (f"  [yellow]{escape(words)}[/]" if words else ""))
        for relation in graph.relations:
            if relation.subject == thing:
                phrase = " ".join(relation.object.words)
                branch.add(f"{escape(' '.join(relation.predicate))} [cyan]{escape(phrase)}[/]")
    if not graph.objects:
        tree.add("[dim]no things[/]")
    return tree


def _write(out: Path, name: str, sentences: Sequence[str], parses: Sequence[Parse]) -> None:
    from saccade.core.files import write_json
    from saccade.language.parsing.foreign import write_conllu

    if out.suffix.lower() == ".conllu":
        write_conllu(out, [parse for parse in parses if parse.tokens])
        return
    graphs = [{"text": text, **parse.graph.to_json()} for text, parse in zip(sentences, parses, strict=True)]
    write_json(out, {"parser": name, "sentences": graphs})
