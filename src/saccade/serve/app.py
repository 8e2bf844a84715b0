"""The service: `/search`, `/explain`, an endpoint for everything a task's predictor does, and the page."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, File, Form, HTTPException, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from PIL import Image
from starlette.exceptions import HTTPException as StarletteHTTPException

from saccade.core.errors import SaccadeError
from saccade.search.query import Query as Searched
from saccade.serve import schemas
from saccade.serve.config import ServeConfig
from saccade.serve.guard import COOKIE, SESSION_SECONDS, Guard, Keys
from saccade.serve.metrics import Metrics
from saccade.serve.offer import Offer, ServedIndex, all_uses
from saccade.serve.pictures import NEAR, Gone, Missing, TooLarge, as_jpeg, heat_facts, kept_upload, open_bounded
from saccade.serve.worker import Busy
from saccade.tasks.uses import Outcome, Use
from saccade.version import __version__

PAGE = Path(__file__).parent / "page"
PAGE_FILES = {"app.js": "text/javascript", "look.js": "text/javascript", "task.js": "text/javascript"}
PAGE_FILES["style.css"] = "text/css"
FACET_COLUMNS = 12  # shown on the page
FACET_VALUES = 20
COPIES_BY = f"the same file, or 64-bit difference hashes that differ in at most {NEAR} bits, in the same colours"
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Problem, "description": what}
    for status, what in (
        (400, "The request makes no sense: the sentence says why"),
        (401, "An API key is needed"),
        (404, "There is no such thing"),
        (408, "The request came too slowly"),
        (410, "The picture has changed or gone since it was indexed"),
        (413, "Too many bytes or pixels"),
        (422, "A field is missing or of another kind"),
        (429, "Too many requests"),
        (503, "Too much waits: try again"),
    )
}
STATUS: dict[type[Exception], int] = {Gone: 410, Missing: 404, TooLarge: 413, Busy: 503, SaccadeError: 400}


def make_app(offer: Offer, config: ServeConfig, metrics: Metrics | None = None) -> Guard:
    """The whole service as an ASGI application. It closes `offer` when it stops."""
    metrics = metrics or Metrics()
    keys = Keys(config.api_keys)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(offer.close)

    app = FastAPI(
        title="Saccade",
        version=__version__,
        description="Pictures found by sentences, and why.",
        docs_url=None,  # its page would fetch scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses=PROBLEMS,
    )
    _explain_errors(app)
    _add_page(app)
    _add_service(app, offer, config, keys, metrics)
    _add_search(app, offer, config)
    for verb, use in all_uses().items():
        _add_task(app, offer, config, verb, use)
    return Guard(app, config, keys, metrics.counted, metrics.refused)


def _explain_errors(app: FastAPI) -> None:
    """Every error is one sentence in JSON."""

    def problem(status: int, sentence: str, **headers: str) -> JSONResponse:
        return JSONResponse({"error": sentence}, status, headers)

    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        return problem(error.status_code, str(error.detail), **(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        if first["type"] == "json_invalid":
            return problem(422, f"the body is no JSON: {first.get('ctx', {}).get('error', 'it cannot be read')}")
        place = ".".join(str(part) for part in first["loc"][1:])
        return problem(422, f"{place}: {first['msg']}" if place else str(first["msg"]))

    async def mistaken(request: Request, error: Exception) -> JSONResponse:
        status = next(code for kind, code in STATUS.items() if isinstance(error, kind))
        return problem(status, str(error), **({"Retry-After": "1"} if status == 503 else {}))

    for kind in STATUS:
        app.add_exception_handler(kind, mistaken)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return problem(500, "something went wrong here: the log of the service has it")


async def _outcome(future: Future[Any], config: ServeConfig) -> Any:
    """What a worker makes of a job. Raises: Busy if it takes too long."""
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), config.limits.work_seconds)
    except asyncio.TimeoutError:
        raise Busy("the model took too long") from None


def _add_page(app: FastAPI) -> None:
    fresh = {"Cache-Control": "no-cache"}  # asked again each time, answered by a tag

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(PAGE / "index.html", media_type="text/html; charset=utf-8", headers=fresh)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> FileResponse:
        if name not in PAGE_FILES:
            raise HTTPException(404, "there is no such part of the page")
        return FileResponse(PAGE / name, media_type=f"{PAGE_FILES[name]}; charset=utf-8", headers=fresh)

    @app.get("/favicon.ico", include_in_schema=False)
    async def icon() -> Response:
        return Response(status_code=204)


def _add_service(app: FastAPI, offer: Offer, config: ServeConfig, keys: Keys, metrics: Metrics) -> None:
    @app.get("/healthz", response_model=schemas.Health)
    async def healthz() -> dict[str, Any]:
        """Whether the service is up."""
        return {"status": "ok", "indices": len(offer.indices), "models": len(offer.models)}

    @app.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def measured() -> Response:
        """For Prometheus."""
        for name, worker in offer.workers:
            metrics.waiting.labels(name).set(worker.waiting)
        return Response(metrics.text(), media_type=metrics.media_type)

    @app.get("/models", response_model=schemas.Offered)
    async def models() -> dict[str, Any]:
        """What can be searched, and what else can be done by which model."""
        tasks = [
            {**{k: v for k, v in vars(use).items() if k != "run"}, "models": [one.name for one in offer.offered(verb)]}
            for verb, use in _uses_offered(offer).items()
        ]
        limits = asdict(config.limits)
        shown = {name: limits[name] for name in ("upload_bytes", "pixels", "text", "words", "top")}
        return {
            "version": __version__,
            "indices": [one.facts() for one in offer.indices.values()],
            "tasks": tasks,
            "limits": shown,
        }

    @app.post("/login", include_in_schema=bool(keys), status_code=204)
    async def login(asked: schemas.LoginAsked) -> Response:
        """A session for browsers, whose pictures cannot send a key."""
        if not keys.holds(asked.key):
            raise HTTPException(401, "this is no key of this service")
        answer = Response(status_code=204)
        answer.set_cookie(COOKIE, keys.session(), max_age=SESSION_SECONDS, httponly=True, samesite="strict")
        return answer


def _uses_offered(offer: Offer) -> dict[str, Use]:
    """By verb, in the order of the models."""
    found: dict[str, Use] = {}
    for model in offer.models.values():
        for verb, (use, _) in model.uses.items():
            found.setdefault(verb, use)
    return found


def checked_text(text: str, config: ServeConfig) -> str:
    """Raises: HTTPException if it is longer than the service takes."""
    if len(text) > config.limits.text or len(text.split()) > config.limits.words:
        most = f"{config.limits.text} characters and {config.limits.words} words"
        raise HTTPException(400, f"the text is too long: {most} are taken at most")
    if "\0" in text:
        raise HTTPException(400, "the text holds a character that no text has")
    return text.strip()


def _box(region: str) -> tuple[float, float, float, float] | None:
    """Raises: HTTPException if it is no box."""
    if not region:
        return None
    try:
        x1, y1, x2, y2 = (float(side) for side in region.split(","))
    except ValueError:
        raise HTTPException(400, "region: four numbers x1,y1,x2,y2 in 0 to 1 were expected") from None
    if not (0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1):
        raise HTTPException(400, "region: 0 ≤ x1 < x2 ≤ 1 and 0 ≤ y1 < y2 ≤ 1 were expected")
    return x1, y1, x2, y2


def _add_search(app: FastAPI, offer: Offer, config: ServeConfig) -> None:
    most, longest = config.limits.top, config.limits.text

    async def found(one: ServedIndex, query: Searched) -> dict[str, Any]:
        return one.shown(await _outcome(one.worker.ask(query), config))

    def searched(
        text: str, where: str, top: int, candidates: int, exact: bool, plus: list[str], minus: list[str], region: str
    ) -> dict[str, Any]:
        for word in (*plus, *minus):
            checked_text(word, config)
        return {
            "text": checked_text(text, config),
            "where": checked_text(where, config),
            "top": top,
            "candidates": candidates or None,
            "exact": exact,
            "plus": tuple(plus),
            "minus": tuple(minus),
            "region": _box(region),
        }

    @app.get("/search", response_model=schemas.SearchAnswer)
    async def search(
        text: str = Query("", max_length=longest, description="a sentence"),
        index: str = Query("", max_length=200),
        where: str = Query("", max_length=longest, description="a condition on the metadata, as in SQL"),
        top: int = Query(20, ge=1, le=most),
        candidates: int = Query(0, ge=0, le=100_000, description="how many the model itself scores; 0: as it sees fit"),
        exact: bool = Query(False, description="let the model score every picture"),
        plus: Annotated[list[str] | None, Query(max_length=20, description="sentences that must fit too")] = None,
        minus: Annotated[list[str] | None, Query(max_length=20, description="what must not be there")] = None,
        like: str = Query("", max_length=2000, description="the id of a picture to search by"),
        region: str = Query("", max_length=100, description="of that picture: x1,y1,x2,y2 in 0 to 1"),
    ) -> dict[str, Any]:
        """Pictures that fit a sentence, or are like a picture of the index or a part of it, best first."""
        one = offer.index(index)
        asked = searched(text, where, top, candidates, exact, plus or [], minus or [], region)
        return await found(one, Searched(**asked, like_id=like))

    @app.post("/search", response_model=schemas.SearchAnswer)
    async def search_by_picture(
        file: UploadFile,
        text: str = Form("", max_length=longest),
        index: str = Form("", max_length=200),
        where: str = Form("", max_length=longest),
        top: int = Form(20, ge=1, le=most),
        candidates: int = Form(0, ge=0, le=100_000),
        exact: bool = Form(False),
        plus: Annotated[list[str] | None, Form(max_length=20)] = None,
        minus: Annotated[list[str] | None, Form(max_length=20)] = None,
        region: str = Form("", max_length=100),
    ) -> dict[str, Any]:
        """Pictures that are like an uploaded one, or a part of it, and fit a text if there is one."""
        one = offer.index(index)
        asked = searched(text, where, top, candidates, exact, plus or [], minus or [], region)
        with ExitStack() as stack:
            path = await asyncio.to_thread(stack.enter_context, kept_upload(file.file, ".img"))
            picture = await asyncio.to_thread(open_bounded, path, config.limits.pixels)
            return await found(one, Searched(**asked, like=picture))

    @app.get("/explain", response_model=schemas.ExplainAnswer)
    async def explain(
        id: str = Query(max_length=2000),
        text: str = Query(max_length=longest),
        index: str = Query("", max_length=200),
    ) -> dict[str, Any]:
        """Why a picture fits a sentence: each word's heat map, the regions, and what each word adds."""
        one = offer.index(index)
        text = checked_text(text, config)
        if not text:
            raise HTTPException(400, "there is nothing to explain without a text")
        future, framed = await asyncio.to_thread(one.explained, id, text)
        found = await _outcome(future, config)
        facts = await asyncio.to_thread(heat_facts, found)
        shown = data_address(Image.fromarray(found.image)) if framed else None
        return {**facts, "picture": shown, "index": one.name, "id": id, "text": text}

    @app.get("/regions", response_model=schemas.RegionsAnswer)
    async def regions(id: str = Query(max_length=2000), index: str = Query("", max_length=200)) -> dict[str, Any]:
        """All regions of a picture, by name where the model's extractor names things."""
        one = offer.index(index)
        told = await _outcome(await asyncio.to_thread(one.regions, id), config)
        return {**told, "index": one.name, "id": id}

    @app.get("/facets", response_model=schemas.FacetAnswer)
    async def facets(index: str = Query("", max_length=200)) -> dict[str, Any]:
        """The metadata's columns, with their most frequent values."""
        one = offer.index(index)
        return {"index": one.name, "columns": await asyncio.to_thread(one.facets, FACET_COLUMNS, FACET_VALUES)}

    @app.post("/copies", response_model=schemas.CopiesAnswer)
    async def copied(asked: schemas.CopiesAsked) -> dict[str, Any]:
        """Which pictures are copies of each other rather than merely alike."""
        groups = await asyncio.to_thread(offer.index(asked.index).copies, asked.ids)
        return {"groups": groups, "by": COPIES_BY}

    async def sent(request: Request, make: Callable[[str], bytes], id: str) -> Response:
        content = await asyncio.to_thread(make, id)
        kind = "image/webp" if content[8:12] == b"WEBP" else "image/png" if content[:4] == b"\x89PNG" else "image/jpeg"
        return Response(content, media_type=kind, headers={"Cache-Control": "private, max-age=300"})

    image: dict[int | str, dict[str, Any]] = {200: {"content": {"image/*": {}}}}

    @app.get("/thumbnails/{index}/{id:path}", response_class=Response, responses=image)
    async def thumbnail(request: Request, index: str, id: str) -> Response:
        """A small picture of what is indexed."""
        return await sent(request, offer.index(index).thumbnail, id)

    @app.get("/pictures/{index}/{id:path}", response_class=Response, responses=image)
    async def picture(request: Request, index: str, id: str) -> Response:
        """A picture of the index, at most 1,600 pixels wide or high, if its file is still as it was indexed."""
        return await sent(request, offer.index(index).picture, id)


def _add_task(app: FastAPI, offer: Offer, config: ServeConfig, verb: str, use: Use) -> None:
    """`POST /caption`, `/ask` …: whatever a predictor says it does."""
    longest = config.limits.text

    async def done(
        file: Annotated[UploadFile | None, File(description="a picture, or a video")] = None,
        text: str = Form("", max_length=longest, description=use.text or "not needed"),
        model: str = Form("", max_length=200, description="which of the models, if there are several"),
        top: int = Form(5, ge=1, le=100),
    ) -> dict[str, Any]:
        served = offer.user(verb, model)
        own, predictor = served.uses[verb]
        text = checked_text(text, config)
        if own.text and not text and not own.text_optional:
            raise HTTPException(400, f"{verb} needs a text: the {own.text}")
        if own.medium != "none" and file is None and not own.medium_optional:
            raise HTTPException(400, f"{verb} needs a {own.medium}: send it as `file`")
        with ExitStack() as stack:
            given: Any = None
            if file is not None and own.medium != "none":
                kept = kept_upload(file.file, ".mp4" if own.medium == "video" else ".img")
                given = await asyncio.to_thread(stack.enter_context, kept)
            if own.medium == "picture" and given is not None:
                given = await asyncio.to_thread(open_bounded, given, config.limits.pixels)
            outcome = await _outcome(served.worker.call(partial(own.run, predictor, given, text, top)), config)
            return await asyncio.to_thread(_task_answer, served.name, outcome, given)

    done.__doc__ = f"{use.does}."
    path = f"/{verb}"
    app.add_api_route(path, done, methods=["POST"], name=verb, response_model=schemas.TaskAnswer, tags=["tasks"])


def data_address(picture: Image.Image) -> str:
    """A picture that an answer carries with it."""
    return f"data:image/jpeg;base64,{base64.b64encode(as_jpeg(picture)).decode()}"


def _task_answer(model: str, outcome: Outcome, given: Any) -> dict[str, Any]:
    picture = None
    if hasattr(given, "mode"):
        picture = data_address(given.copy())
    return {
        "model": model,
        "lines": [asdict(line) for line in outcome.lines],
        "explanation": None if outcome.explanation is None else heat_facts(outcome.explanation),
        "picture": picture,
        "seconds": outcome.seconds,
        "curve": list(outcome.curve),
    }
