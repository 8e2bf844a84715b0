from __future__ import annotations

from pathlib import Path

import pytest
from small_world import SMALL

from saccade.world import World, make_world


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    folder: Path = tmp_path_factory.mktemp("world") / "small"
    return make_world(SMALL, folder, workers=2)
