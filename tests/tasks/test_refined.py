"""A table computed sooner and refined has the ranks, first answers and recalls of the exact one."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from saccade.batch import RegionBatch, TextBatch
from saccade.core.files import read_json
from saccade.language import Vocabulary
from saccade.metrics import ranks, recall
from saccade.models import Fusion, Imram, ImramConfig, Matcher, Scan, ScanConfig, entries
from saccade.tasks.matching.refined import SAFETY, Refined, pair_scores, refine, refined_similarity
from toy_runs import make_features, make_run, saccade_command, transformer_sizes

IMAGES, EACH = 60, 5
ROUNDING = 1e-5  # of scores of about 1 that are sums of some hundred float32 products, in another order
OWNER = np.repeat(np.arange(IMAGES), EACH)
MATCHERS = [entry for entry in entries() if entry.task == "matching"]


def scores(spread: float = 1.0) -> Tensor:
    """A model that is right about as often as not."""
    draw = torch.Generator().manual_seed(0)
    table = spread * torch.randn(IMAGES, len(OWNER), generator=draw)
    table[OWNER, torch.arange(len(OWNER))] += 2.5 * spread
    return table


def refined(quick: Tensor, exact: Tensor, most: float = 0.5) -> tuple[Refined, list[int]]:
    """And how many pairs were asked for, call by call; the whole table is not to be asked for."""
    asked: list[int] = []

    def pair_scores(image: Tensor, text: Tensor) -> Tensor:
        asked.append(len(image))
        return exact[image, text]

    def whole() -> Tensor:
        raise AssertionError("the whole table was asked for")

    return refine(quick, OWNER, pair_scores, whole, most), asked


def assert_same_ranks(found: Tensor, exact: Tensor) -> None:
    ours, known = ranks(found.numpy(), OWNER), ranks(exact.numpy(), OWNER)
    for field in fields(known):
        np.testing.assert_array_equal(getattr(ours, field.name), getattr(known, field.name), field.name)
    for folds in (1, 3):
        assert recall(found.numpy(), OWNER, folds) == recall(exact.numpy(), OWNER, folds)


def test_near_ties_that_rounding_turns_are_put_right() -> None:
    """Wrong answers a little below and above the right ones, both ways, and two first answers as near."""
    exact = scores()
    texts = torch.arange(len(OWNER))
    right = exact[OWNER, texts]
    near = torch.randn(len(texts), generator=torch.Generator().manual_seed(1))
    exact[(OWNER + 1) % IMAGES, texts] = right * (1 + 1e-4 * near)
    exact[(OWNER + 2) % IMAGES, texts] = exact.amax(dim=0) * (1 - 1e-4)
    quick = exact.bfloat16().float()
    assert not np.array_equal(ranks(quick.numpy(), OWNER).text_to_image, ranks(exact.numpy(), OWNER).text_to_image)
    assert recall(quick.numpy(), OWNER) != recall(exact.numpy(), OWNER)
    found, asked = refined(quick, exact)
    assert_same_ranks(found.table, exact)
    assert found.scored_again == sum(asked) < 0.3 * exact.numel()
    again = found.table != quick
    torch.testing.assert_close(found.table[again], exact[again], rtol=0, atol=0)


@pytest.mark.parametrize("seed", range(5))
def test_ranks_are_exact_wherever_the_margin_covers_the_error(seed: int) -> None:
    torch.manual_seed(seed)
    exact = scores()
    found, _ = refined(exact + 0.01 * (2 * torch.rand(exact.shape) - 1), exact)
    assert 0.01 < found.margin < 0.02 * SAFETY
    assert_same_ranks(found.table, exact)


def test_a_quick_table_may_lie_in_any_order_in_memory_and_is_left_as_it_was() -> None:
    exact = scores()
    quick = (exact + 1e-3).T.contiguous().T
    before = quick.clone()
    found, _ = refined(quick, exact)
    assert_same_ranks(found.table, exact)
    assert torch.equal(quick, before)


def test_a_larger_error_widens_the_margin_and_the_search_goes_on() -> None:
    """Quick scores are right but for one wrong answer, seen near a rank, which shows how far off others may be."""
    exact = scores(spread=10.0)
    quick = exact.clone()
    text, wrong, other = 7, 40, 41
    right = exact[OWNER[text], text]
    exact[wrong, text], quick[wrong, text] = right + 0.5, right  # seen: within any margin, and off by 0.5
    exact[other, text], quick[other, text] = right + 0.01, right - 0.6  # seen only by who looks farther
    found, asked = refined(quick, exact)
    assert len(asked) > 2
    assert found.margin >= 0.5 * SAFETY
    assert_same_ranks(found.table, exact)


def test_scores_that_are_all_alike_are_computed_in_full() -> None:
    exact = 0.5 + 1e-6 * scores()
    asked = []

    def pair_scores(image: Tensor, text: Tensor) -> Tensor:
        asked.append(len(image))
        return exact[image, text]

    found = refine(exact.bfloat16(), OWNER, pair_scores, lambda: exact)
    assert found.table is exact
    assert found.share == 1
    assert sum(asked) < 0.1 * exact.numel(), "the search must end before it has scored the table pair by pair"


@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_quick_table_that_overflowed_is_computed_in_full(broken: float) -> None:
    exact = scores()
    quick = exact.clone()
    quick[3, 5] = broken
    found = refine(quick, OWNER, lambda image, text: exact[image, text], lambda: exact)
    assert found.table is exact


def test_a_picture_without_a_caption_is_no_query_but_an_answer() -> None:
    exact = torch.cat([scores(), scores()[:1] + 2.0])
    found, _ = refined(exact + 1e-3, exact)
    right = exact[OWNER, torch.arange(len(OWNER))]
    assert torch.equal((found.table >= right).sum(dim=0), (exact >= right).sum(dim=0))


@pytest.mark.parametrize("entry", MATCHERS, ids=[entry.name for entry in MATCHERS])
@pytest.mark.parametrize("budget_mb", [0, 256])
def test_scores_of_pairs_are_those_of_the_table(
    entry: object, budget_mb: int, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """One by one where nothing fits the budget, and in any order; sentences fall into groups of two lengths."""
    kind = entry.model  # type: ignore[attr-defined]
    sizes = {
        "region_dim": 12,
        "word_dim": 7,
        "dim": 64,
        "budget_mb": budget_mb,
        "text_length": 30,
        "heads": 0,
        "actions": 2,
        "entities": 3,
    }
    settings = {name: value for name, value in sizes.items() if name in {f.name for f in fields(kind.Config)}}
    if issubclass(kind, Fusion):
        settings |= transformer_sizes(kind.Config)
    torch.manual_seed(1)
    model = kind(replace(kind.Config(), **settings), vocabulary).eval()
    image, text = torch.randint(4, (2, 40))
    with torch.no_grad():
        images, texts = model.encode_images(toy_images), model.encode_texts(toy_texts)
        table = model.similarity(images, texts)
        found = pair_scores(model, images, texts, image, text)
    torch.testing.assert_close(found, table[image, text], rtol=1e-5, atol=1e-6)


class TestAModelThatIsQuick:
    """IMRAM as if its table in bfloat16 came sooner on this device."""

    @pytest.fixture
    def model(self, vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch) -> Matcher:
        torch.manual_seed(0)
        monkeypatch.setattr("saccade.tasks.matching.refined.reduced_dtype", lambda *_: torch.bfloat16)
        return Imram(ImramConfig(region_dim=12, word_dim=7, dim=16), vocabulary).eval()

    def test_its_table_is_refined(self, model: Matcher, vocabulary: Vocabulary) -> None:
        """Different sentences: of equal ones a pair and the table may differ in the last bit, and so in their order."""
        draw = torch.Generator().manual_seed(0)
        pictures = [torch.randn(4, 12, generator=draw) for _ in range(40)]
        words = [torch.randint(4, len(vocabulary), (2 + n % 7,), generator=draw) for n in range(40)]
        sentences = [" ".join(vocabulary.words[word] for word in row.tolist()) for row in words]
        assert len(set(sentences)) == 40
        with torch.no_grad():
            images = model.encode_images(RegionBatch.of(pictures, [torch.rand(4, 4)] * 40))
            texts = model.encode_texts(vocabulary.batch(sentences))
            exact = model.similarity(images, texts)
        found = refined_similarity(model, images, texts, np.arange(40), most=1.0)
        assert found.scored_again > 0
        assert found.margin > 0
        ours = ranks(found.table.numpy(), np.arange(40))
        right = exact.diagonal()
        for got, table in ((ours.text_to_image, exact - right), (ours.image_to_text, (exact - right[:, None]).T)):
            # a rank counts the wrong answers at or above the right one; nearer than ROUNDING, either is exact
            wrong = ~torch.eye(40, dtype=torch.bool)
            least, most = (((table >= margin) & wrong).sum(dim=0).numpy() for margin in (ROUNDING, -ROUNDING))
            assert ((least <= got) & (got <= most)).all()
            assert (least == most).mean() > 0.9


def test_a_model_without_a_quick_table_is_scored_in_full_once(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """SCAN on a CPU: nothing to refine, so nothing is scored again."""
    model = Scan(ScanConfig(region_dim=12, word_dim=7, dim=10), vocabulary).eval()
    with torch.no_grad():
        images, texts = model.encode_images(toy_images), model.encode_texts(toy_texts)
        found = refined_similarity(model, images, texts, np.arange(4))
        assert torch.equal(found.table, model.similarity(images, texts))
    assert found.scored_again == 0


class TestTheCommand:
    def test_quick_gives_the_same_figures(self, tmp_path: Path) -> None:
        features = make_features(tmp_path / "data")
        runs = [make_run(tmp_path / name, features, name) for name in ("scan", "imram", "vse")]
        for name, options in (("plain", ()), ("quick", ("--quick",))):
            assert saccade_command("eval", *runs, *options, "--json", tmp_path / f"{name}.json") == 0
        assert read_json(tmp_path / "quick.json") == read_json(tmp_path / "plain.json")

    def test_an_average_needs_whole_tables(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        features = make_features(tmp_path / "data")
        runs = [make_run(tmp_path / name, features, name) for name in ("scan", "vse")]
        assert saccade_command("eval", *runs, "--quick", "--ensemble") == 2
        assert "an ensemble averages whole tables" in " ".join(capsys.readouterr().err.split())

    def test_it_is_for_matchers(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = make_run(tmp_path / "run", make_features(tmp_path / "data"), "updown")
        assert saccade_command("eval", run, "--quick") == 2
        assert "--quick is for matchers" in " ".join(capsys.readouterr().err.split())
