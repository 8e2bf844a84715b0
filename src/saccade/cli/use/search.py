"""`saccade index`: encode photos, videos or features once; `saccade search`: find them by sentences, and see why."""

from __future__ import annotations

import gc
import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from saccade.cli import described
from saccade.cli.options import (
    Device,
    default_model,
    escape,
    note_unknown,
    report_broken,
    report_passed_over,
    say,
)
from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.search.client import SomeSearcher
    from saccade.search.query import Found, Query


RERANKED = 64  # pictures that --rerank puts in another order, where --candidates does not say


class CodeType(str, Enum):
    """How codes are kept."""

    int8 = "int8"
    float16 = "float16"


class BuildByDefault(TyperGroup):
    """`saccade index PHOTOS -o INDEX` is `saccade index build PHOTOS -o INDEX`."""

    default = "build"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=BuildByDefault,
    help="Encode photos, videos or features once, to be searched by sentences from then on.\n\n"
    "`saccade index PHOTOS -o INDEX` makes an index or brings it up to date; the other commands look after one.",
    no_args_is_help=True,
)


@app.command()
@described
def build(
    sources: list[Path],
    *,
    out: Path = Path("index"),
    model: str | None = None,
    codes: CodeType = CodeType.int8,
    metadata: Path | None = None,
    no_wait: bool = False,
    workers: int | None = None,
    ray: str | None = None,
    device: Device = "auto",
    as_json: bool = False,
) -> None:
    """Make an index of photos, videos or features, or bring it up to date.

    The same command again touches what changed: a file of the same size and time is left alone, one of another time is
    read if its content differs, a renamed one keeps its codes, and what is gone from the folder goes from the index.
    Stopped or killed, what was committed stays, and the same command goes on. One process writes at a time; searches go
    on meanwhile, on what was there before.

    Example: saccade index photos/ -o index

    Example: saccade index videos/ -o films --model runs/hgr

    Example: saccade index features -o index --model scan-flickr8k

    Example: saccade index photos/ -o index --model hf:google/siglip2-base-patch16-224

    Example: saccade index photos/ -o index --ray auto --workers 8
    """
    from collections import Counter

    from saccade.core.interrupt import advise
    from saccade.core.progress import progress_bar
    from saccade.search.index import CONTENTS, Index
    from saccade.search.metadata import read_metadata

    own, kinds = read_metadata(metadata) if metadata is not None else ({}, {})

    def waiting() -> None:
        if no_wait:
            raise SaccadeError(f"another process is writing {out}")
        say(f"another process is writing {out}: waiting for it", err=True)

    for place in sources:
        if not place.exists():
            raise SaccadeError(f"{place} does not exist")
    advise(f"the same command goes on with {out}")
    if (out / CONTENTS).exists():
        index = Index.open(out, write=True, waiting=waiting)
        made_with = index.settings.model
        if model is not None and model != made_with and Path(model).absolute() != Path(made_with):
            index.close()
            raise SaccadeError(f"{out} was made with {made_with}, not with {model}: give another folder with -o")
        index.matcher(device)
    else:
        index = Index.create(
            out, model or default_model(), codes=codes.value, extra=kinds, device=device, waiting=waiting
        )
    passed_over = Counter[str]()
    with index, progress_bar("indexing") as progress, ExitStack() as stack:
        encoder = None
        if ray is not None:
            from saccade.search.sharded import RayEncoder

            encoder = RayEncoder(index, address=ray, workers=workers, device=device)
            stack.callback(encoder.close)
        done = index.update(
            sources, metadata=own, progress=progress, workers=workers, passed_over=passed_over, encoder=encoder
        )
        count = len(index)
    report_passed_over(passed_over)
    if as_json:
        typer.echo(json.dumps({**asdict(done), "pictures": count}))
    else:
        say(
            f"{out}: {count:,} in all; {done.added:,} added, {done.updated:,} changed, {done.deleted:,} gone, "
            f"{done.unchanged:,} as before"
        )
    report_broken(done.unreadable, len(done.unreadable) + done.added + done.updated + done.unchanged)


@app.command()
@described
def copy(index: Path, address: str, *, maxsim: bool = False) -> None:
    """Copy an index elsewhere, to be searched there: to object storage, a Qdrant server, or PostgreSQL with pgvector.

    The rows go with their codes, metadata and thumbnails, under a new name; `saccade search ADDRESS` then takes
    candidates from there and scores them here. A key for Qdrant is read from QDRANT_API_KEY.

    Example: saccade index copy index qdrant+http://localhost:6333/photos

    Example: saccade index copy index s3://bucket/photos

    Example: saccade index copy index "postgresql://me@localhost/pictures?table=photos"
    """
    from saccade.core.progress import progress_bar
    from saccade.search.engines import copy_index, is_address
    from saccade.search.engines.postgres import hidden_password
    from saccade.search.index import Index

    if not is_address(address):
        raise SaccadeError(
            f"{address}: s3://BUCKET/NAME, qdrant+http://HOST:PORT/NAME, qdrant-edge:FOLDER or "
            "postgresql://USER@HOST/DATABASE?table=NAME was expected"
        )
    with Index.open(index) as opened, progress_bar("copying") as progress:
        count = copy_index(opened, address, maxsim, progress)
    say(f"{hidden_password(address)}: {count:,} copied")


@app.command()
@described
def stats(index: Path, *, as_json: bool = False) -> None:
    """How many pictures an index has, of which model, how large it is, and which columns --where may name.

    Example: saccade index stats index
    """
    from saccade.search.index import Index

    with Index.open(index) as opened:
        found = opened.stats()
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    table = Table(show_header=False)
    kinds = ", ".join(f"{count:,} {kind}s" for kind, count in found.kinds.items()) or "nothing yet"
    for name, value in (
        ("holds", kinds.replace("regionss", "pictures as regions alone")),
        ("model", found.model),
        ("codes", f"{found.regions:.0f} regions of {found.dim} numbers a picture, {found.codes}"),
        ("on disk", f"{found.bytes / 1e6:,.1f} MB, {found.bytes_per_picture / 1e3:,.1f} KB a picture"),
        ("version", f"{found.version}, in {found.fragments} file{'s' if found.fragments != 1 else ''}"),
        ("columns", ", ".join(found.columns)),
    ):
        table.add_row(name, escape(value))
    Console().print(table)
    if found.evaluation:
        say(f"saccade index eval {index} measured its two stages on {found.evaluation['pictures']:,} pictures")


@app.command()
@described
def check(index: Path) -> None:
    """Read every row of an index and compare it with its checksum; exit code 1 if one is damaged.

    Example: saccade index check index
    """
    import subprocess
    import sys

    from saccade.search.index import IndexSettings

    IndexSettings.load(index)
    # In a process of its own: of some damage Lance ends the process that reads it.
    words = [sys.executable, "-c", "from saccade.search.index import check_main; check_main()", str(index)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        say(f"{index}: a file of its table is damaged, so that Lance cannot go on (exit code {done.returncode})")
        raise typer.Exit(1)
    count, problems = json.loads(done.stdout.splitlines()[-1])
    for problem in problems[:20]:
        say(problem)
    if problems:
        say(f"{len(problems):,} problems in {count:,} rows: index the files again, or delete the rows", err=True)
        raise typer.Exit(1)
    say(f"{index}: {count:,} rows, all as they were written")


@app.command()
@described
def compact(index: Path, *, grace: float = 3600.0) -> None:
    """Make few large files of many small ones, and remove versions that no search can still be reading.

    Example: saccade index compact index
    """
    from saccade.search.index import Index

    with Index.open(index, write=True, waiting=lambda: say(f"another process is writing {index}", err=True)) as opened:
        before = opened.stats()
        opened.compact(grace)
        opened.refresh()
        after = opened.stats()
    say(
        f"{index}: {before.bytes / 1e6:,.1f} → {after.bytes / 1e6:,.1f} MB, {before.fragments} → {after.fragments} "
        f"file{'s' if after.fragments != 1 else ''}; versions younger than {grace:g} s stay for whoever reads them"
    )


@app.command()
@described
def delete(index: Path, ids: list[str]) -> None:
    """Remove pictures from an index by their ids; the files stay.

    Example: saccade index delete index holiday/beach.jpg
    """
    from saccade.search.index import Index

    with Index.open(index, write=True, waiting=lambda: say(f"another process is writing {index}", err=True)) as opened:
        count = opened.delete(ids)
    say(f"{index}: {count:,} of {len(ids):,} removed")
    if count < len(set(ids)):
        raise typer.Exit(2)


@app.command(name="eval")
@described
def evaluate(
    index: Path,
    *,
    file: Path | None = None,
    model: str | None = None,
    at: int = 10,
    count: int = 50,
    maxsim: bool = False,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Measure both stages of a search on your own index: what the candidates lose, and what each stage takes.

    Every sentence is searched by scoring all pictures, and then with more and more candidates. Without a file of
    sentences, words that the model knows are searched for. The result is kept in the index; the search page shows it.

    Example: saccade index eval index -f sentences.txt

    Example: saccade index eval index -f sentences.txt --maxsim
    """
    from saccade.search.index import Index
    from saccade.search.measure import evaluate as measure
    from saccade.search.measure import plain_sentences, save_evaluation
    from saccade.search.searcher import Searcher

    with Index.open(index) as opened:
        searcher = Searcher(opened, model, device)
        texts = read_queries(file) if file is not None else plain_sentences(searcher.matcher.model.vocabulary.words)
        found = measure(searcher, texts[: count or None], at, maxsim=maxsim)
        if opened.is_own and not maxsim:  # the page shows what a search does that is not told otherwise
            save_evaluation(opened.folder, found)
    if as_json:
        typer.echo(json.dumps(asdict(found)))
        return
    table = Table(
        title=f"{found.pictures:,} pictures, {found.queries} sentences, best {found.top}", title_justify="left"
    )
    for heading in ("candidates", f"recall@{found.top}", "same first", "ms", "of it: read, candidates, scores, words"):
        table.add_column(heading, justify="right")
    for row in found.rows:
        parts = " + ".join(f"{row.stages[name]:.1f}" for name in ("read", "candidates", "scores", "words"))
        table.add_row(f"{row.candidates:,}", f"{row.recall:.3f}", f"{row.first:.3f}", f"{row.milliseconds:.1f}", parts)
    table.add_row("all", "1.000", "1.000", f"{found.exact_milliseconds:.1f}", "")
    Console().print(table)


def search(
    index: str,
    text: str = "",
    *,
    plus: list[str] | None = None,
    minus: list[str] | None = None,
    like: str | None = None,
    region: str | None = None,
    where: str = "",
    file: Path | None = None,
    top: int = 20,
    candidates: int | None = None,
    exact: bool = False,
    maxsim: bool = False,
    explain: Path | None = None,
    model: str | None = None,
    rerank: str | None = None,
    ray: str | None = None,
    shards: int | None = None,
    as_json: bool = False,
    device: Device = "auto",
) -> None:
    """Find the pictures or videos of an index that fit a sentence, and show why.

    In the sentence, -word and -"several words" must not fit. Beside the score stands how likely a picture fits, if the
    model was calibrated; below the line probably nothing does.

    Example: saccade search index "two people ride horses on the beach" --explain why.html

    Example: saccade search index "a dog" --not snow --where "year >= 2020 AND folder LIKE 'holiday%'"

    Example: saccade search index --like photo.jpg --region 0.1,0.2,0.5,0.9

    Example: saccade search index -f sentences.txt --json

    Example: saccade search siglip-index "a dog in the snow" --rerank scan-index

    Example: saccade search "postgresql://me@localhost/pictures?table=photos" "a dog" --model scan-flickr8k

    With --ray every picture is scored, by processes that each hold a part of the index; what did not answer is said,
    and the exit code is 3.
    """
    from saccade.core.files import check_writable

    gc.disable()  # PyTorch and LanceDB make millions of objects as they come, and nothing to collect
    import saccade.search.searcher  # noqa: F401
    from saccade.search.client import open_searcher, open_second
    from saccade.search.engines import is_address
    from saccade.search.index import is_owned
    from saccade.search.query import Query
    from saccade.search.table import import_lancedb

    import_lancedb()
    gc.freeze()
    gc.unfreeze()  # back among the oldest objects, which are not looked through again for every few new ones
    gc.enable()
    check_writable(explain)
    if explain is not None and explain.suffix.lower() != ".html":
        raise SaccadeError(f"--explain {explain}: a page is written, its name must end in .html")
    if file is not None and (text or like):
        raise SaccadeError("give a sentence or a picture, or a file of sentences, not both")
    texts = read_queries(file) if file is not None else [text]
    base = Query(
        plus=tuple(plus or ()),
        minus=tuple(minus or ()),
        region=read_region(region),
        where=where,
        top=top or 1,
        candidates=candidates,
        exact=exact,
        maxsim=maxsim,
    )
    queries = [replace(Query.parse(one, base), like=None if like is None else Path(like)) for one in texts]
    for query in queries:
        query.check()
    if shards is not None and ray is None:
        raise SaccadeError("--shards says into how many parts --ray cuts an index: give --ray too")
    with open_searcher(index, model, device, ray, shards) as (searcher, known), ExitStack() as stack:
        if top == 0:
            if is_address(str(index)):
                raise SaccadeError("--top 0 asks for all pictures, and an engine is asked for some: give a number")
            top = max(1, len(known))
            queries = [replace(query, top=top) for query in queries]
        queries = [replace(q, like=None, like_id=str(q.like)) if _is_known(q, known) else q for q in queries]
        second = None if rerank is None else open_second(rerank, device, stack)
        more = max(candidates or RERANKED, top) if second is not None else top
        found = searcher.search_many([replace(query, top=more) for query in queries])
        if second is not None:
            from saccade.search.engines.searcher import rerank as reordered

            own = not is_address(index) and is_owned(Path(index))
            found = [reordered(one, query, second, str(rerank), own) for query, one in zip(queries, found, strict=True)]
        if explain is not None:
            _write_page(searcher, queries, found, explain)
    if as_json:
        answers = [_plain(query, one) for query, one in zip(queries, found, strict=True)]
        typer.echo(json.dumps(answers if file is not None else answers[0], default=str, ensure_ascii=False))
    else:
        for query, one in zip(queries, found, strict=True):
            _print(query, one, titled=file is not None)
    if explain is not None:
        say(f"the page is in {explain}", err=as_json)
    for sentence in dict.fromkeys(sentence for one in found for sentence in one.missing):
        say(f"the answer is not complete: {sentence}", err=True)
    if any(one.missing for one in found):
        raise typer.Exit(3)


def _is_known(query: Query, known: Mapping[str, int]) -> bool:
    """Whether the picture to go by is no file here, but one of the index."""
    return isinstance(query.like, Path) and not query.like.exists() and str(query.like) in known


def read_queries(file: Path) -> list[str]:
    """One sentence a line. Raises: SaccadeError if there is none."""
    from saccade.core.files import read_text

    lines = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    if not lines:
        raise SaccadeError(f"{file} holds no sentence, one a line was expected")
    return lines


def read_region(text: str | None) -> tuple[float, float, float, float] | None:
    if text is None:
        return None
    try:
        x1, y1, x2, y2 = map(float, text.split(","))
    except ValueError as error:
        raise SaccadeError(f"--region {text}: x1,y1,x2,y2 in 0..1 was expected, 0.1,0.2,0.5,0.9 for one") from error
    return x1, y1, x2, y2


def _plain(query: Query, found: Found) -> dict[str, Any]:
    return {"query": " ".join(query.texts), **asdict(found)}


def _print(query: Query, found: Found, titled: bool) -> None:
    title = " · ".join((*query.positive, *(f"not {text}" for text in query.minus))) if titled else ""
    table = Table(title=escape(title), title_justify="left") if title else Table()
    table.add_column("picture", overflow="fold")
    for heading in ("score", *(["fits"] if any(hit.probability is not None for hit in found.hits) else [])):
        table.add_column(heading, justify="right")
    if any(hit.words for hit in found.hits):
        table.add_column("words, and how well each was found", overflow="fold")
    below = False
    for hit in found.hits:
        if hit.probability is not None and hit.probability < 0.5 and not below:
            below = True
            if hit is not found.hits[0]:
                table.add_section()
        cells = [escape(hit.id), f"{hit.score:.3f}"]
        if hit.probability is not None:
            cells.append(f"{100 * hit.probability:.0f} %")
        if hit.words:
            cells.append(
                escape(" ".join(f"{w.word} {w.contribution:.2f}" if w.known else f"({w.word})" for w in hit.words))
            )
        table.add_row(*cells)
    Console().print(table)
    note_unknown(found.unknown)
    if not found.hits:
        say("nothing was found")
    elif not found.fits:
        say("probably nothing here fits")
    kind = "every picture scored" if found.exact else "two stages"
    say(f"{len(found.hits):,} of {found.total:,} in {1000 * sum(found.seconds.values()):.0f} ms ({kind})")


def _write_page(searcher: SomeSearcher, queries: Sequence[Query], found: Sequence[Found], path: Path) -> None:
    from saccade.explain import write_gallery

    explained = [
        replace(searcher.explain(hit.id, " ".join(query.positive)), title=hit.id)
        for query, one in zip(queries, found, strict=True)
        if query.positive
        for hit in one.hits
    ]
    if not explained:
        raise SaccadeError("--explain shows which words found which regions: it needs a sentence, and something found")
    write_gallery(explained, path, " · ".join(" ".join(query.positive) for query in queries)[:200])
