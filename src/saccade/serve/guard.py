"""What stands before every request: who asks, from where, how often, how much, how slowly. Plain ASGI, no framework.

Refusals are JSON with one sentence. What passes is counted, timed and logged as one line of JSON; what was asked is not
in the log.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any

from saccade.serve.config import Limits, ServeConfig

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOG = logging.getLogger("saccade.serve")
COOKIE = "saccade_session"
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1000
OPEN_PATHS = frozenset({"/", "/login", "/healthz", "/favicon.ico"})  # what a stranger may see, and /page/
PICTURE_COST = 0.02  # of a request, as a page of results shows many pictures
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


@dataclass
class Refusal(Exception):
    """A status, and a sentence."""

    status: int
    sentence: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    why: str = "other"


@dataclass
class Buckets:
    """Each client's token bucket: it holds `burst` requests at most and gains `rate` a second."""

    rate: float
    burst: float
    most: int
    clock: Callable[[], float] = time.monotonic
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, client: str, cost: float = 1.0) -> float:
        """Zero if the client may go on, or in how many seconds it may."""
        now = self.clock()
        left, then = self._left.pop(client, (self.burst, now))
        left = min(self.burst, left + (now - then) * self.rate)
        wait = 0.0 if left >= cost else (cost - left) / self.rate
        self._left[client] = (left - cost if not wait else left), now
        while len(self._left) > self.most:  # the one that was quiet longest is forgotten
            self._left.popitem(last=False)
        return wait


class Keys:
    """API keys, known by their digests and compared in constant time; browsers get a session in their place."""

    def __init__(self, keys: tuple[str, ...], clock: Callable[[], float] = time.monotonic) -> None:
        self._digests = [_digest(key) for key in keys]
        self._sessions: OrderedDict[bytes, float] = OrderedDict()
        self._clock = clock

    def __bool__(self) -> bool:
        return bool(self._digests)

    def holds(self, key: str) -> bool:
        given = _digest(key)
        return sum(hmac.compare_digest(given, own) for own in self._digests) > 0  # all are compared

    def session(self) -> str:
        """A new one, for whoever has shown a key."""
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = self._clock() + SESSION_SECONDS
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return token

    def knows(self, headers: dict[bytes, bytes]) -> str | None:
        """By what name whoever sent these headers is known; None if by none."""
        given = headers.get(b"x-api-key", b"").decode("latin-1")
        scheme, _, bearer = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
        if scheme.lower() == "bearer" and not given:
            given = bearer.strip()
        if given:
            return f"key {_digest(given).hex()[:12]}" if self.holds(given) else None
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(COOKIE)
        except CookieError:
            return None
        if cookie is None:
            return None
        ends = self._sessions.get(_digest(cookie.value))  # a lookup by digest: its time tells nothing of a token
        return f"session {_digest(cookie.value).hex()[:12]}" if ends is not None and ends > self._clock() else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()


class Guard:
    """The outermost layer. `counted(method, route, status, seconds)` and `refused(why)` feed the metrics."""

    def __init__(
        self,
        app: App,
        config: ServeConfig,
        keys: Keys,
        counted: Callable[[str, str, int, float], None],
        refused: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.app, self.config, self.keys, self.counted, self.refused = app, config, keys, counted, refused
        limits = config.limits
        self.buckets = Buckets(limits.rate, limits.burst, limits.clients, clock)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        started, client = time.perf_counter(), (scope.get("client") or ("unknown", 0))[0]
        body, answer = _Body(receive, self.config.limits), _Answer(send)
        try:
            self._check(scope, client)
            try:
                await self.app(scope, body.receive, lambda message: _pass(message, body, answer))
            except Exception:
                if body.refusal is None:
                    raise
            if body.refusal is not None and not answer.status:
                raise body.refusal
        except Refusal as refusal:
            self.refused(refusal.why)
            await answer.refuse(refusal)
        except Exception:
            LOG.exception("a request failed", extra={"path": scope["path"]})
            if not answer.status:
                await answer.refuse(Refusal(500, "something went wrong here: the log of the service has it"))
        finally:
            seconds = time.perf_counter() - started
            route = getattr(scope.get("route"), "path", "other")
            self.counted(scope["method"], route, answer.status, seconds)
            facts = {
                "method": scope["method"],
                "path": scope["path"][:200],
                "status": answer.status,
                "ms": round(1000 * seconds, 1),
                "client": client,
                "in": body.size,
                "out": answer.size,
            }
            LOG.info("request", extra=facts)

    def _check(self, scope: Scope, client: str) -> None:
        """Raises: Refusal."""
        headers = dict(scope["headers"])
        path, limits = scope["path"], self.config.limits
        if self.config.local and not _is_local(headers.get(b"host", b"").decode("latin-1")):
            # another site's name that was made to point here (DNS rebinding)
            raise Refusal(421, "this service answers to localhost alone", why="host")
        if scope["method"] not in ("GET", "HEAD") and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise Refusal(403, "another site may not ask on your behalf", why="origin")
        if self.keys and path not in OPEN_PATHS and not path.startswith("/page/"):
            name = self.keys.knows(headers)
            if name is None:
                wait = self.buckets.take(client)
                if not wait:
                    realm = ((b"www-authenticate", b'Bearer realm="saccade"'),)
                    raise Refusal(401, "an API key is needed: Authorization: Bearer KEY", realm, "key")
                raise _too_many(wait)
            client = name
        if path != "/healthz" and not path.startswith("/page/") and path != "/":
            light = path.startswith(("/thumbnails/", "/pictures/"))
            if wait := self.buckets.take(client, PICTURE_COST if light else 1.0):
                raise _too_many(wait)
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > limits.upload_bytes:
            raise Refusal(413, f"at most {limits.upload_bytes:,} bytes may be sent", _CLOSE, "bytes")


_CLOSE = ((b"connection", b"close"),)


def _too_many(wait: float) -> Refusal:
    after = str(max(1, round(wait + 0.5)))
    return Refusal(429, f"too many requests: try again in {after} s", ((b"retry-after", after.encode()),), "rate")


def _is_local(host: str) -> bool:
    name = host if host.endswith("]") else host.rsplit(":", 1)[0]
    try:
        return name.lower() == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


async def _pass(message: Message, body: _Body, answer: _Answer) -> None:
    """What the app says, unless its request has been refused meanwhile: then the guard answers."""
    if body.refusal is None or answer.status:
        await answer.send(message)


class _Body:
    """A request's body as it comes, refused once it is too long or too slow; the app then sees a client that left."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._until = time.monotonic() + limits.body_seconds
        self._whole = False
        self.size = 0
        self.refusal: Refusal | None = None

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()  # of a client that leaves
        if self.refusal is None:
            try:
                message = await asyncio.wait_for(self._receive(), max(self._until - time.monotonic(), 0.001))
            except asyncio.TimeoutError:
                self.refusal = Refusal(408, "the request did not come whole in time", _CLOSE, "slow")
            else:
                self.size += len(message.get("body", b""))
                self._whole = not message.get("more_body", False)
                if self.size <= self._limits.upload_bytes:
                    return message
                most = self._limits.upload_bytes
                self.refusal = Refusal(413, f"at most {most:,} bytes may be sent", _CLOSE, "bytes")
        return {"type": "http.disconnect"}


class _Answer:
    """What is sent, with the headers that every answer has."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = self.size = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *HEADERS]
        else:
            self.size += len(message.get("body", b""))
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        body = json.dumps({"error": refusal.sentence}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        start = {"type": "http.response.start", "status": refusal.status, "headers": [*headers, *refusal.headers]}
        await self.send(start)
        await self.send({"type": "http.response.body", "body": body})
