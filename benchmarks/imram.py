"""All pairs of IMRAM against the per-caption loop of the official algorithm: time and memory, in one run.

    python benchmarks/imram.py [--images 32] [--texts 160] [--steps 3] [--queries words]
    python benchmarks/imram.py --device cuda --images 1000 --texts 5000 --budget 2048 --loop-texts 200

The loop is written again from the description of the official code: for each caption, all pictures are attended with
its words (or with their regions) K times, each time followed by an update of the queries, the last one too. It takes
the same time for every caption, so `--loop-texts` of them are enough to know it. Memory is what the scoring needed on
top of the codes: on a CPU the growth of the process's resident peak (Linux), on a GPU that of PyTorch's allocator.
"""

from __future__ import annotations

import argparse
import ctypes
from collections.abc import Callable
from typing import Any

import torch
from pairwise import memory, problem, seconds
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import ImageCode, TextCode
from saccade.language import Vocabulary
from saccade.models import Imram, ImramConfig
from saccade.nn import MemoryDistillation


def loop(model: Imram, images: Tensor, texts: Tensor, lengths: list[int]) -> Tensor:
    """One caption at a time, as the official code does."""
    side = model.words_ask or model.regions_ask
    assert side is not None
    columns = []
    for caption, length in zip(texts, lengths, strict=True):
        words = caption[:length].repeat(len(images), 1, 1)  # a copy per picture, as officially
        first, context = (words, images) if side.words_ask else (images, words)
        query, total = first, 0.0
        for _ in range(side.steps):
            found = attended(query, context, side.form.sharpness)
            size = (first.norm(dim=2) * found.norm(dim=2)).clamp(min=1e-8)
            total = total + ((first * found).sum(dim=2) / size).mean(dim=1)
            query = updated(query, found, side.memory)
        columns.append(total)
    return torch.stack(columns, dim=1)


def attended(query: Tensor, context: Tensor, sharpness: float) -> Tensor:
    scores = F.leaky_relu(torch.bmm(context, query.transpose(1, 2)), 0.1)
    scores = scores / (scores.pow(2).sum(dim=2, keepdim=True).sqrt() + 1e-8)
    weights = torch.softmax(sharpness * scores.transpose(1, 2).contiguous(), dim=2)
    return torch.bmm(weights, context)


def updated(query: Tensor, found: Tensor, unit: MemoryDistillation) -> Tensor:
    assert unit.gate is not None
    assert unit.candidate is not None
    both = torch.cat([query, found], dim=2)
    gate = unit.gate(both).sigmoid()
    return query * gate + unit.candidate(both).tanh() * (1 - gate)


def growth(run: Callable[[], Any], device: str) -> int:
    """Bytes by which a run's peak exceeds what was there before."""
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # give back what earlier work left, or the growth would hide in it
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # forget the peak so far
    now = memory("VmRSS")
    run()
    return memory("VmHWM") - now


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--texts", type=int, default=160)
    parser.add_argument("--loop-texts", type=int, default=None, help="captions for the loop, if fewer")
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--queries", choices=["words", "regions"], default="words")
    parser.add_argument("--budget", type=int, default=256, help="MiB for ours")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device, count = arguments.device, arguments.texts
    pictures, sentences, lengths = problem(arguments.images, count, dim=arguments.dim)
    some = min(arguments.loop_texts or count, count)
    config = ImramConfig(
        dim=arguments.dim, queries=arguments.queries, steps=arguments.steps, budget_mb=arguments.budget
    )
    model = Imram(config, Vocabulary(("<pad>", "<start>", "<end>", "<unk>"))).to(device).eval()
    pictures, sentences = pictures.to(device), sentences.to(device)
    images = ImageCode(pictures, torch.ones(pictures.shape[:2], dtype=torch.bool, device=device))
    mask = torch.arange(sentences.shape[1], device=device) < torch.tensor(lengths, device=device)[:, None]
    texts = TextCode(sentences, mask)

    def wait(run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        def waiting() -> Tensor:
            result = run()
            if device == "cuda":
                torch.cuda.synchronize()
            return result

        return waiting

    slow = wait(lambda: loop(model, pictures, sentences[:some], lengths[:some]))
    fast = wait(lambda: model.similarity(images, texts))
    with torch.no_grad():
        few = [model.similarity(images.select(slice(0, 8)), texts.select(slice(0, 8)))]  # also warms up
        few.append(loop(model, pictures[:8], sentences[:8], lengths[:8]))
        ours_bytes, loop_bytes = growth(fast, device), growth(slow, device)
        ours_s, loop_s = seconds(fast), seconds(slow) * count / some
    difference = float((few[0] - few[1]).abs().max())
    name = f"{arguments.images:,} × {count:,}, 36 regions, {arguments.dim:,} dimensions, {arguments.steps} looks of the"
    print(f"{name} {arguments.queries}, float32, {device}")
    print(f"official loop {loop_s:8.2f} s   {loop_bytes / 2**20:7,.0f} MiB")
    print(f"ours          {ours_s:8.2f} s   {ours_bytes / 2**20:7,.0f} MiB, of a budget of {arguments.budget:,} MiB")
    print(f"{loop_s / ours_s:.1f}× faster, largest difference of 64 scores {difference:.1e}")


if __name__ == "__main__":
    main()
