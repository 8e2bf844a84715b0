"""What a service allows: sizes, rates, times, and who may ask."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field
from pathlib import Path

from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError, explain_os_errors

KEYS_VARIABLE = "SACCADE_API_KEYS"
LEAST_KEY = 16  # characters: a shorter one could be guessed


@dataclass(frozen=True)
class Limits:
    """Bounds of one request, and of one client."""

    upload_bytes: int = 64 << 20
    pixels: int = 50_000_000  # of an uploaded picture
    text: int = 500  # characters of a query
    words: int = 64
    top: int = 500  # results
    rate: float = 20.0  # requests a second that a client may make for long …
    burst: float = 60.0  # … and at once
    clients: int = 10_000  # whose rates are remembered
    waiting: int = 256  # requests that wait for one model
    connections: int = 512
    header_seconds: float = 10.0  # in which a request's head must have come
    body_seconds: float = 60.0  # … and all of it
    work_seconds: float = 120.0
    batch: int = 32  # queries that one model answers together
    batch_seconds: float = 0.004  # … and how long a busy one waits for more of them

    def __post_init__(self) -> None:
        check_ranges(self, "upload_bytes pixels text words top clients waiting connections batch", "at least 1")
        check_ranges(self, "rate burst header_seconds body_seconds work_seconds", "more than zero")


@dataclass(frozen=True)
class ServeConfig:
    """Where to listen, and whom to answer."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_keys: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def read_keys(given: list[str]) -> tuple[str, ...]:
    """API keys as they were given, from files (`@keys.txt`, one a line), and from the environment.

    Raises: SaccadeError if a file cannot be read, or a key is too short to be one.
    """
    keys = [key for key in os.environ.get(KEYS_VARIABLE, "").split() if key]
    for word in given:
        if not word.startswith("@"):
            keys.append(word)
            continue
        path = Path(word[1:])
        with explain_os_errors(path, "read"):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        keys += [line.strip() for line in lines if line.strip()]
    for key in keys:
        if len(key) < LEAST_KEY or not key.isascii() or not key.isprintable() or " " in key:
            raise SaccadeError(f"an API key is {LEAST_KEY} or more letters, digits and signs without spaces")
    return tuple(dict.fromkeys(keys))
