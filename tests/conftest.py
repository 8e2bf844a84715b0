"""What tests share: small batches with padding, a small vocabulary, and a cache of their own."""

from __future__ import annotations

import errno
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import interbert_golden
import marn_golden
import pixelbert_golden
from covered import pytest_terminal_summary  # noqa: F401
from saccade.batch import RegionBatch, TextBatch
from saccade.language import Vocabulary, load_parser
from saccade.language.roles import role_tables, shared_roles

WORDS = (
    "a",
    "red",
    "blue",
    "green",
    "cube",
    "ball",
    "cone",
    "left",
    "right",
    "of",
    "the",
    "on",
    "is",
    "small",
    "large",
)


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests neither see nor fill the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SACCADE_CACHE", str(tmp_path_factory.getbasetemp().parent / "saccade-cache"))
        yield


@pytest.fixture(scope="session")
def golden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of tests/golden, and those that are made here."""
    folder = tmp_path_factory.mktemp("golden")
    for kept in (Path(__file__).parent / "golden").iterdir():
        (folder / kept.name).symlink_to(kept)
    interbert_golden.make_golden(folder / "interbert")
    pixelbert_golden.make_golden(folder / "pixelbert")
    marn_golden.write_marn(folder / "marn")
    return folder


@pytest.fixture(scope="session")
def photos() -> list[Path]:
    """The freely licensed photographs of the repository, in name order; `photos/annotations.jsonl` describes them."""
    return sorted((Path(__file__).parents[1] / "photos").glob("*.jpg"))


@pytest.fixture
def vocabulary() -> Vocabulary:
    return Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *WORDS, "and"))


@pytest.fixture
def toy_images() -> RegionBatch:
    """Four pictures of 5, 2, 1 and 4 regions, 12-d."""
    draw = torch.Generator().manual_seed(0)
    counts = (5, 2, 1, 4)
    boxes = [torch.rand(n, 4, generator=draw).sort(dim=1).values[:, [0, 1, 2, 3]] for n in counts]
    return RegionBatch.of([torch.randn(n, 12, generator=draw) for n in counts], boxes, [f"p{i}" for i in range(4)])


@pytest.fixture
def toy_texts(vocabulary: Vocabulary) -> TextBatch:
    """Four sentences, with dependencies, phrases and role graphs for models that ask."""
    texts = ["a red cube", "the small blue ball is left of a cone", "green", "a cube on the large ball and a zebra"]
    parses = load_parser().parse(texts)
    phrases = tuple(tuple((thing.start + 1, thing.end + 1) for thing in parse.objects) for parse in parses)
    batch = replace(vocabulary.batch(texts), links=tuple(parse.links for parse in parses), phrases=phrases)
    roles = role_tables(shared_roles().read(texts), 2, 3, batch.tokens.shape[1], longest=30)
    return replace(batch, **roles._asdict())


@pytest.fixture
def load_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A script by its name, as a module; scripts import each other."""
    folder = Path(__file__).parents[1] / "scripts"

    def load(name: str) -> ModuleType:
        monkeypatch.syspath_prepend(str(folder))
        spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """`full_disk(n)`: the n-th file that is finished from now on meets a full disk."""

    def arm(after: int = 1) -> None:
        left = after
        real = os.fsync

        def fsync(handle: int) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(handle)

        monkeypatch.setattr(os, "fsync", fsync)

    return arm
