"""What Prometheus reads at `/metrics`."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30)
SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Of one service: each has a registry of its own."""

    media_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self._all = CollectorRegistry()
        ProcessCollector(registry=self._all)
        PlatformCollector(registry=self._all)
        self._requests = Counter(
            "saccade_requests", "Requests by route and status", ["method", "route", "status"], registry=self._all
        )
        self._seconds = Histogram(
            "saccade_request_seconds", "Seconds a request took", ["route"], buckets=SECONDS, registry=self._all
        )
        self._refused = Counter("saccade_refused", "Requests refused, and why", ["why"], registry=self._all)
        self._batches = Histogram(
            "saccade_batch_size", "Queries answered together", ["model"], buckets=SIZES, registry=self._all
        )
        self.waiting = Gauge("saccade_waiting", "Requests that wait for a model", ["model"], registry=self._all)

    def counted(self, method: str, route: str, status: int, seconds: float) -> None:
        known = method if method in ("GET", "HEAD", "POST") else "other"
        self._requests.labels(known, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def refused(self, why: str) -> None:
        self._refused.labels(why).inc()

    def batch(self, model: str, size: int) -> None:
        self._batches.labels(model).observe(size)

    def text(self) -> bytes:
        return generate_latest(self._all)
