"""Matchers on the leaderboard: how well they find, and what that costs in weights, index, time and memory."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import ImageCode, TextCode
from saccade.data import CaptionedImages
from saccade.metrics import CUTOFFS, WAYS, chance, recall
from saccade.models import CrossEncoder, Matcher, load_model
from saccade.models.base.rerank import TwoStages, best_of
from saccade.tasks.evaluator import Benchmark, CostColumn, Costs, SplitForModels
from saccade.tasks.matching.evaluate import (
    RECALL_HEADINGS,
    QueryRanks,
    encode_all_images,
    encode_all_texts,
    ensemble_of,
    two_stage_ranks,
)

WARM_UP, QUERIES, SECONDS = 3, 21, 5.0  # queries before the clock runs; at most so many, or for so long
PROBE = 4  # pictures and sentences that show which parts of a code the score reads


Table = Float[np.ndarray, "image text"]


def short(value: float) -> str:
    """No more digits than were measured: 1,234 and 12.3 and 0.12."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


@dataclass(frozen=True, eq=False)
class FirstStage:
    """What cross-encoders put in order again: a model's scores of a split, and what they cost."""

    name: str
    model: Matcher
    images: ImageCode
    table: Float[Tensor, "image text"]
    costs: Costs
    count: int
    blend: float

    def best(self, text: str) -> Int[Tensor, " candidate"]:
        """The pictures that a text finds."""
        return best_of(self.model.similarity(self.images, encode_all_texts(self.model, [text])).T, self.count)[0]


@dataclass(frozen=True, eq=False)
class MatchingBenchmark(Benchmark[Matcher, CaptionedImages]):
    """Recall both ways; the size of a model and of what an index keeps, the time of a query and of all pairs."""

    first: FirstStage | None = None  # for cross-encoders; None: they read all pairs

    figures: ClassVar = {
        "rsum": "rsum",
        **{
            f"{way}_r{k}": f"{name} R@{k}" if k == CUTOFFS[0] else f"R@{k}"
            for way, name in WAYS.items()
            for k in CUTOFFS
        },
    }
    narrow_headings = RECALL_HEADINGS
    unit = "Recall in per cent, both ways; rsum is the sum of the six"
    costs: ClassVar = {
        "parameters": CostColumn("parameters", lambda n: f"{n / 1e6:.1f} M" if n >= 1e6 else f"{n / 1e3:.0f} k"),
        "code_bytes": CostColumn(
            "kB a picture",
            lambda size: short(size / 1e3),
            "what an index must keep of a picture: the parts of its code that the score reads, in float32",
        ),
        "query_ms": CostColumn(
            "ms a query",
            short,
            "encoding one text and scoring it against all {pictures} pictures, whose codes are there (the median over "
            "single queries, after a warm-up)",
        ),
        "table_seconds": CostColumn("s for all pairs", short, "scoring {pictures} × {texts} pairs, codes being there"),
        "peak_bytes": CostColumn(
            "MB for it",
            lambda size: short(size / 1e6),
            "the most memory that this took beside codes and weights; models cut the work into tiles that fit a budget",
            adds_up=False,
        ),
    }
    time = "query_ms", "milliseconds a query"
    ensembles = "the mean of the models' similarities, each brought to the same spread"

    @torch.no_grad()
    def measure(self, model: Matcher, data: CaptionedImages) -> tuple[Table | QueryRanks, Costs]:
        """The similarity table of a split, as `similarity_table` makes it, or the ranks of two stages, and what making
        it took."""
        model.eval()
        device = next(model.parameters()).device
        images, texts = encode_all_images(model, data), encode_all_texts(model, data.texts)
        own = {"parameters": model.parameter_count(), "code_bytes": code_bytes(model, images, texts)}
        if self.first is not None and isinstance(model, CrossEncoder):
            return self._behind_first(model, images, texts, data, own, self.first)
        query_ms = _query_ms(lambda text: model.similarity(images, encode_all_texts(model, [text])), data.texts, device)
        with _peak_memory(device) as peak:
            started = _now(device)
            table = model.similarity(images, texts)
            seconds = _now(device) - started
        costs = {**own, "query_ms": query_ms, "table_seconds": seconds, "peak_bytes": peak()}
        return table.float().cpu().numpy(), costs

    def _behind_first(
        self,
        model: CrossEncoder,
        images: ImageCode,
        texts: TextCode,
        data: CaptionedImages,
        own: Costs,
        first: FirstStage,
    ) -> tuple[QueryRanks, Costs]:
        def answer(text: str) -> object:
            best = first.best(text)
            return model.score_pairs(images, encode_all_texts(model, [text]), best, torch.zeros_like(best))

        device = images.mask.device
        query_ms = _query_ms(answer, data.texts, device)
        with _peak_memory(device) as peak:
            started = _now(device)
            stages = TwoStages.score(model, images, texts, first.table, first.count)
            seconds = _now(device) - started
        second = {**own, "query_ms": query_ms, "table_seconds": seconds, "peak_bytes": peak()}
        both = {name: column.together([first.costs[name], second[name]]) for name, column in self.costs.items()}
        ranked = two_stage_ranks(stages, first.count, data.image_of_text, first.blend)
        return ranked, both | {"query_ms": query_ms}  # which has the first stage in it

    def score(self, output: Table | QueryRanks, data: CaptionedImages) -> dict[str, float]:
        return output.recalls() if isinstance(output, QueryRanks) else recall(output, data.image_of_text)

    def chance(self, data: CaptionedImages) -> dict[str, float]:
        return chance(data.image_of_text, len(data.images))

    def average(self, outputs: Sequence[Table]) -> Table:
        return ensemble_of(outputs)

    @torch.no_grad()
    def behind(self, first: str, split: SplitForModels, device: str, count: int, blend: float) -> MatchingBenchmark:
        model = load_model(first, Matcher).to(device)
        data: CaptionedImages = split.regions_for(model, first)
        output, costs = self.measure(model, data)
        assert not isinstance(output, QueryRanks)
        table, images = torch.from_numpy(output).to(device), encode_all_images(model, data)
        return replace(self, first=FirstStage(first, model, images, table, costs, count, blend))

    def said_of(self, model: Matcher) -> str:
        if self.first is None or not isinstance(model, CrossEncoder):
            return ""
        added = f" + {self.first.blend:g} × its score" if self.first.blend else ""
        return f"best {self.first.count} of {Path(self.first.name).name}{added}"


def _query_ms(answer: Callable[[str], object], texts: tuple[str, ...], device: torch.device) -> float:
    """Sentences from all over the split, one at a time, as a searcher types them."""
    chosen = np.linspace(0, len(texts) - 1, WARM_UP + QUERIES).astype(int)
    times: list[float] = []
    for count, text in enumerate(chosen):
        started = _now(device)
        answer(texts[text])
        times.append(_now(device) - started)
        if count >= WARM_UP and sum(times) > SECONDS:
            break
    return 1000 * statistics.median(times[WARM_UP:])


def code_bytes(model: Matcher, images: ImageCode, texts: TextCode) -> int:
    """Bytes of one picture's code, padding aside, counting the tensors without which the score would be another.

    A model that compares whole pictures hands its regions out too, for explanations; an index need not keep them.
    """
    some, sentences = images.select(slice(PROBE)), texts.select(slice(PROBE))
    expected = model.similarity(some, sentences)
    total = 0.0
    for name in (field.name for field in fields(images)):
        value = getattr(images, name)
        if name == "mask" or value is None:  # the mask says what is padding
            continue
        without = replace(some, **{name: torch.zeros_like(getattr(some, name))})
        if not torch.equal(model.similarity(without, sentences), expected):
            held = images.mask.sum().item() / images.mask.numel() if value.shape[1:2] == images.mask.shape[1:] else 1.0
            total += held * value[0].numel() * value.element_size()
    return round(total)


def _now(device: torch.device) -> float:
    """The clock, once the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


@contextmanager
def _peak_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """How far the memory in use rises within the block: of the GPU what PyTorch hands out, else the process's own."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield lambda: torch.cuda.max_memory_allocated(device) - before
        return
    start = _resident("VmRSS") if device.type == "cpu" and _forget_peak() else None
    yield lambda: None if start is None else max(0, (_resident("VmHWM") or start) - start)


def _forget_peak() -> bool:
    """Give back what was freed, and ask Linux, which remembers the most memory a process ever had, to begin anew."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (OSError, AttributeError, TypeError):  # no such file; no such function; no such library, as on Windows
        return False
    return True


def _resident(field: str) -> int | None:
    """VmRSS: the memory that this process has now; VmHWM: the most it had. In bytes."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)
