"""What a matcher costs to use: weights, what an index must keep of each picture, time and memory of scoring."""

from __future__ import annotations

import ctypes
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from saccade.batch import ImageCode, TextCode
from saccade.data import CaptionedImages
from saccade.models import Matcher
from saccade.tasks.matching.evaluate import encode_all_images, encode_all_texts

WARM_UP, QUERIES, SECONDS = 3, 21, 5.0  # queries before the clock runs; at most so many, or for so long
PROBE = 4  # pictures and sentences that show which parts of a code the score reads


@dataclass(frozen=True)
class Cost:
    parameters: int
    code_bytes: int  # of one picture's code, as far as the score reads it: what an index keeps
    query_ms: float  # one sentence encoded and scored against every picture, whose codes are there: the median
    table_seconds: float  # every picture with every sentence, codes being there
    peak_bytes: int | None  # the most memory that this took beyond the codes; None where the system does not say


def measure_cost(model: Matcher, data: CaptionedImages) -> tuple[Float[np.ndarray, "image text"], Cost]:
    """The similarity table of a split, as `similarity_table` makes it, and what making it took."""
    model.eval()
    device = next(model.parameters()).device
    with torch.no_grad():
        images, texts = encode_all_images(model, data), encode_all_texts(model, data.texts)
        query_ms = _query_ms(model, images, data.texts, device)
        with _peak_memory(device) as peak:
            started = _now(device)
            table = model.similarity(images, texts)
            seconds = _now(device) - started
        cost = Cost(model.parameter_count(), code_bytes(model, images, texts), query_ms, seconds, peak())
    return table.float().cpu().numpy(), cost


def _query_ms(model: Matcher, images: ImageCode, texts: tuple[str, ...], device: torch.device) -> float:
    """Sentences from all over the split, one at a time, as a searcher types them."""
    chosen = np.linspace(0, len(texts) - 1, WARM_UP + QUERIES).astype(int)
    times: list[float] = []
    for count, text in enumerate(chosen):
        started = _now(device)
        model.similarity(images, encode_all_texts(model, [texts[text]]))
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
