"""One table says what runs, and why; what an earlier run left on disk has no say."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from saccade.core.errors import SaccadeError
from saccade.ops import (
    ATTENDED_SIMILARITY,
    OPERATORS,
    AttentionForm,
    Backend,
    Context,
    Operator,
    Queries,
    attended_similarity,
    backend,
    cuda,
    dispatch,
    gpu,
)
from saccade.ops.dispatch import anything
from saccade.ops.similarity import AttentionProblem
from saccade.ops.tiling import on_every_core


@dataclass(frozen=True)
class Number:
    value: int

    def describe(self) -> str:
        return f"a number of {len(str(self.value))} digits"


@pytest.fixture
def sign() -> Iterator[Operator[Number, str]]:
    def positive(problem: Number) -> str | None:
        return None if problem.value > 0 else "it is not positive"

    rows = (
        Backend("machine", anything, lambda _: "machine", lambda: "there is no machine"),
        Backend("fast", positive, lambda _: "fast"),
        Backend("plain", anything, lambda _: "plain"),
    )
    yield Operator("sign", rows)
    del OPERATORS["sign"]


def test_the_first_row_that_suits_is_taken(sign: Operator[Number, str]) -> None:
    assert [sign(Number(value)) for value in (3, -3)] == ["fast", "plain"]
    assert sign.chosen(Number(3)).name == "fast"


def test_a_row_can_be_forced_and_says_why_it_cannot(sign: Operator[Number, str]) -> None:
    with backend("plain"):
        assert sign(Number(3)) == "plain"
    assert sign(Number(3)) == "fast"
    with (
        backend("fast"),
        pytest.raises(SaccadeError, match='sign cannot run on the backend "fast": it is not positive'),
    ):
        sign(Number(-3))
    with backend("machine"), pytest.raises(SaccadeError, match="there is no machine"):
        sign(Number(3))
    with pytest.raises(SaccadeError, match='no operator has a backend "quick"'), backend("quick"):
        pass


def test_a_forced_row_is_forced_on_every_core(sign: Operator[Number, str]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with backend("plain"):
            assert set(on_every_core([lambda: sign(Number(3))] * 8)) == {"plain"}
    finally:
        torch.set_num_threads(before)


def test_an_operator_without_such_a_row_chooses_as_always(sign: Operator[Number, str]) -> None:
    with backend("torch"):
        assert sign(Number(3)) == "fast"


def test_the_choice_is_logged_once_per_shape(
    sign: Operator[Number, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(dispatch, "_logged", set())
    sign(Number(3))
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("SACCADE_LOG", "ops")
    for value in (3, 4, 10):
        sign(Number(value))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["sign: fast, a number of 1 digits", "sign: fast, a number of 2 digits"]


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_table_ends_with_a_row_for_everything(name: str) -> None:
    rows = OPERATORS[name].backends
    assert rows[-1].suits is anything
    assert rows[-1].available() is None
    assert len({row.name for row in rows}) == len(rows)


def problem(form: AttentionForm, needs_grad: bool = False, places: int = 36) -> AttentionProblem:
    words = torch.randn(3, 12, 8, dtype=torch.bfloat16).requires_grad_(needs_grad)
    regions = torch.randn(2, places, 8, dtype=torch.bfloat16)
    return AttentionProblem(
        Queries(words, torch.ones(3, 12, dtype=torch.bool)),
        Context(regions, torch.ones(2, places, dtype=torch.bool)),
        form,
    )


@pytest.fixture
def _on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the vectors were on a GPU of a machine that has all."""
    monkeypatch.delenv("SACCADE_KERNELS", raising=False)
    monkeypatch.setattr(gpu, "refuses", lambda _: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(gpu, "_triton_missing", lambda: None)
    monkeypatch.setattr(cuda, "nvrtc_missing", lambda: None)


@pytest.mark.parametrize(
    ("switch", "form", "needs_grad", "places", "expected"),
    [
        (None, AttentionForm(), False, 36, "cuda epilogue"),
        (None, AttentionForm("l1", pool="mean"), False, 36, "cuda epilogue"),
        (None, AttentionForm(), True, 36, "triton"),
        (None, AttentionForm("softmax"), False, 36, "triton"),
        (None, AttentionForm(), True, 64, "triton"),
        (None, AttentionForm(), True, 65, "torch"),  # more than a tile of the kernel holds
        (None, AttentionForm(pool="max"), True, 36, "torch"),  # its gradient, in 16 bits
        (None, AttentionForm(slope=2.0), True, 36, "torch"),
        ("0", AttentionForm(), False, 36, "torch"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("_on_gpu")
def test_which_backend_is_chosen_on_a_gpu(
    switch: str | None,
    form: AttentionForm,
    needs_grad: bool,
    places: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if switch is not None:
        monkeypatch.setenv("SACCADE_KERNELS", switch)
    assert ATTENDED_SIMILARITY.chosen(problem(form, needs_grad, places)).name == expected


def test_an_older_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (7, 5))
    assert "older" in str(gpu.refuses(torch.device("cuda")))
    assert "not on a GPU" in str(gpu.refuses(torch.device("cpu")))


def test_without_a_gpu_kernels_say_so() -> None:
    given = problem(AttentionForm())
    with backend("triton"), pytest.raises(SaccadeError, match="attended_similarity cannot run"):
        attended_similarity(given.queries, given.context, given.form)
