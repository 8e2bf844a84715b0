"""All-pairs attended similarity against the per-caption loop of the official SCAN algorithm, in one run.

    python benchmarks/pairwise.py [--threads 2] [--page FILE]

The loop is written again from the description of the official code: for each caption, the regions of all pictures are
attended with two batched products, and the attended vectors are compared with the words. Ratios are of the best of
several alternating runs. Memory is the growth of the process's resident peak (Linux).
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from saccade.ops.pairwise import AttentionForm, attended_similarity

FORMS = {
    "text→image": AttentionForm("clipped_l2", 9.0, pool="logsumexp", pool_sharpness=6.0),
    "image→text": AttentionForm("clipped_l2", 4.0, pool="logsumexp", pool_sharpness=5.0),
}
BUDGET = 256 << 20


def loop(images: Tensor, texts: Tensor, lengths: list[int], direction: str, form: AttentionForm) -> Tensor:
    """One caption at a time, as the official code does."""
    columns = []
    for caption, length in zip(texts, lengths, strict=True):
        words = caption[:length].repeat(len(images), 1, 1)  # [image, word, dim]: a copy per picture, as officially
        queries, context = (words, images) if direction == "text→image" else (images, words)
        scores = F.leaky_relu(torch.bmm(context, queries.transpose(1, 2)), 0.1)  # [image, part, query]
        scores = scores / (scores.pow(2).sum(dim=2, keepdim=True).sqrt() + 1e-8)
        weights = torch.softmax(form.sharpness * scores.transpose(1, 2).contiguous(), dim=2)
        attended = torch.bmm(weights, context)
        size = (queries.norm(dim=2) * attended.norm(dim=2)).clamp(min=1e-8)
        match = (queries * attended).sum(dim=2) / size
        columns.append((form.pool_sharpness * match).exp().sum(dim=1).log() / form.pool_sharpness)
    return torch.stack(columns, dim=1)


def ours(images: Tensor, texts: Tensor, lengths: list[int], direction: str, form: AttentionForm) -> Tensor:
    regions = torch.ones(images.shape[:2], dtype=torch.bool)
    words = torch.arange(texts.shape[1]) < torch.tensor(lengths)[:, None]
    if direction == "text→image":
        return attended_similarity(texts, words, images, regions, form, BUDGET).T
    return attended_similarity(images, regions, texts, words, form, BUDGET)


def problem(images: int, texts: int, regions: int = 36, dim: int = 1024) -> tuple[Tensor, Tensor, list[int]]:
    """Unit vectors with a common part, and captions of 8 to 18 words."""
    torch.manual_seed(0)
    lengths = torch.randint(8, 19, (texts,)).tolist()
    picture = torch.randn(images, regions, dim) + 0.8 * torch.randn(images, 1, dim)
    sentence = torch.randn(texts, max(lengths), dim) + 0.8 * torch.randn(texts, 1, dim)
    return F.normalize(picture, dim=-1), F.normalize(sentence, dim=-1), lengths


def with_backward(score: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, ...]]:
    def run(images: Tensor, texts: Tensor, *rest: object) -> tuple[Tensor, ...]:
        images, texts = images.detach().requires_grad_(), texts.detach().requires_grad_()
        similarity = score(images, texts, *rest)
        return similarity.detach(), *torch.autograd.grad(similarity.square().sum(), (images, texts))

    return run


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def compare(name: str, images: int, texts: int, backward: bool, repeats: int) -> dict[str, object]:
    pictures, sentences, lengths = problem(images, texts)
    direction = name.split(",")[0]
    form = FORMS[direction]
    slow, fast = (with_backward(loop), with_backward(ours)) if backward else (loop, ours)
    with torch.set_grad_enabled(backward):
        arguments = (pictures, sentences, lengths, direction, form)
        expected, found = slow(*arguments), fast(*arguments)  # also warms up
        pairs = zip(expected, found, strict=True) if backward else [(expected, found)]
        difference = max(float((a - b).abs().max()) for a, b in pairs)
        times = [(seconds(lambda: slow(*arguments)), seconds(lambda: fast(*arguments))) for _ in range(repeats)]
    reference, mine = min(t[0] for t in times), min(t[1] for t in times)
    return {"case": name, "loop_s": reference, "ours_s": mine, "ratio": reference / mine, "difference": difference}


def memory(field: str) -> int:
    """A line of the kernel's account of this process, in bytes: VmRSS (now) or VmHWM (the peak)."""
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{field}:"))


def peak_growth(images: int, texts: int, backward: bool) -> int:
    """Bytes by which the resident peak exceeds what was there before: temporaries, the table, and any gradients."""
    pictures, sentences, lengths = problem(images, texts)
    run = with_backward(ours) if backward else ours
    libc = ctypes.CDLL("libc.so.6")
    libc.malloc_trim(0)  # give back what earlier work left, or the growth would hide in it
    with torch.set_grad_enabled(backward):
        run(*problem(2, 2), "text→image", FORMS["text→image"])  # what the first call alone allocates
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")  # forget the peak so far
        before = memory("VmRSS")
        run(pictures, sentences, lengths, "text→image", FORMS["text→image"])
    return memory("VmHWM") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--page", help="also write what is printed to this Markdown file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    tell(f"36 regions, 1,024 dimensions, float32, {arguments.threads} threads, best of {arguments.repeats}")
    for images, texts, backward in ((64, 320, False), (64, 64, True)):
        for direction in FORMS:
            name = f"{direction}, {'forward + backward' if backward else 'forward'}, {images} × {texts}"
            row = compare(name, images, texts, backward, arguments.repeats)
            tell(
                f"{name:42} loop {row['loop_s']:7.3f} s   ours {row['ours_s']:7.3f} s   "
                f"{row['ratio']:5.1f}× faster   max difference {row['difference']:.1e}"
            )
    tell(f"\nmemory of the temporaries, against the stated budget of {BUDGET >> 20} MiB")
    for images, texts, backward in ((256, 1280, False), (512, 2560, False), (128, 640, True), (256, 1280, True)):
        case = f"{'forward + backward' if backward else 'forward'}, {images} × {texts:,}"
        inputs, untiled = (images * 36 + texts * 18) * 1024 * 4, images * texts * 36 * 18 * 4
        kept = inputs * (2 if backward else 1)  # the inputs without padding, and their gradients
        temporaries = max(0, peak_growth(images, texts, backward) - kept)
        tell(
            f"{case:34} {temporaries / 2**20:4.0f} MiB, {temporaries / BUDGET:4.2f} of the budget   "
            f"(one untiled tensor of scores: {untiled / 2**20:5,.0f} MiB)"
        )
    if arguments.page:
        heading = "# All pairs, against the per-caption loop\n\nMade by `python benchmarks/pairwise.py --page FILE`."
        Path(arguments.page).write_text(
            heading + "\n\n```text\n" + "\n".join(lines) + "\n```\n\nTemporaries are the growth of the "
            "resident peak less a copy of the inputs and, on the way back, their gradients.\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
