"""Services of the shelf that `conftest.py` makes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saccade.serve.app import make_app
from saccade.serve.config import Limits, ServeConfig
from saccade.serve.metrics import Metrics
from saccade.serve.offer import Offer, open_indices, open_models
from saccade.serve.run import bound_socket, make_server

EASY = Limits(rate=10_000, burst=10_000)  # for tests of other things


def make_offer(shelf: Path, limits: Limits = EASY, metrics: Metrics | None = None) -> Offer:
    seen = (metrics or Metrics()).batch
    indices = open_indices([shelf / "toys", shelf / "toys-other"], "cpu", limits, seen)
    models = open_models([str(shelf / "scan"), str(shelf / "captioner")], "cpu", limits, seen)
    return Offer(indices, models)


@contextmanager
def listening(offer: Offer, config: ServeConfig) -> Iterator[str]:
    """A service on a port of its own, in a thread; its address."""
    ready = threading.Event()
    bound = bound_socket(config)
    server = make_server(make_app(offer, config), config, ready.set)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        bound.close()
        assert not thread.is_alive()
