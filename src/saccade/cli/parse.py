"""`saccade parse` and `saccade graph`: the things, attributes and relations of sentences and of photos."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.tree import Tree

from saccade.cli.options import SIDE_ALONE, Device, escape, listed_photos, report_broken, say, without_broken
from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.data.store.manifest import Broken
    from saccade.language import Parse, Parser, SceneGraph
    from saccade.language.parsing.roles import RoleGraph

MAX_PRINTED_SENTENCES = 20
BATCH = 1024


def parse(
    text: list[str] | None = None,
    *,
    file: Path | None = None,
    parser: str = "rules",
    roles: bool = False,
    out: Path | None = None,
    picture: Path | None = None,
) -> None:
    """Which things does a sentence name, what are they like, and how do they stand to each other?

    With --roles: what happens, and who does what to whom, where, when and how.

    Example: saccade parse "a brown dog in front of a wooden fence chases two cats" --picture graph.png
    """
    from saccade.explain.draw import check_format
    from saccade.language import load_parser

    if out is not None and out.suffix.lower() not in ((".json",) if roles else (".conllu", ".json")):
        kinds = ".json (role graphs)" if roles else ".conllu (trees) or .json (scene graphs)"
        raise SaccadeError(f"{out}: parses are written as {kinds}")
    if picture is not None:
        check_format(picture, "a role graph" if roles else "a scene graph")
    sentences = [*(text or []), *(_lines(file) if file is not None else [])]
    if not any(sentence.strip() for sentence in sentences):
        raise SaccadeError('give at least one sentence, as in `saccade parse "a dog chases a cat"`, or --file')
    if roles:
        _parse_roles(sentences, parser, out, picture)
        return
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


def _parse_roles(sentences: Sequence[str], parser: str, out: Path | None, picture: Path | None) -> None:
    from saccade.core.files import write_json
    from saccade.language.roles import shared_roles

    graphs, console = shared_roles(parser).read(sentences), Console()
    for sentence, graph in list(zip(sentences, graphs, strict=True))[:MAX_PRINTED_SENTENCES]:
        console.print(role_tree(sentence, graph))
    if len(sentences) > MAX_PRINTED_SENTENCES:
        console.print(f"and {len(sentences) - MAX_PRINTED_SENTENCES:,} more")
    if out is not None:
        write_json(out, {" ".join(graph.tokens): graph.to_json() for graph in graphs})
        say(f"{len(graphs):,} role {'graph is' if len(graphs) == 1 else 'graphs are'} in {out}")
    if picture is not None:
        from saccade.explain.panels.role_graph import save_role_graph

        save_role_graph(graphs[0], picture)
        say(f"the picture is in {picture}")


def role_tree(title: str, graph: RoleGraph) -> Tree:
    """Actions as branches, with the entities that play a role for each; at last those that play none."""
    tree = Tree(f"[bold]{escape(title)}[/]")
    for number, node in enumerate(graph.nodes):
        if node.is_action:
            branch = tree.add(f"[yellow]{escape(graph.words(node))}[/]")
            for action, entity, role in graph.edges:
                if action == number:
                    branch.add(f"{role}  [cyan]{escape(graph.words(graph.nodes[entity]))}[/]")
    joined = {entity for _, entity, _ in graph.edges}
    for number, node in enumerate(graph.nodes):
        if not node.is_action and number not in joined:
            tree.add(f"{node.role}  [cyan]{escape(graph.words(node))}[/]")
    if not graph.nodes:
        tree.add("[dim]no actions and no things[/]")
    return tree


def graph(
    photos: list[Path],
    *,
    extractor: str = "bottomup",
    out: Path | None = None,
    top: int = 10,
    device: Device = "auto",
) -> None:
    """The scene graph of a photo: its things, what they are like, and how they stand to each other.

    A photo that cannot be read is reported on standard error; the others go on, and the exit code is 2.

    Example: saccade graph holiday.jpg --extractor bottomup:runs/detector -o graph.png
    """
    from saccade.core.files import write_json
    from saccade.explain.draw import check_format, save_drawing
    from saccade.explain.panels.scene_graph import draw_picture_graph
    from saccade.features.decoding import ShownPhoto, open_shown
    from saccade.vision import load_extractor

    files = listed_photos(photos)
    drawn = out is not None and out.suffix.lower() != ".json"
    if out is not None and drawn:
        check_format(out, "a scene graph", (".json",))
        if len(files) != 1:
            raise SaccadeError(f"{out}: a drawing shows one photo, there are {len(files)}; -o graphs.json takes many")
    network, console = load_extractor(extractor, device), Console()

    def graphs() -> Iterator[tuple[Tree, dict[str, Any]] | Broken]:
        with closing(open_shown(files, network.prepare, SIDE_ALONE, most=1)) as opened:
            for photo in opened:
                if not isinstance(photo, ShownPhoto):
                    yield photo
                    continue
                found = network.graph([photo.pixels])[0].surest(top or None)
                if out is not None and drawn:
                    save_drawing(draw_picture_graph(photo.picture, found), out, "a scene graph")
                size = {"width": photo.width, "height": photo.height}
                facts = {"photo": str(photo.file), "extractor": extractor, **size}
                tree = graph_tree(photo.file.name, found.words(numbered=True))
                yield tree, facts | found.to_json(photo.width, photo.height)

    done, broken = without_broken(graphs(), "reading", len(files))
    for tree, _ in done:
        console.print(tree)
    if not done:
        report_broken(broken, len(files))
    if not network.has_relations:
        say(f'note: the extractor "{extractor}" names things but knows no relations', err=True)
    if out is not None and not drawn:
        write_json(out, {"pictures": [facts for _, facts in done]})
    if out is not None:
        say(f"the {'picture is' if drawn else 'graphs are'} in {out}")
    report_broken(broken, len(files))


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
