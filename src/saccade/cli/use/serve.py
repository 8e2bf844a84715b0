"""`saccade serve`: an index and trained models, over HTTP and on a page."""

from __future__ import annotations

from pathlib import Path

from saccade.cli.options import Device, say
from saccade.core.errors import SaccadeError


def serve(
    indices: list[Path] | None = None,
    *,
    model: list[str] | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    api_key: list[str] | None = None,
    limit: list[str] | None = None,
    device: Device = "auto",
) -> None:
    """Search an index in the browser, see why, and use trained models on pictures of your own.

    The page is at the address that is printed; what it can do, programs can (`/openapi.json`). With two indices of the
    same pictures, two models answer one query side by side. Only this machine is answered unless --host says
    otherwise; then give an API key. What happens is logged on standard error, a line of JSON each. Ctrl-C stops it.

    Example: saccade serve demo/index

    Example: saccade serve photos.index --model scan-flickr8k --model show_attend_tell-flickr8k

    Example: saccade serve photos.index --host 0.0.0.0 --api-key @keys.txt --limit rate=5
    """
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import python_multipart  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise SaccadeError(f'`saccade serve` needs {error.name}: pip install "saccade[serve]" brings it') from error
    from saccade.core.config import override
    from saccade.core.interrupt import advise
    from saccade.serve.app import make_app
    from saccade.serve.config import Limits, ServeConfig, read_keys
    from saccade.serve.metrics import Metrics
    from saccade.serve.offer import Offer, open_indices, open_models
    from saccade.serve.run import run

    if not indices and not model:
        raise SaccadeError("give an index (`saccade index PHOTOS -o INDEX` makes one), or a model with --model")
    config = ServeConfig(host, port, read_keys(api_key or []), override(Limits(), limit or []))
    if not config.local and not config.api_keys:
        say("note: whoever reaches this machine may use the service; --api-key asks for a key", err=True)
    metrics = Metrics()
    opened = open_indices(indices or [], device, config.limits, metrics.batch)
    offer = Offer(opened, open_models(model or [], device, config.limits, metrics.batch))
    advise("the same command serves again")
    run(make_app(offer, config, metrics), config, lambda at: say(f"the page is at {at} (Ctrl-C stops)"))
