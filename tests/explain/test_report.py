from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from saccade.core.errors import SaccadeError
from saccade.explain import Explanation, Found, Query, Report, ReportRow, ReportStage, Results, Twin, Value

Make = Callable[..., Explanation]
NASTY = "<script>alert(1)</script>"


def make_report(make: Make, queries: int = 10) -> Report:
    def image(seed: int) -> np.ndarray:
        return make(seed=seed).image

    results = Results(
        groups=(("sentence to picture", ("R@1", "R@5")),),
        rows=(
            ReportRow("SCAN", (Value(80.04, 1.26), Value(90))),
            ReportRow("pooled", (Value(40), Value(95)), "baseline"),
            ReportRow("chance", (Value(99), None), "chance"),
        ),
        note=NASTY,
    )
    found = tuple(Found(image(i), 1 - i / 10, right=i == 2) for i in range(5))
    missed = tuple(Found(image(i), 1 - i / 10) for i in range(5))
    twin = Twin(
        (image(0), image(1)),
        ("a red cube left of a blue ball", "a blue cube left of a red ball"),
        {"SCAN": np.array([[0.8, 0.1], [0.2, 0.9]]), "pooled": np.array([[0.5, 0.6], [0.5, 0.5]])},
    )
    return Report(
        title="A report",
        lead=NASTY,
        highlights=(("80 %", NASTY),),
        stages=(ReportStage("world", 12.34), ReportStage("train", 75.0, "8 epochs")),
        results=results,
        queries=tuple(
            Query(f"{NASTY} {i}", found if i else missed, 3 if i else 17, make(seed=i)) for i in range(queries)
        ),
        twins=(twin,),
        commands=(("saccade --help", "teaches"),),
        foot="seed 0",
    )


def test_a_full_report_is_one_escaped_file_within_its_size(make: Make, tmp_path: Path) -> None:
    path = make_report(make).save(tmp_path / "new" / "report.html")
    page = path.read_text()
    assert path.stat().st_size < 6e6
    assert page.count("<script>") == 1
    assert NASTY not in page
    assert page.count('class="match"') == 10
    assert [p.name for p in path.parent.iterdir()] == ["report.html"]


def test_the_best_value_of_a_column_is_strong_and_chance_never_is(make: Make) -> None:
    page = make_report(make, queries=1).html()
    table = page[page.index('<table class="results">') : page.index("</table>")]
    strong = [re.sub(r"<.*?>", " ", s).split() for s in re.findall(r"<strong>(.*?)</strong>", table)]
    assert strong == [["80.0", "±", "1.3"], ["95.0"]]
    assert "–" in table


def test_a_tie_between_twins_is_no_success(make: Make) -> None:
    page = make_report(make, queries=0).html()
    assert page.count('class="tick"') == 2  # SCAN, both captions
    assert page.count('class="cross"') == 2  # pooled: one wrong, one tie


def test_the_right_picture_is_framed_or_its_rank_told(make: Make) -> None:
    page = make_report(make, queries=2).html()
    assert page.count("<li class=right>") == 1
    assert "at rank 17" in page
    assert "at rank 3" not in page


def test_stages_add_up(make: Make) -> None:
    page = make_report(make, queries=0).html()
    assert "in 1 min 27 s" in page
    assert "12.3 s" in page
    assert "1 min 15 s" in page


def test_empty_sections_are_left_out() -> None:
    page = Report("Nothing yet", "Still.").html()
    assert "<h2>" not in page


def test_bad_tables_and_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SaccadeError, match='"SCAN" need 2 values, not 1'):
        Results((("group", ("R@1", "R@5")),), (ReportRow("SCAN", (Value(1),)),))
    with pytest.raises(SaccadeError, match=r"saved as \.html"):
        Report("t", "l").save(tmp_path / "report.pdf")
