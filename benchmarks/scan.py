"""SCAN: every picture with every caption, forward and backward, both directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from benchmarks.bench import Bench, Case
from benchmarks.official import scan_loop
from benchmarks.problems import FORMS, Problem, largest_difference, part_of, problem, scan
from benchmarks.rows import Row, Target
from benchmarks.timing import product
from saccade.data import DataConfig
from saccade.language import Vocabulary
from saccade.metrics import CUTOFFS, WAYS, recall
from saccade.models import Matcher, Scan, ScanConfig, load_model
from saccade.ops import attended_similarity_reference
from saccade.tasks.evaluator import SplitForModels
from saccade.tasks.matching.evaluate import encode_all_images, encode_all_texts
from saccade.tasks.matching.refined import Refined, refine

MIB = 1 << 20
SLOW, FLOOR, EXACT = Target("speedup", "≥", 150), Target("times_floor", "≤", 2), Target("difference", "≤", 1e-5)
ROUNDED = Target("difference", "≤", 2e-3)
SCORES_ONLY = ScanConfig(region_dim=1, word_dim=1, dim=2, budget_mb=2048)  # a SCAN whose encoders nobody asks
Compare = Callable[[Problem, Matcher, str], Row]


def cpu(bench: Bench) -> Iterator[Case]:
    for direction in FORMS:
        targets = (Target("speedup", "≥", 12), Target("gemm_share", "≥", 0.7), EXACT)
        sizes = partial(table, bench, direction, 64, 320, torch.float32, 256 * MIB, targets)
        yield Case(f"SCAN {direction}, float32", sizes)
    for direction in FORMS:
        run = partial(both_ways, bench, direction, 64, torch.float32, 256 * MIB, (EXACT,))
        yield Case(f"SCAN {direction}, forward + backward", run)
    yield Case("SCAN text→image, memory of a larger table", partial(in_budget, bench, 256, 1280, 256 * MIB))


def gpu(bench: Bench) -> Iterator[Case]:
    for direction in FORMS:
        rounded = (FLOOR, SLOW, ROUNDED)
        targets = {torch.bfloat16: rounded, torch.float16: rounded, torch.float32: (EXACT,)}
        for dtype, wanted in targets.items():
            run = partial(table, bench, direction, 1000, 5000, dtype, 2048 * MIB, wanted)
            yield Case(f"SCAN {direction}, {_named(dtype)}", run)
    for dtype, again in ((torch.float16, False), (torch.bfloat16, False), (torch.bfloat16, True)):
        codes = f"{_named(dtype)} codes" + (", close ones again" if again else "")
        compare = partial(compared_again if again else compared, bench, dtype=dtype)
        if bench.photographs is not None:
            yield Case(f"recall@K on Flickr8k, {codes}", partial(recalls_on_photos, bench, *bench.photographs, compare))
        else:
            for direction in FORMS:
                yield Case(f"recall@K, SCAN {direction}, {codes}", partial(recalls, bench, direction, compare))
    large = (Target("times_floor", "≤", 2.2), Target("peak_bytes", "≤", 8e9), ROUNDED)
    for direction in FORMS:
        run = partial(table, bench, direction, 5000, 25_000, torch.bfloat16, 2048 * MIB, large)
        yield Case(f"SCAN {direction}, COCO-5K, bfloat16", run)
    for direction in FORMS:
        for dtype, wanted in {torch.bfloat16: (Target("speedup", "≥", 20),), torch.float32: (EXACT,)}.items():
            run = partial(both_ways, bench, direction, 128, dtype, 2048 * MIB, wanted)
            yield Case(f"SCAN {direction}, forward + backward, {_named(dtype)}", run)


@torch.no_grad()
def table(
    bench: Bench,
    direction: str,
    images: int,
    texts: int,
    dtype: torch.dtype,
    budget: int,
    targets: tuple[Target, ...],
) -> Row:
    """All pairs once. The loop takes as long for every caption, so on large tables some of them are enough."""
    given = problem(bench.device, bench.size(images, 6), bench.size(texts, 20), dim=bench.size(1024, 32))
    rounded, some = given.to(dtype), given.some(len(given.images), 320)
    ours = partial(scan, rounded, direction, budget)
    loop = partial(official, some, direction)
    spent = bench.best_of({"ours": ours, "loop": loop, "floor": product(*rounded.packed())})
    found, peak = bench.peak(ours)  # after the first run: what choosing a kernel takes is not the operator's
    part = given.some(8, 24)
    return Row(
        name="",
        shape=given.shape,
        seconds=spent["ours"],
        official_seconds=spent["loop"] * len(given.lengths) / len(some.lengths),
        floor_seconds=spent["floor"],
        floor="GEMM",
        difference=largest_difference(part_of(found, part), plainly(part, direction)),
        peak_bytes=peak,
        targets=targets,
        note=_loop_note(len(some.lengths), len(given.lengths)),
    )


def both_ways(
    bench: Bench, direction: str, batch: int, dtype: torch.dtype, budget: int, targets: tuple[Target, ...]
) -> Row:
    """The table of a batch and its gradient; reduced precision is that of autocast, as in training."""
    size = bench.size(batch, 6)
    given = problem(bench.device, size, size, dim=bench.size(1024, 32))

    def ours(given: Problem) -> Tensor:
        with torch.autocast(bench.device, torch.bfloat16, enabled=dtype == torch.bfloat16):
            return scan(given, direction, budget)

    run, loop = (partial(with_gradient, score, given) for score in (ours, partial(official, direction=direction)))
    spent = bench.best_of({"ours": run, "loop": loop})
    _, peak = bench.peak(run)
    part = given.some(12, 12)
    known = with_gradient(partial(official, direction=direction), part.to(torch.float64))
    found = with_gradient(ours, part)
    return Row(
        name="",
        shape=given.shape,
        seconds=spent["ours"],
        official_seconds=spent["loop"],
        difference=max(map(largest_difference, found, known)),
        peak_bytes=peak,
        targets=targets,
        note="scores and gradients",
    )


@torch.no_grad()
def in_budget(bench: Bench, images: int, texts: int, budget: int) -> Row:
    """What a table needs on top of its inputs, a copy of them without padding, and itself."""
    given = problem(bench.device, bench.size(images, 6), bench.size(texts, 20), dim=bench.size(1024, 32))
    _, peak = bench.peak(partial(scan, given, "text→image", budget))
    kept = sum(part.numel() * part.element_size() for part in given.packed()) + 4 * len(given.images) * len(
        given.lengths
    )
    shares = {} if peak is None else {"of_budget": max(0, peak - kept) / budget}
    note = f"temporaries, against a budget of {budget // MIB} MiB"
    return Row("", given.shape, peak_bytes=peak, figures=shares, targets=(Target("of_budget", "≤", 1),), note=note)


@torch.no_grad()
def recalls(bench: Bench, direction: str, compare: Compare) -> Row:
    """Synthetic pairs, found about as often as photographs are."""
    given = problem(bench.device, bench.size(1000, 6), bench.size(5000, 30), dim=bench.size(1024, 32))
    form = FORMS[direction]
    config = replace(
        SCORES_ONLY,
        queries="words" if direction == "text→image" else "regions",
        sharpness=form.sharpness,
        pool_sharpness=form.pool_sharpness,
    )
    return compare(given, Scan(config, Vocabulary.build([])), "synthetic")


@torch.no_grad()
def recalls_on_photos(bench: Bench, source: DataConfig, name: str, compare: Compare) -> Row:
    """A dev split, seen and read by a trained model."""
    model = load_model(name, Matcher).to(bench.device).eval()
    data = SplitForModels(source, "dev").regions_for(model, name)
    images, texts = encode_all_images(model, data), encode_all_texts(model, data.texts)
    given = Problem(images, texts, texts.mask.sum(dim=1).tolist(), torch.from_numpy(data.image_of_text))
    return compare(given, model, f"{name}, dev split")


def compared(bench: Bench, given: Problem, model: Matcher, what: str, dtype: torch.dtype) -> Row:
    """Do rounded codes find anything else than exact ones? In float16 they should not; bfloat16 has 3 bits less."""
    exact, rounded = (model.similarity(kind.images, kind.texts) for kind in (given, given.to(dtype)))
    targets = (Target("recalls_that_differ", "≤", 0),) if dtype == torch.float16 else ()
    figures, note = _recalls(given, exact, rounded)
    return Row("", f"{given.shape}, {what}", figures=figures, targets=targets, note=note)


def compared_again(bench: Bench, given: Problem, model: Matcher, what: str, dtype: torch.dtype) -> Row:
    """Rounded codes first, and exact ones for pairs that a rank hangs on: they must find the same, and sooner."""
    owner = given.owner.cpu().numpy()

    def exact() -> Tensor:
        return model.similarity(given.images, given.texts)

    def ours() -> Refined:
        short = given.to(dtype)
        quick = model.similarity(short.images, short.texts)
        return refine(quick, owner, partial(model.pair_scores, given.images, given.texts), exact)

    spent = bench.best_of({"ours": ours, "exact": exact})
    found, peak = bench.peak(ours)
    figures, note = _recalls(given, exact(), found.table)
    return Row(
        name="",
        shape=f"{given.shape}, {what}",
        seconds=spent["ours"],
        official_seconds=spent["exact"],
        peak_bytes=peak,
        figures={**figures, "percent_again": 100 * found.share},
        targets=(Target("recalls_that_differ", "≤", 0),),
        note=f"against the table of float32; {note}",
    )


def _recalls(given: Problem, exact: Tensor, found: Tensor) -> tuple[dict[str, float], str]:
    """How the recalls of one table differ from those of another, and what the latter are."""
    owner = given.owner.cpu().numpy()
    known, ours = (recall(table.float().cpu().numpy(), owner) for table in (exact, found))
    names = [f"{way}_r{k}" for way in WAYS for k in CUTOFFS]
    changes = [abs(known[name] - ours[name]) for name in names]
    figures = {"recalls_that_differ": float(sum(change > 0 for change in changes)), "rsum": ours["rsum"]}
    figures["largest_change_in_points"] = max(changes)
    return figures, "in float32 " + " ".join(f"{known[name]:.1f}" for name in names)


def official(given: Problem, direction: str) -> Tensor:
    form = FORMS[direction]
    assert direction in ("text→image", "image→text")
    return scan_loop(given.images.regions, given.texts.words, given.lengths, direction, form)  # type: ignore[arg-type]


def plainly(given: Problem, direction: str) -> Tensor:
    """From the definition, pair by pair, in float64 and of vectors that nothing has rounded."""
    regions, words = (given.images.regions, given.images.mask), (given.texts.words, given.texts.mask)
    if direction == "text→image":
        return attended_similarity_reference(*words, *regions, FORMS[direction]).T
    return attended_similarity_reference(*regions, *words, FORMS[direction])


def with_gradient(score: Callable[[Problem], Tensor], given: Problem) -> tuple[Tensor, ...]:
    leaves = [vectors.detach().requires_grad_() for vectors in (given.images.regions, given.texts.words)]
    images, texts = given.images, given.texts
    asked = Problem(
        type(images)(leaves[0], images.mask), type(texts)(leaves[1], texts.mask), given.lengths, given.owner
    )
    similarity = score(asked)
    gradients = torch.autograd.grad(similarity.square().sum(), leaves)
    return similarity.detach(), *gradients


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _loop_note(some: int, all_: int) -> str:
    return f"loop timed on {some:,} captions" if some < all_ else ""
