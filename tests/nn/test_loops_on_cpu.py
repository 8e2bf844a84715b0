"""IMRAM and CAMP in compiled loops: the same table as in PyTorch, whatever the tiles and the padding; in bytes nearly.

Without a compiler both are PyTorch's, and all holds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models import Camp, CampConfig, Imram, ImramConfig, Matcher
from saccade.nn import byte_products, memory_looks_cpu, messages_cpu
from saccade.ops.native import native_library
from saccade.ops.native.panels import Layout

WORDS = Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))
DIM = 128


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACCADE_NATIVE", "1")


def codes(regions: int = 20, words: int = 9, extra: int = 0, empty: bool = False) -> tuple[ImageCode, TextCode]:
    """Items of many lengths, holes in the masks, rubbish in the padding.

    (Of a single word, what `clipped_l2` leaves of a score is its sign: where that is a matter of rounding, so is all.)
    """
    draw = torch.Generator().manual_seed(5)
    seen, read = (torch.randn(n, s, DIM, generator=draw) for n, s in ((11, regions), (29, words)))
    there = torch.arange(regions) < torch.randint(min(3, regions), regions + 1, (11, 1), generator=draw)
    real = torch.arange(words) < torch.randint(min(3, words), words + 1, (29, 1), generator=draw)
    there[0], real[0] = True, True
    there[3, 0], real[5, 0] = regions == 1, words == 1
    if empty:
        there[4], real[7] = False, False
    seen, read = F.normalize(seen, dim=-1).masked_fill(~there[..., None], 1e3), F.normalize(read, dim=-1)
    read = read.masked_fill(~real[..., None], -1e3)
    padded = (F.pad(seen, (0, 0, 0, extra), value=7.0), F.pad(there, (0, extra)))
    return ImageCode(*padded), TextCode(F.pad(read, (0, 0, 0, extra), value=7.0), F.pad(real, (0, extra)))


def imram(**switches: Any) -> Imram:
    torch.manual_seed(4)
    return Imram(ImramConfig(dim=DIM, **switches), WORDS).eval()


def camp(**switches: Any) -> Camp:
    torch.manual_seed(4)
    return Camp(CampConfig(dim=DIM, **switches), WORDS).eval()


@torch.no_grad()
def in_pytorch(model: Matcher, images: ImageCode, texts: TextCode, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    with monkeypatch.context() as without:
        without.setenv("SACCADE_NATIVE", "0")
        return model.similarity(images, texts)


SWITCHES = [
    *({"normaliser": name} for name in ("clipped_l2", "l2", "clipped_l1", "l1")),
    *({"steps": steps} for steps in (2, 4)),
    *({"queries": queries} for queries in ("words", "regions")),
    {"pool": "sum"},
    {"slope": 0.0},
    {"normaliser": "softmax"},
    {"memory": "mlp"},
    {"unit_memory": True},
]


@pytest.mark.parametrize("switches", SWITCHES, ids=str)
@torch.no_grad()
def test_looks_are_pytorchs(switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = imram(**switches), codes(empty=True)
    known = in_pytorch(model, *given, monkeypatch)
    tolerance = 5e-6 * max(1.0, known.abs().max().item())  # sums of cosines are larger than these
    torch.testing.assert_close(model.similarity(*given), known, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "switches", [{}, {"gate": False}, {"rounds": 1}, {"heads": 1}, {"heads": 0}, {"fusion": False}], ids=str
)
@torch.no_grad()
def test_messages_are_pytorchs(switches: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = camp(**switches), codes()
    known = in_pytorch(model, *given, monkeypatch)
    assert known.std() > 1e-5
    torch.testing.assert_close(model.similarity(*given), known, rtol=0, atol=5e-7)


@pytest.mark.parametrize("make", [imram, camp])
@pytest.mark.parametrize(("regions", "words"), [(70, 5), (17, 66), (64, 1)], ids=str)
@torch.no_grad()
def test_long_items(make: Any, regions: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = make(), codes(regions, words)
    torch.testing.assert_close(model.similarity(*given), in_pytorch(model, *given, monkeypatch), rtol=0, atol=2e-5)


@pytest.mark.parametrize("make", [imram, camp])
@torch.no_grad()
def test_padding_changes_nothing(make: Any) -> None:
    model = make()
    torch.testing.assert_close(model.similarity(*codes()), model.similarity(*codes(extra=7)), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("make", "room"), [(imram, memory_looks_cpu), (camp, messages_cpu)])
@torch.no_grad()
def test_tiles_change_nothing(make: Any, room: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, given = make(budget_mb=64), codes()
    whole = model.similarity(*given)
    monkeypatch.setattr(room, "ROWS", 12)
    monkeypatch.setattr(room, "ITEMS", 2)
    torch.testing.assert_close(model.similarity(*given), whole, rtol=0, atol=2e-6)
    small = make(budget_mb=0) if make is imram else make(budget_mb=1)
    torch.testing.assert_close(small.similarity(*given), whole, rtol=0, atol=2e-6)


@pytest.mark.parametrize("make", [imram, camp])
@torch.no_grad()
def test_in_bytes_scores_are_nearly_the_same(make: Any) -> None:
    model, given = make(), codes()
    known = model.similarity(*given)
    with byte_products():
        found = model.similarity(*given)
        again = model.similarity(*given)
    assert torch.equal(found, again)
    off = (found - known).std().item()
    assert off < 0.03 * known.std().item()
    library = native_library(0)
    assert (off > 1e-7) == (library is not None and Layout.of(library).bytes)
    assert torch.equal(model.similarity(*given), known)  # and only within the block


@torch.no_grad()
def test_loops_are_left_where_they_do_not_suit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any) -> None:
        raise AssertionError("not here")

    monkeypatch.setattr("saccade.models.imram.similarity_of_looks_on_cpu", refuse)
    monkeypatch.setattr("saccade.models.camp.pool_messages", refuse)
    images, texts = codes()
    for model in (imram(memory="add"), camp(fusion=False)):
        model.similarity(images, texts)
    doubled = replace(images, regions=images.regions.double()), replace(texts, words=texts.words.double())
    for model in (imram().double(), camp().double()):
        model.similarity(*doubled)
        with torch.enable_grad():
            model.similarity(*doubled).sum().backward()
    for model in (imram(), camp()):
        with torch.autocast("cpu", torch.bfloat16):
            model.similarity(images, texts)


@torch.no_grad()
def test_nothing_to_compare() -> None:
    images, texts = codes()
    for model in (imram(), camp()):
        assert model.similarity(images.select(slice(0)), texts).shape == (0, 29)
        assert model.similarity(images, texts.select(slice(0))).shape == (11, 0)
