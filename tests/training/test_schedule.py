from __future__ import annotations

import pytest

from saccade.training import TrainerConfig, learning_rate


def test_step_schedule_is_that_of_the_official_scan() -> None:
    """lr · 0.1^(epoch // 15), whatever the step within the epoch."""
    config = TrainerConfig()
    for epoch in (0, 1, 14, 15, 29, 30):
        rate = learning_rate(config, step=epoch * 226 + 5, epoch=epoch, total_steps=30 * 226)
        assert rate == 2e-4 * 0.1 ** (epoch // 15)


def test_warm_up_rises_evenly_to_the_full_rate_and_is_never_zero() -> None:
    config = TrainerConfig(learning_rate=1.0, warmup_steps=4, schedule="constant")
    assert [learning_rate(config, step, 0, 10) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(("schedule", "half"), [("cosine", 0.5), ("linear", 0.5), ("constant", 1.0)])
def test_schedules_start_full_and_pass_their_middle(schedule: str, half: float) -> None:
    config = TrainerConfig(learning_rate=1.0, warmup_steps=10, schedule=schedule)  # type: ignore[arg-type]
    assert learning_rate(config, 10, 0, 110) == 1.0
    assert learning_rate(config, 60, 0, 110) == pytest.approx(half)
    rates = [learning_rate(config, step, 0, 110) for step in range(10, 110)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] > 0


def test_berts_schedule_rises_over_its_share_and_falls_to_zero() -> None:
    config = TrainerConfig(learning_rate=1.0, schedule="warmup_linear", warmup_share=0.2)
    rates = [learning_rate(config, step, 0, 100) for step in range(100)]
    assert rates[:3] == pytest.approx([0.05, 0.1, 0.15])
    assert max(rates) == pytest.approx(1.0, abs=0.02)
    assert rates[60] == pytest.approx(0.5)  # (1 − 0.6) / (1 − 0.2)
    assert rates[-1] == pytest.approx(0.0125)
