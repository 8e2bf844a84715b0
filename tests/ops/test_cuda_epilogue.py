"""`attention_epilogue.cu`: what the plain form says. Without a GPU, threads take turns on a CPU (`warp_on_cpu.h`)."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops import AttentionForm, Context, Queries, attended_similarity
from saccade.ops.cuda import epilogue, epilogue_refuses, nvrtc
from saccade.ops.cuda.epilogue import Cut, epilogue_similarity

SOURCE = Path(epilogue.__file__).with_name("attention_epilogue.cu")
THREADS = Path(__file__).with_name("warp_on_cpu.h")
ENTRY = """
#include "{source}"
template <typename... A> static void call(int wide, int high, void (*kernel)(A...), void** given) {{
  [&]<std::size_t... N>(std::index_sequence<N...>) {{
    run_grid(wide, high, 32 * WARPS, kernel, *(A*)given[N]...);
  }}(std::make_index_sequence<sizeof...(A)>());
}}
extern "C" void run(int wide, int high, void** given) {{ call(wide, high, attention_epilogue, given); }}
"""


class OnCpu:
    """Launches kernels compiled for the CPU."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.libraries = folder, dict[tuple[str, ...], ctypes.CDLL]()

    def __call__(self, options: tuple[str, ...], grid: tuple[int, int], arguments: Sequence[nvrtc.Argument]) -> None:
        if options not in self.libraries:
            target = self.folder / f"{len(self.libraries)}.so"
            entry = target.with_suffix(".cpp")
            entry.write_text(ENTRY.format(source=SOURCE))
            compiler = shutil.which("g++") or shutil.which("clang++")
            assert compiler, "a C++ compiler is needed"
            words = [compiler, "-O1", "-std=c++20", "-shared", "-fPIC", "-include", str(THREADS), *options]
            subprocess.run([*words, str(entry), "-o", str(target)], check=True)
            self.libraries[options] = ctypes.CDLL(str(target))
        values = [ctypes.c_void_p(a.data_ptr()) if isinstance(a, Tensor) else a for a in arguments]
        places = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self.libraries[options].run(*grid, places)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> OnCpu:
    return OnCpu(tmp_path_factory.mktemp("epilogue"))


@pytest.fixture(autouse=True)
def _on_cpu(compiled: OnCpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epilogue, "_launch", compiled)


def problem(lengths: list[int], widths: list[int], dim: int = 32) -> tuple[Queries, Context]:
    """Ragged on both sides; padding holds rubbish, and one mask has a hole."""
    draw = torch.Generator().manual_seed(3)
    sides = []
    for sizes in (lengths, widths):
        vectors = torch.randn(len(sizes), max(sizes) + 1, dim, generator=draw) + torch.randn(dim, generator=draw)
        mask = torch.arange(max(sizes) + 1) < torch.tensor(sizes)[:, None]
        mask[-1] = mask[-1].roll(1)
        vectors = F.normalize(vectors, dim=-1)
        vectors[~mask] = torch.nan
        sides += [vectors.bfloat16().float(), mask]
    return Queries(*sides[:2]), Context(*sides[2:])


def difference(given: tuple[Queries, Context], form: AttentionForm, dtype: torch.dtype) -> float:
    queries, context = given
    found = epilogue_similarity(queries, context, form, dtype, cut=Cut(rows=64))
    clean = (side.vectors.nan_to_num(0.0).double() for side in given)
    expected = attended_similarity(Queries(next(clean), queries.mask), Context(next(clean), context.mask), form)
    assert torch.equal(found.isfinite(), expected.isfinite())
    real = expected.isfinite()
    return float((found[real] - expected[real]).abs().max())


@pytest.mark.parametrize(
    "form",
    [
        AttentionForm("clipped_l2", 9.0),
        AttentionForm("l2", 4.0, pool="mean"),
        AttentionForm("clipped_l1", 9.0, slope=0.0, pool="max"),
        AttentionForm("l1", 20.0, pool="sum"),
        AttentionForm("clipped_l2", 4.0, pool_sharpness=50.0),
    ],
    ids=lambda form: f"{form.normaliser}-{form.pool}-{form.pool_sharpness}",
)
def test_similarities_are_those_of_the_plain_form(form: AttentionForm) -> None:
    given = problem([7, 12, 1, 9, 0, 16, 5, 8, 3, 11], [9, 5, 16, 1, 0, 13, 8, 20])
    scale = 12 if form.pool == "sum" else 1
    assert difference(given, form, torch.bfloat16) < 4e-3 * scale


def test_scores_of_float16_are_closer() -> None:
    given = problem([7, 12, 9, 16], [9, 5, 16, 13])
    assert difference(given, AttentionForm(), torch.float16) < 2e-4


def test_pictures_of_36_regions_on_either_side() -> None:
    words, regions = [9, 14, 18, 8, 11], [36, 36, 36]
    assert difference(problem(words, regions), AttentionForm(), torch.bfloat16) < 4e-3
    assert difference(problem(regions, words), AttentionForm(sharpness=4.0), torch.bfloat16) < 4e-3


def test_a_hundred_regions_on_either_side() -> None:
    words, regions = [9, 18, 12], [100, 128, 71]
    assert difference(problem(words, regions), AttentionForm(), torch.bfloat16) < 4e-3
    assert difference(problem([100, 37], words), AttentionForm(sharpness=4.0), torch.bfloat16) < 4e-3


def test_more_context_than_one_warp_goes_through() -> None:
    given = problem([5, 6], [3] * (2 * epilogue.CHUNK + 3))
    assert difference(given, AttentionForm(), torch.bfloat16) < 4e-3


def test_more_columns_than_a_product_may_have_come_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epilogue, "MAX_COLUMNS", 40)
    given = problem([7, 12, 9, 16], [9, 5, 16, 13, 0, 4, 11])
    assert difference(given, AttentionForm(), torch.bfloat16) < 4e-3


@pytest.mark.parametrize(
    ("queries", "parts", "form", "dtype", "fits"),
    [
        (18, 36, AttentionForm(), torch.bfloat16, True),
        (112, 18, AttentionForm(), torch.float16, True),
        (32, 128, AttentionForm(), torch.bfloat16, True),
        (10, 36, AttentionForm(), torch.float32, False),
        (10, 36, AttentionForm("softmax"), torch.bfloat16, False),
        (10, 36, AttentionForm(choice="max"), torch.bfloat16, False),
        (10, 36, AttentionForm(sharpness=31.0), torch.bfloat16, False),
        (10, 129, AttentionForm(), torch.bfloat16, False),
        (33, 128, AttentionForm(), torch.bfloat16, False),
        (113, 10, AttentionForm(), torch.bfloat16, False),
    ],
)
def test_what_does_not_suit_is_left_to_others(
    queries: int, parts: int, form: AttentionForm, dtype: torch.dtype, fits: bool
) -> None:
    assert (epilogue_refuses(queries, parts, form, dtype) is None) == fits


def test_before_a_large_table_there_is_a_trial_and_what_it_found_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SACCADE_CACHE", str(tmp_path))
    monkeypatch.setattr(epilogue, "MIN_TUNED_SCORES", 1)
    monkeypatch.setattr(epilogue, "TRIED_CUTS", (Cut(10, 64), Cut(10, 32)))
    epilogue._known_cuts.cache_clear()
    queries, context = given = problem([7, 12, 9, 16], [9, 5, 16, 13])
    key = epilogue._key(queries, context, torch.bfloat16)
    assert key not in epilogue._known_cuts()
    tables = [epilogue_similarity(*given, AttentionForm(), torch.bfloat16) for _ in range(2)]
    assert torch.equal(*tables)
    assert epilogue._known_cuts()[key] in epilogue.TRIED_CUTS
    longer = Context(context.vectors.repeat(1, 9, 1), context.mask.repeat(1, 9))
    assert epilogue._key(queries, longer, torch.bfloat16) not in epilogue._known_cuts()
    assert capsys.readouterr().err.count("once") == 1
    epilogue._known_cuts.cache_clear()
