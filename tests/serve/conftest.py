"""A small index of the world and tiny models, and services of them: in this process, or listening on a port."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from PIL import Image
from served import EASY, listening, make_offer

from saccade.language import Vocabulary
from saccade.metrics.calibration import Platt
from saccade.models import Adaptive, AdaptiveConfig, Scan, ScanConfig
from saccade.search.index import Index
from saccade.serve.app import make_app
from saccade.serve.config import Limits, ServeConfig
from saccade.serve.metrics import Metrics
from saccade.serve.offer import Offer
from saccade.vision.videos import write_video
from saccade.world import WorldConfig, make_world

PICTURES = 30


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with photos/ (24 scenes, one of them twice, one saved anew), tiny models, and two indices, whose labels
    are what the extractor sees."""
    folder = tmp_path_factory.mktemp("shelf")
    world = make_world(WorldConfig(pictures=PICTURES, hard_groups=0, novel=0, twins=0.0), folder / "world", workers=1)
    split = world.split("train")
    (folder / "photos" / "more").mkdir(parents=True)
    sentences = []
    for n in range(len(split)):
        picture = Image.fromarray(split.image(n)).resize((160, 160))
        picture.save(folder / "photos" / (f"more/{n:02}.png" if n % 3 == 0 else f"{n:02}.png"))
        sentences += [caption.text for caption in split.captions(n)]
    (folder / "photos" / "same.png").write_bytes((folder / "photos" / "01.png").read_bytes())
    Image.open(folder / "photos" / "02.png").resize((128, 128)).save(folder / "photos" / "again.jpg", quality=90)
    words = Vocabulary.build(sentences, 1)
    torch.manual_seed(0)
    for name, offset in (("scan", -1.0), ("other", -30.0)):  # by the second's reckoning nothing fits anything
        model = Scan(ScanConfig(256, 16, 32), words, "world")
        model.calibration = Platt(10.0, offset)
        model.save_pretrained(folder / name)
    captioner = Adaptive(AdaptiveConfig(256, 8, 16, 6), words, "world")
    with torch.no_grad():
        for weight in captioner.parameters():
            weight.copy_(0.7 * torch.randn_like(weight))
        captioner.out.bias[2] = -50.0
    captioner.save_pretrained(folder / "captioner")
    for index, model in (("toys", "scan"), ("toys-other", "other")):
        with Index.create(folder / index, str(folder / model), extra={"rating": "int"}) as made:
            made.update(folder / "photos", metadata={f"{n:02}.png": {"rating": n % 2} for n in range(PICTURES)})
    return folder


@pytest.fixture(scope="session")
def offer(shelf: Path) -> Iterator[Offer]:
    made = make_offer(shelf)
    yield made
    made.close()


@pytest.fixture
def service(offer: Offer) -> Callable[..., TestClient]:
    """`service(limits=…, keys=…)`: a client of a service in this process."""

    def open(limits: Limits = EASY, keys: tuple[str, ...] = ()) -> TestClient:
        metrics = Metrics()
        for one in offer.indices.values():
            one.worker.seen = partial(metrics.batch, one.name)
        app = make_app(offer, ServeConfig(api_keys=keys, limits=limits), metrics)
        return TestClient(app, base_url="http://localhost", raise_server_exceptions=False)

    return open


@pytest.fixture(scope="session")
def live(shelf: Path) -> Iterator[str]:
    """The address of a service that listens."""
    with listening(make_offer(shelf), ServeConfig(port=0, limits=EASY)) as address:
        yield address


@pytest.fixture
def films(shelf: Path, tmp_path: Path) -> Path:
    """An index of one video, films/ball.mp4, in which a ball moves."""
    frames = [np.full((64, 96, 3), 230, np.uint8) for _ in range(8)]
    for n, frame in enumerate(frames):
        frame[20:40, 8 * n : 8 * n + 20] = (200, 20, 20)
    (tmp_path / "films").mkdir()
    write_video(tmp_path / "films" / "ball.mp4", frames, 4)
    with Index.create(tmp_path / "films.index", str(shelf / "scan")) as made:
        made.update(tmp_path / "films")
    return tmp_path / "films.index"


@pytest.fixture
def png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)).save(out, "PNG")
    return out.getvalue()
