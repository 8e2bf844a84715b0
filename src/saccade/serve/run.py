"""Listening, and stopping well: uvicorn with a time limit for heads of requests, and a log of JSON lines."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from saccade.core.errors import SaccadeError
from saccade.serve.config import ServeConfig
from saccade.serve.guard import Guard

FINISH_SECONDS = 20  # that requests under way have to finish once the service is told to stop
KEEP_ALIVE_SECONDS = 15
BACKLOG = 512
_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message", "taskName"}


class JsonLines(logging.Formatter):
    """A line of JSON for every event."""

    def format(self, record: logging.LogRecord) -> str:
        now = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        facts: dict[str, Any] = {"time": now, "level": record.levelname.lower(), "event": record.getMessage()}
        facts |= {name: value for name, value in record.__dict__.items() if name not in _PLAIN}
        if record.exc_info:
            facts["traceback"] = self.formatException(record.exc_info)
        return json.dumps(facts, ensure_ascii=False, default=str)


def log_as_json(level: int = logging.INFO) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("saccade.serve", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level if name == "saccade.serve" else logging.WARNING)


class PatientProtocol(H11Protocol):
    """HTTP, with an end to patience: a head that takes too long to come closes the connection."""

    head_seconds = 10.0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and self.conn.our_state is h11.IDLE:
            self._await_head()  # more of a head that is not yet whole: its time goes on
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


class Server(uvicorn.Server):
    """Says when it listens; being told to stop is no failure."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bound_socket(config: ServeConfig) -> socket.socket:
    """Raises: SaccadeError if the address is not to be had."""
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio sends at once only if told of TCP
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind((config.host, config.port))
    except (OSError, OverflowError) as error:
        made.close()
        why = getattr(error, "strerror", None) or str(error)
        raise SaccadeError(
            f"could not listen on {config.host} port {config.port} ({why}): try another --port"
        ) from error
    made.listen(BACKLOG)
    return made


def address(config: ServeConfig, bound: socket.socket) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{'localhost' if host in ('0.0.0.0', '[::]') else host}:{bound.getsockname()[1]}"


def make_server(app: Guard, config: ServeConfig, listening: Callable[[], None] = lambda: None) -> Server:
    limits = config.limits
    protocol = type("Protocol", (PatientProtocol,), {"head_seconds": limits.header_seconds})
    return Server(
        uvicorn.Config(
            app,
            http=protocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=FINISH_SECONDS,
            h11_max_incomplete_event_size=64 << 10,
        ),
        listening,
    )


def run(app: Guard, config: ServeConfig, said: Callable[[str], None]) -> None:
    """Serve until told to stop (Ctrl-C, SIGTERM); `said` is told the address once requests are answered."""
    bound = bound_socket(config)
    log_as_json()
    with bound:
        make_server(app, config, partial(said, address(config, bound))).run(sockets=[bound])
