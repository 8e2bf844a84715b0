"""What a matcher costs: every model of the registry is measured as it is scored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.data import DataConfig
from saccade.features import open_split
from saccade.models import CrossEncoder, Matcher, entries, load_model
from saccade.tasks.matching.benchmark import MatchingBenchmark, _peak_memory, code_bytes
from saccade.tasks.matching.evaluate import similarity_table
from toy_runs import DIM, SIZES, make_features, make_run

MATCHERS = [entry.name for entry in entries() if entry.task == "matching"]


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_features(tmp_path_factory.mktemp("cost") / "data")


@pytest.mark.parametrize("system", MATCHERS)
def test_the_table_is_that_of_evaluation_and_the_code_what_the_score_reads(
    system: str, features: Path, tmp_path: Path
) -> None:
    model = load_model(make_run(tmp_path / "run", features, system), Matcher)
    data = open_split(DataConfig("precomp", features), "test")
    table, cost = MatchingBenchmark().measure(model, data)
    np.testing.assert_allclose(table, similarity_table(model, data), rtol=1e-5, atol=1e-6)
    assert cost["parameters"] == model.parameter_count()
    assert cost["query_ms"] > 0
    assert cost["table_seconds"] > 0
    floats = cost["code_bytes"] / 4
    if model.operator is None and not isinstance(model, CrossEncoder):  # one vector of a picture
        assert floats == SIZES["dim"]
    else:
        assert floats >= 3 * min(SIZES["dim"], data.regions.dim)  # three regions, perhaps as they came


def test_padding_is_no_part_of_a_code(tmp_path: Path) -> None:
    """Pictures of one and of five regions: three on average."""
    from saccade.batch import ImageCode
    from saccade.tasks.matching.evaluate import encode_all_texts

    model = load_model(make_run(tmp_path / "run", make_features(tmp_path / "data"), "scan"), Matcher)
    mask = torch.tensor([[True] + [False] * 4, [True] * 5])
    regions = torch.randn(2, 5, SIZES["dim"]) * mask[..., None]
    assert code_bytes(model, ImageCode(regions, mask), encode_all_texts(model, ["a red cube"])) == 3 * SIZES["dim"] * 4


def test_peak_memory_is_what_a_block_takes_at_most() -> None:
    """Within a few megabytes: 256 were there for a moment, then 64 others; never both."""
    with _peak_memory(torch.device("cpu")) as peak:
        large = torch.ones(64_000_000)
        del large
        small = torch.ones(16_000_000)
    found = peak()
    assert found is not None
    assert 240e6 < found < 300e6  # what else the process does meanwhile counts too
    assert len(small) == 16_000_000
    with _peak_memory(torch.device("cpu")) as again:
        pass
    assert (again() or 0) < 8e6


def test_the_toy_features_are_as_wide_as_the_toy_models() -> None:
    assert SIZES["region_dim"] == DIM
