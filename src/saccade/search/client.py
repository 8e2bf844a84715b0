"""`saccade.open_index`: an index in Python and in notebooks, on this machine, in an engine, or behind a service.

>>> import saccade
>>> photos = saccade.open_index("index")  # or "qdrant+http://…", or "http://localhost:8000" of `saccade serve`
>>> found = photos.query("two people ride horses on the beach", top=3)
>>> found  # in a notebook: the pictures, each word lit where it attends as the pointer moves over it
>>> found[0].id, found[0].probability
>>> photos.explain(found[0].id, "a horse").save("why.png")
"""

from __future__ import annotations

import base64
import html
import io
import json
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
from PIL import Image

from saccade.core.errors import SaccadeError
from saccade.explain import Explanation
from saccade.search.query import Box, Found, Hit, Query, WordHit
from saccade.vision.pictures import Picture

if TYPE_CHECKING:
    from saccade.search.searcher import Searcher
    from saccade.search.sharded import RaySearcher
    from saccade.tasks.matching.task import PictureMatcher

    SomeSearcher: TypeAlias = Searcher | RaySearcher

SHOWN = 6  # pictures of an answer that a notebook shows with their words
MAX_ANSWER = 64 << 20  # bytes of a service's answer
MAX_SIDE = 4096  # pixels of a picture that a service sends
TIMEOUT_S = 60.0


class Answer(Sequence[Hit]):
    """What a query found, best first: `answer[0].id`. A notebook shows it as pictures."""

    def __init__(self, client: IndexClient, query: Query, found: Found) -> None:
        self.client, self.query, self.found = client, query, found

    def __len__(self) -> int:
        return len(self.found.hits)

    def __getitem__(self, place: Any) -> Any:
        return self.found.hits[place]

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.found.hits)

    def __repr__(self) -> str:
        told = [f"{len(self)} of {self.found.total:,} pictures"]
        for hit in self.found.hits[:20]:
            chance = "" if hit.probability is None else f"  {100 * hit.probability:3.0f} %"
            told.append(f"{hit.score:8.3f}{chance}  {hit.id}")
        if not self.found.fits:
            told.append("probably nothing here fits")
        return "\n".join([*told, *(f"not complete: {sentence}" for sentence in self.found.missing)])

    def explanations(self, most: int = SHOWN) -> list[Explanation]:
        """Why the best of them fit; of a query by picture alone, nothing."""
        text = " ".join(self.query.positive)
        if not text:
            return []
        found = [(hit, self.client.explain(hit.id, text)) for hit in self.found.hits[:most]]
        return [replace(one, title=hit.id) for hit, one in found]

    def page(self, most: int = SHOWN) -> str:
        """A whole HTML document of the best of them; it fetches nothing."""
        from saccade.explain.html.figure import write_page

        title = " · ".join(self.query.positive) or "Pictures like this one"
        if explained := self.explanations(most):
            underline = "the better the word found it"
            return write_page("gallery.html", title, intro="", explanations=explained, underline=underline)
        shown = "".join(
            f'<figure style="display:inline-block;margin:8px"><img alt="{html.escape(hit.id)}" height="200" '
            f'src="data:image/jpeg;base64,{base64.b64encode(self.client.thumbnail(hit.id)).decode()}">'
            f"<figcaption>{html.escape(hit.id)} · {hit.score:.3f}</figcaption></figure>"
            for hit in self.found.hits[:most]
        )
        style = "font:14px system-ui,sans-serif;color-scheme:light dark"
        return f'<!doctype html><title>{html.escape(title)}</title><body style="{style}">{shown or "Nothing found"}'

    def _repr_html_(self) -> str:
        """For notebooks: the page in a frame of its own, which can run its own script and nothing else."""
        shown = min(len(self), SHOWN)
        height = 120 if not shown else 560 if self.query.positive else 260
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{height}px;border:0" '
            f'title="What was found" srcdoc="{html.escape(self.page())}"></iframe>'
        )


class IndexClient(ABC):
    """What `saccade.open_index` gives; leaving its `with` block closes it."""

    def query(
        self,
        text: str = "",
        *,
        like: Picture | None = None,
        like_id: str = "",
        region: Box | None = None,
        plus: Sequence[str] = (),
        minus: Sequence[str] = (),
        where: str = "",
        top: int = 20,
        candidates: int | None = None,
        exact: bool = False,
    ) -> Answer:
        """Search by a sentence, in which -word must not fit, by a picture (a file, pixels, or one of the index by its
        id), or by a part of one."""
        given = Query(
            like=like,
            like_id=like_id,
            region=region,
            plus=tuple(plus),
            minus=tuple(minus),
            where=where,
            top=top,
            candidates=candidates,
            exact=exact,
        )
        asked = Query.parse(text, given)
        asked.check()
        return Answer(self, asked, self._search(asked))

    @abstractmethod
    def _search(self, query: Query) -> Found: ...

    @abstractmethod
    def explain(self, id: str, text: str) -> Explanation:
        """Which regions of a picture each word found: `.save("why.png")` draws it, or `.save("why.html")`."""

    @abstractmethod
    def thumbnail(self, id: str) -> bytes:
        """A small JPEG."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> IndexClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def open_searcher(
    place: Path | str, model: str | None = None, device: str = "cpu", ray: str | None = None, shards: int | None = None
) -> Iterator[tuple[SomeSearcher, Mapping[str, int]]]:
    """What answers queries (an index, its parts on a Ray cluster, or an engine), and the ids that are known here."""
    from saccade.search.engines import is_address, open_engine
    from saccade.search.index import Index
    from saccade.search.searcher import Searcher

    if is_address(str(place)):
        from saccade.search.engines.searcher import EngineSearcher

        if ray is not None:
            raise SaccadeError("--ray searches an index that all machines see, and an engine has processes of its own")
        with open_engine(place) as engine:
            yield EngineSearcher(engine, model, device), {}
        return
    with Index.open(place) as index:
        known = index.snapshot().place
        if ray is None:
            yield Searcher(index, model, device), known
            return
        from saccade.search.sharded import RaySearcher

        with RaySearcher(place, model, shards=shards, address=ray, device=device) as searcher:
            yield searcher, known


def open_second(place: str, device: str, stack: ExitStack) -> Searcher | PictureMatcher:
    """What puts candidates in another order: another index of the same pictures, or a model that looks at the files."""
    from saccade.search.index import CONTENTS, Index
    from saccade.search.searcher import Searcher
    from saccade.tasks.matching.task import PictureMatcher
    from saccade.tasks.predict import load

    if (Path(place) / CONTENTS).exists():
        return Searcher(stack.enter_context(Index.open(place)), None, device)
    return load(place, device, kind=PictureMatcher)


class LocalIndex(IndexClient):
    """An index in a folder, or in an engine by its address; the model runs here."""

    def __init__(self, place: Path | str, model: str | None = None, device: str = "cpu") -> None:
        self.place = str(place)
        with ExitStack() as stack:
            self.searcher: Any = stack.enter_context(open_searcher(place, model, device))[0]
            self._stack = stack.pop_all()

    def __repr__(self) -> str:
        return f"{self.place}: {len(self):,} pictures, {self.searcher.name}"

    def __len__(self) -> int:
        return len(self.searcher)

    def _search(self, query: Query) -> Found:
        found: Found = self.searcher.search(query)
        return found

    def explain(self, id: str, text: str) -> Explanation:
        found: Explanation = self.searcher.explain(id, text)
        return found

    def thumbnail(self, id: str) -> bytes:
        found: bytes = self.searcher.thumbnail(id)
        return found

    def close(self) -> None:
        self._stack.close()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A service does not send its clients, and their keys, elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RemoteIndex(IndexClient):
    """An index behind `saccade serve`: the service has the model and the pictures.

    `name` is one of its indices, where it has several; `key` one of its API keys.
    """

    def __init__(self, url: str, name: str = "", key: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc or parts.username is not None:
            raise SaccadeError(f"{url} is no address of a service: http://HOST:PORT was expected")
        self.url, self.key, self.timeout_s = url.rstrip("/"), key, timeout_s
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler())
        offered = self._json("/models").get("indices")
        known = {one["name"]: one for one in offered} if isinstance(offered, list) else {}
        if not known or (name and name not in known):
            raise SaccadeError(
                f"{self.url} has no index {name or 'to search'} (there are: {', '.join(known) or 'none'})"
            )
        self.facts = known[name or next(iter(known))]
        self.name = str(self.facts["name"])

    def __repr__(self) -> str:
        return f"{self.url}, {self.name}: {len(self):,} pictures, {self.facts.get('model')}"

    def __len__(self) -> int:
        return int(self.facts.get("pictures", 0))

    def _search(self, query: Query) -> Found:
        asked: list[tuple[str, Any]] = [("index", self.name), ("text", query.text), ("where", query.where)]
        asked += [("top", query.top)]
        if query.region is not None:
            asked.append(("region", ",".join(f"{side:g}" for side in query.region)))
        if query.like is not None:
            if query.plus or query.minus or query.exact or query.candidates:
                raise SaccadeError("a service takes a picture with one sentence and a condition alone")
            return _found(self._json("/search", upload=_jpeg(query.like), fields=asked))
        asked += [("plus", text) for text in query.plus] + [("minus", text) for text in query.minus]
        asked += [("like", query.like_id), ("candidates", query.candidates or 0), ("exact", str(query.exact).lower())]
        return _found(self._json(f"/search?{urlencode(asked)}"))

    def explain(self, id: str, text: str) -> Explanation:
        told = self._json(f"/explain?{urlencode({'index': self.name, 'id': id, 'text': text})}")
        try:
            words = told["words"]
            scores = [word["score"] for word in words]
            return Explanation(
                image=np.asarray(self._picture(id, told.get("picture"))),
                words=tuple(str(word["text"]) for word in words),
                weights=np.array(told["weights"], dtype=np.float64),
                boxes=np.array(told["boxes"], dtype=np.float64).reshape(-1, 4),
                score=float(told["score"]),
                word_score=None if None in scores else np.array(scores, dtype=np.float64),
                title=id,
                probability=told["probability"],
                unknown=frozenset(str(word["text"]) for word in words if not word["known"]),
                more=int(told["more"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SaccadeError(f"{self.url} gave no explanation that can be read") from error

    def _picture(self, id: str, frames: str | None) -> Image.Image:
        """The picture, or of a video the frames that an answer brings; the thumbnail if the file is gone."""
        try:
            if frames is not None:
                content = base64.b64decode(str(frames).partition(",")[2])
            else:
                content = self._get(f"/pictures/{quote(self.name)}/{quote(id)}")
        except SaccadeError:
            content = self.thumbnail(id)
        try:
            with Image.open(io.BytesIO(content), formats=["JPEG", "WEBP", "PNG"]) as image:
                if max(image.size) > MAX_SIDE:
                    raise SaccadeError(f'{self.url}: "{id}" is {image.size[0]} × {image.size[1]} pixels large')
                shown: Image.Image = image.convert("RGB")
                return shown
        except (OSError, SyntaxError, ValueError) as error:
            raise SaccadeError(f'{self.url}: "{id}" is no picture that can be read') from error

    def thumbnail(self, id: str) -> bytes:
        return self._get(f"/thumbnails/{quote(self.name)}/{quote(id)}")

    def close(self) -> None:
        """There is nothing to close: each question is a request of its own."""

    def _json(self, path: str, upload: bytes | None = None, fields: Sequence[tuple[str, Any]] = ()) -> dict[str, Any]:
        content = self._get(path, upload, fields)
        try:
            found = json.loads(content)
        except ValueError as error:
            raise SaccadeError(f"{self.url} is no service of Saccade: JSON was expected") from error
        if not isinstance(found, dict):
            raise SaccadeError(f"{self.url} is no service of Saccade: an object was expected")
        return found

    def _get(self, path: str, upload: bytes | None = None, fields: Sequence[tuple[str, Any]] = ()) -> bytes:
        """Raises: SaccadeError with the service's own sentence, if it refuses."""
        headers = {"Accept": "application/json, image/*"}
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        body = None
        if upload is not None:
            body, headers["Content-Type"] = _form(upload, fields)
        request = urllib.request.Request(self.url + path, body, headers)
        try:
            with self._opener.open(request, timeout=self.timeout_s) as answer:
                content: bytes = answer.read(MAX_ANSWER + 1)
        except urllib.error.HTTPError as error:
            raise SaccadeError(f"{self.url}: {_refusal(error)}") from error
        except (OSError, ValueError) as error:  # no such host, refused, too slow
            raise SaccadeError(f"{self.url} does not answer: {getattr(error, 'reason', error)}") from error
        if len(content) > MAX_ANSWER:
            raise SaccadeError(f"{self.url} answers with more than {MAX_ANSWER >> 20} MB")
        return content


def _refusal(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"it answers with {error.code}"


def _jpeg(picture: Picture) -> bytes:
    from saccade.vision.pictures import as_array

    image = Image.fromarray(as_array(picture))
    image.thumbnail((1600, 1600))
    written = io.BytesIO()
    image.save(written, "JPEG", quality=95)
    return written.getvalue()


def _form(upload: bytes, fields: Sequence[tuple[str, Any]]) -> tuple[bytes, str]:
    """A form with a file, as browsers send it."""
    import secrets

    edge = f"saccade{secrets.token_hex(16)}"
    parts = [
        f'--{edge}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields
    ]
    told = 'Content-Disposition: form-data; name="file"; filename="picture.jpg"\r\nContent-Type: image/jpeg'
    parts.append(f"--{edge}\r\n{told}\r\n\r\n".encode() + upload + f"\r\n--{edge}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={edge}"


def _found(told: dict[str, Any]) -> Found:
    """Raises: SaccadeError if a service's answer is not one."""
    try:
        hits = tuple(
            Hit(
                str(hit["id"]),
                "",
                float(hit["score"]),
                None if hit["probability"] is None else float(hit["probability"]),
                tuple(
                    WordHit(str(word["word"]), float(word["contribution"]), int(word["region"]), bool(word["known"]))
                    for word in hit["words"]
                ),
                dict(hit["metadata"]),
            )
            for hit in told["hits"]
        )
        unknown = tuple(map(str, told["unknown"]))
        seconds = {str(name): float(took) for name, took in told["seconds"].items()}
        exact, fits = bool(told["exact"]), bool(told["fits"])
        return Found(hits, int(told["total"]), seconds, fits, str(told["model"]), exact, unknown)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SaccadeError("the service gave no answer that can be read") from error


def open_index(
    place: Path | str, model: str | None = None, *, device: str = "cpu", name: str = "", key: str | None = None
) -> IndexClient:
    """An index to query: a folder made by `saccade index`, the address of an engine, or the URL of `saccade serve`.

    `model` is another place of the model that the index was made with, or its place where an engine does not say it;
    `name` and `key` are for a service: which of its indices, and an API key.

    Raises: SaccadeError if there is none, or it does not answer.
    """
    if str(place).startswith(("http://", "https://")):
        if model is not None:
            raise SaccadeError(f"{place} is a service, which has its own model: leave model= out")
        return RemoteIndex(str(place), name, key)
    if name or key is not None:
        raise SaccadeError(f"{place} is no service: name= and key= are for http://…")
    return LocalIndex(place, model, device)
