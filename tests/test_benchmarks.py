"""The benchmarks run, every one of them, at tiny sizes: nothing here is a matter of time."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import answering, cpu, gpu, timing, wording
from benchmarks.bench import Bench, Case, OutOfTime, Subject, alarm, attempt, measure
from benchmarks.command import main
from benchmarks.problems import FORMS, largest_difference, part_of, problem, scan
from benchmarks.report import write_page
from benchmarks.rows import Growth, Results, Row, Target
from benchmarks.scan import official, plainly
from saccade.data import DataConfig
from saccade.data.store.arrow import StoreWriter
from saccade.data.store.manifest import CAPTIONS, Caption, write_captions
from toy_runs import DIM, IMAGES, SENTENCES, make_features, make_run

QUICK = Bench("cpu", quick=True)
ROW = Row(
    "a thing",
    "3 × 4",
    seconds=0.002,
    official_seconds=0.3,
    floor_seconds=0.001,
    floor="GEMM",
    difference=1e-6,
    peak_bytes=3_000_000,
    figures={"idle": 0.25},
    targets=(Target("speedup", "≥", 100), Target("times_floor", "≤", 1.5)),
    subject="scan",
)
GROWTH = Growth("a thing", "pictures", (10, 20, 40), (0.1, 0.2, 0.4), "5 captions", (Target("exponent", "≤", 1.1),))


def cases(subjects: Mapping[str, Subject]) -> dict[tuple[str, str], Case]:
    found = [case for subject in subjects.values() for case in subject(QUICK)]
    named = {(case.name, case.axis): case for case in found}
    assert len(named) == len(found), "two cases have one name"
    return named


def test_every_case_is_measured() -> None:
    """Those of a GPU too, on the CPU; where both have one of a name, at tiny sizes they are the same."""
    for (name, _), case in {**cases(gpu.SUBJECTS), **cases(cpu.SUBJECTS)}.items():
        result = case.measure()
        assert not result.failed, name
        known = {"exponent"} if isinstance(result, Growth) else {*result.figures, *dir(result)}
        assert all(target.figure in known for target in result.targets), name


@pytest.mark.parametrize("direction", FORMS)
def test_ours_the_official_loop_and_the_definition_agree(direction: str) -> None:
    given = problem("cpu", 5, 12, regions=6, dim=16).to(torch.float64)
    part = given.some(3, 4)
    table = scan(given, direction, 1 << 20)
    assert largest_difference(table, official(given, direction)) < 1e-12
    assert largest_difference(part_of(table, part), plainly(part, direction)) < 1e-12


@pytest.mark.parametrize("name", ["updown_vqa", "dcn"])
def test_answerers_say_what_the_plain_forms_of_the_published_code_say(name: str) -> None:
    assert answering.answer(QUICK, name, training=False).figures["difference_to_plain"] < 1e-5


def test_a_problem_has_something_to_find_and_nothing_in_its_padding() -> None:
    given = problem("cpu", 20, 40, regions=6, dim=64)
    best = scan(given, "text→image", 1 << 20).argmax(dim=0)
    assert float((best == given.owner).float().mean()) > 0.5
    assert not given.texts.words[~given.texts.mask].any()
    assert [len(rows) for rows in given.packed()] == [120, sum(given.lengths)]


def test_recalls_are_compared_on_a_store_as_a_run_sees_it(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", make_features(tmp_path / "features"))
    store, draw = tmp_path / "store", np.random.default_rng(0)
    with StoreWriter(store, dim=DIM) as writer:
        for image in range(IMAGES):
            writer.append(str(image), draw.normal(size=(3, DIM)).astype(np.float32), np.zeros((3, 4), np.float32))
    said = enumerate(SENTENCES[: 2 * IMAGES])
    write_captions(store / CAPTIONS, [Caption(str(place // 2), text, "dev") for place, text in said])
    bench = replace(QUICK, photographs=(DataConfig("store", store), str(run)))
    found = [case.measure() for case in gpu.SUBJECTS["scan"](bench) if "Flickr8k" in case.name]
    rows = [row for row in found if isinstance(row, Row)]
    assert len(rows) == 3
    assert all(row.shape.startswith(f"{IMAGES} × {2 * IMAGES}, 3 regions") for row in rows)
    assert all(0 <= row.figures["recalls_that_differ"] <= 6 for row in rows)
    assert [row.figures["recalls_that_differ"] for row in rows if "percent_again" in row.figures] == [0]


def test_exponents_are_those_of_powers() -> None:
    assert GROWTH.exponent == pytest.approx(1)
    assert replace(GROWTH, seconds=(1.0, 4.0, 16.0)).exponent == pytest.approx(2)
    assert GROWTH.met
    assert not replace(GROWTH, seconds=(1.0, 4.0, 16.0)).met


def test_a_target_is_met_only_by_a_figure_that_reaches_it() -> None:
    assert [target.met(ROW.figure(target.figure)) for target in ROW.targets] == [True, False]
    assert not Target("speedup", "≥", 1).met(None)
    assert not Target("difference", "≤", 1).met(math.nan)
    assert not replace(ROW, targets=(), failed="it broke").met


def test_results_come_back_from_their_file(tmp_path: Path) -> None:
    results = Results({"device": "a machine", "threads": 2}, (ROW,), (GROWTH,))
    results.write(tmp_path / "cpu.json")
    assert Results.read(tmp_path / "cpu.json") == results
    newer = results.with_results([replace(ROW, seconds=1.0), Row("another")])
    assert [row.name for row in newer.rows] == ["a thing", "another"]
    assert newer.rows[0].seconds == 1.0
    assert newer.growth == results.growth
    again = replace(newer, rows=tuple(replace(row, subject="scan") for row in newer.rows))
    assert [row.name for row in again.without_others({"scan"}, newer.rows[1:]).rows] == ["another"]
    assert again.without_others({"search"}, []) == again


def test_what_fails_says_why_and_the_others_go_on() -> None:
    def broken() -> Row:
        raise ValueError("no such thing\nand more")

    def subject(bench: Bench) -> Iterator[Case]:
        yield Case("first", broken)
        yield Case("second", lambda: ROW)
        yield Case("third", broken, axis="pictures")

    told: list[object] = []
    found = list(measure({"some": subject}, QUICK, minutes=1, each=10, tell=told.append))
    assert told == found
    assert [result.failed for result in found] == ["ValueError: no such thing", "", "ValueError: no such thing"]
    assert found[1] == replace(ROW, name="second", subject="some")
    late = list(measure({"some": subject}, QUICK, minutes=-1, each=10, tell=told.append))
    assert all("over" in result.failed for result in late)


def test_a_case_that_takes_too_long_is_stopped() -> None:
    def endless() -> Row:
        while True:
            pass

    assert attempt(Case("endless", endless), 0.05).failed == "stopped after 0.05 seconds"
    with pytest.raises(OutOfTime), alarm(0.01):
        endless()


def test_the_page_has_every_figure_and_its_plots(tmp_path: Path) -> None:
    folder = tmp_path / "performance"
    failed = Row("broken", failed="it | broke", subject="search")
    Results({"device": "a machine", "threads": 2}, (ROW, failed), (GROWTH,)).write(folder / "cpu.json")
    write_page(folder, tmp_path / "performance.md")
    page = (tmp_path / "performance.md").read_text(encoding="utf-8")
    for said in (
        "a machine, 2 threads",
        "150×",
        "2.00×",
        "2.00 ms",
        "3.00 MB",
        "GPU idle 25 %",
        "✗ it / broke",
        "1.00",
    ):
        assert said in page
    assert "✓ ≥ 100× as fast" in page
    assert "✗ ≤ 1.5× the floor" in page
    for plot in re.findall(r"\]\((.*?\.png)\)", page):
        assert (tmp_path / plot).stat().st_size > 5000


def test_a_command_measures_some_and_keeps_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "cpu.json"
    Results({"device": "before"}, (ROW,)).write(out)
    subjects = {"good": lambda bench: [Case("fine", lambda: ROW)], "bad": lambda bench: [Case("poor", lambda: 1 / 0)]}
    words = ["--quick", "--no-page", "--out", str(out)]
    assert main("cpu", "cpu", subjects, 1, None, [*words, "--only", "good"]) == 0
    assert [row.name for row in Results.read(out).rows] == ["a thing", "fine"]
    assert main("cpu", "cpu", subjects, 1, None, words) == 1
    assert [row.name for row in Results.read(out).rows] == ["fine", "poor"]
    assert "ZeroDivisionError" in capsys.readouterr().out


def test_figures_are_short() -> None:
    assert [wording.duration(value) for value in (1.5, 0.0179, 2.34e-6, None)] == ["1.50 s", "17.9 ms", "2.34 µs", "–"]
    assert wording.wanted(Target("difference", "≤", 2e-3)) == "difference ≤ 2.0e-03"
    assert wording.wanted(Target("gemm_share", "≥", 0.7)) == "≥ 70 % of the GEMM's rate"
    assert wording.size(8e9) == "8.00 GB"


def test_the_floor_is_a_product_and_a_copy() -> None:
    timing.product(torch.ones(8, 4), torch.ones(6, 4))()
    assert timing.bandwidth("cpu", gigabytes=1e-3) > 0
    assert timing.best_of("cpu", {"a": lambda: None, "b": lambda: None}, runs=2).keys() == {"a", "b"}
