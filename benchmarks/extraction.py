"""The bottom-up detector and extraction: all pictures of a batch at once against one at a time, as the published code.

That code takes one picture, walks through the boxes of its proposals, then through the boxes of every class; here both
are `greedily_one_by_one`, in Python on the CPU (compiled, as published, the walk itself is quicker). The network is the
same, our detector with the weights of the package, and its pictures are the photos of the repository, shifted so that
no two are alike. One picture takes the same time whatever their number, so a few are enough to know it.

Extraction from files is held against its parts: what the cores decode when they do nothing else, and what the network
sees of pictures that are in memory.
"""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.bench import Bench, Case
from benchmarks.rows import Row, Target
from saccade.batch import RegionBatch
from saccade.data.store.arrow import StoreWriter
from saccade.features import extract
from saccade.vision import Picture, RegionExtractor
from saccade.vision.boxes import clip, iou, valid
from saccade.vision.detectors.bottomup import MIN_CLASS_SCORE, BottomUpExtractor, load_bottomup, refine
from saccade.vision.detectors.rpn import MIN_PROPOSAL_SIDE, decode
from saccade.vision.grid import GridExtractor, GridNetwork, grid_config
from saccade.vision.nms import class_confidence, nms, select
from saccade.vision.pictures import find_pictures, open_picture
from saccade.vision.roi import centre_points, sample, sample_grid

PHOTOS = Path(__file__).parents[1] / "photos"
LOOP = 3  # pictures for the loops


def cpu(bench: Bench) -> Iterator[Case]:
    yield from cases(bench, 16, 4096)


def gpu(bench: Bench) -> Iterator[Case]:
    yield from cases(bench, 256, 16384)


def cases(bench: Bench, count: int, photos: int) -> Iterator[Case]:
    images = bench.size(count, 2)
    yield Case("suppression of proposals", partial(proposals, bench, images))
    yield Case("suppression by classes", partial(classes, bench, images))
    yield Case("reading regions from maps", partial(reading, bench, images))
    yield Case("bottom-up detector", partial(detector, bench, images))
    listed = photo_files(bench.size(32 if count < 64 else 8192, 4))
    yield Case("extraction, photo files to store", partial(files, bench, listed, load_bottomup))
    yield Case("extraction with DINOv2-S, photo files to store", partial(files, bench, listed, cells_of_dinov2))
    yield Case("extraction, all but the network", partial(without_network, bench, bench.size(photos, 4)))


def proposals(bench: Bench, images: int) -> Row:
    boxes, scores = crowd(images, bench.size(1000, 40), bench.device)
    some = min(LOOP, images)

    def one_by_one() -> list[Tensor]:
        pairs = zip(boxes[:some].cpu(), scores[:some].cpu(), strict=True)
        return [greedily_one_by_one(iou(box, box), score, 0.7) for box, score in pairs]

    spent = bench.best_of({"ours": lambda: nms(boxes, scores, 0.7), "loop": one_by_one}, runs=3)
    wrong = (torch.stack(one_by_one()) != nms(boxes, scores, 0.7)[:some].cpu()).sum()
    return Row(
        name="",
        shape=f"{images:,} pictures × {boxes.shape[1]:,} boxes",
        seconds=spent["ours"],
        official_seconds=spent["loop"] * images / some,
        figures={"answers_that_differ": float(wrong)},
        targets=(Target("speedup", "≥", 5), Target("answers_that_differ", "≤", 0)),
        note=f"against a walk through each picture's boxes, timed on {some}",
    )


def classes(bench: Bench, images: int) -> Row:
    boxes, _ = crowd(images, bench.size(150, 20), bench.device)
    names = bench.size(345, 6)
    chances = (3 * torch.randn(*boxes.shape[:2], names + 1, device=bench.device)).softmax(dim=-1)
    spent = bench.best_of(
        {
            "ours": lambda: class_confidence(boxes, chances, floor=MIN_CLASS_SCORE),
            "loop": lambda: worth_one_by_one(boxes[0].cpu(), chances[0].cpu()),
        },
        runs=3,
    )
    found, wanted = class_confidence(boxes, chances)[0].cpu(), worth_one_by_one(boxes[0].cpu(), chances[0].cpu())
    return Row(
        name="",
        shape=f"{images:,} pictures × {boxes.shape[1]:,} boxes × {names:,} classes",
        seconds=spent["ours"],
        official_seconds=spent["loop"] * images,
        difference=float((found - wanted).abs().max()),
        targets=(Target("speedup", "≥", 20), Target("difference", "≤", 0)),
        note="against a walk through each class's boxes, timed on one picture",
    )


def reading(bench: Bench, images: int) -> Row:
    images, regions, dim, side = min(images, 64), bench.size(150, 5), bench.size(256, 8), bench.size(40, 6)
    maps = torch.randn(images, dim, side, side, device=bench.device).to(memory_format=torch.channels_last)
    points = centre_points(crowd(images, regions, bench.device)[0].flatten(0, 1), 7)
    picture = torch.arange(images, device=bench.device).repeat_interleave(regions)
    one = torch.zeros(regions, dtype=torch.long, device=bench.device)

    def one_by_one() -> Tensor:
        parts = zip(maps.split(1), points.split(regions), strict=True)
        return torch.cat([sample_grid(own, place, one, "border", False) for own, place in parts])

    def ours() -> Tensor:
        return sample(maps, points, picture, "border", False)

    spent = bench.best_of({"ours": ours, "one_by_one": one_by_one}, runs=3)
    exact = sample_grid(maps.double(), points.double(), picture, "border", False)
    return Row(
        name="",
        shape=f"{images:,} pictures × {regions:,} boxes × 7 × 7 points × {dim:,}-d of {side} × {side} cells",
        seconds=spent["ours"],
        official_seconds=spent["one_by_one"],
        difference=float((ours() - exact).abs().max()),
        targets=(Target("speedup", "≥", 1.5), Target("difference", "≤", 1e-3)),
        note="against grid_sample of one picture at a time",
    )


@torch.inference_mode()
def detector(bench: Bench, images: int) -> Row:
    extractor = load_bottomup()
    extractor.to(bench.device)
    pictures = shifted_photos(extractor, images)
    some = min(LOOP, images)

    def one_by_one() -> list[tuple[Tensor, Tensor]]:
        return [regions_of_one(extractor, torch.from_numpy(one[None]).to(extractor.device)) for one in pictures[:some]]

    spent = bench.best_of({"ours": lambda: extractor.extract(pictures), "loop": one_by_one}, runs=2)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # a batch would round otherwise
        seen, wanted = extractor.extract(pictures[:some]), one_by_one()
    differ, off = 0, torch.zeros(())
    for i, (boxes, vectors) in enumerate(wanted):
        found = seen.select([i])
        same = found.mask.sum() == len(boxes) and torch.allclose(found.boxes[found.mask], boxes.cpu(), atol=1e-4)
        differ += not same
        off = torch.maximum(off, (found.features[found.mask] - vectors.cpu()).abs().max()) if same else off
    return Row(
        name="",
        shape=f"{images:,} pictures of {extractor.config.size} × {extractor.config.size}, "
        f"{len(extractor.config.classes)} classes",
        seconds=spent["ours"],
        official_seconds=spent["loop"] * images / some,
        figures={
            "pictures_a_second": images / spent["ours"],
            "answers_that_differ": float(differ),
            "largest_difference_of_a_feature": float(off),
        },
        targets=(Target("speedup", "≥", 2), Target("answers_that_differ", "≤", 0)),
        note=f"against one picture at a time with walks through proposals and classes, timed on {some}",
    )


def cells_of_dinov2() -> GridExtractor:
    """8 × 8 of them; with weights drawn at random, which take the same time."""
    return GridExtractor(GridNetwork(grid_config("dinov2-s@224/8"), pretrained=False))


def files(
    bench: Bench, listed: Sequence[tuple[str, Path]], load: Callable[[], BottomUpExtractor | GridExtractor]
) -> Row:
    """Decoding and writing included. The loop opens, sees and keeps one file after the other, without its walks."""
    images, extractor = len(listed), load()
    extractor.to(bench.device)
    if bench.device == "cuda" and isinstance(extractor, GridExtractor):  # as `--precision bf16`
        extractor.read_in_bfloat16()
    prepared = shifted_photos(extractor, min(images, 256))
    some = min(4 * LOOP, images)

    def one_by_one() -> None:
        with (
            tempfile.TemporaryDirectory() as folder,
            StoreWriter(Path(folder) / "store", extractor.dim, "float16") as writer,
        ):
            for id, path in listed[:some]:
                image = open_picture(path)
                seen = extractor.extract([image])
                writer.append(id, seen.features[0].numpy(), seen.boxes[0].numpy(), *image.size)

    parts = {
        "ours": extracting(listed, extractor),
        "decoding": decoding(listed, extractor),
        "network": lambda: extractor.extract(prepared),
        "loop": one_by_one,
    }
    spent = bench.best_of(parts, runs=2, limit=60)
    targets = [Target("speedup", "≥", 1)]
    if bench.device == "cuda" and not bench.quick:
        targets.append(Target("pictures_a_second", "≥", 1000))
    return Row(
        name="",
        shape=f"{images:,} photos of {mean_side(listed):.0f} pixels a side",
        seconds=spent["ours"],
        official_seconds=spent["loop"] * images / some,
        figures={
            "pictures_a_second": images / spent["ours"],
            "decoded_alone_a_second": images / spent["decoding"],
            "seen_alone_a_second": len(prepared) / spent["network"],
        },
        targets=tuple(targets),
        note=f"against one file after the other through the same network, timed on {some}",
    )


def without_network(bench: Bench, images: int) -> Row:
    """Decoding, copying and writing, with an extractor that costs nothing, against decoding alone on every core."""
    extractor, listed = Blank(), photo_files(images)
    spent = bench.best_of(
        {"ours": extracting(listed, extractor), "decoding": decoding(listed, extractor)}, runs=3, limit=60
    )
    return Row(
        name="",
        shape=f"{images:,} photos of {mean_side(listed):.0f} pixels a side, {cores()} cores",
        seconds=spent["ours"],
        figures={
            "pictures_a_second": images / spent["ours"],
            "decoded_alone_a_second": images / spent["decoding"],
            "of_decoding": spent["decoding"] / spent["ours"],
        },
        targets=() if bench.quick else (Target("of_decoding", "≥", 0.9),),
        note="against as many processes that decode their share and do nothing else",
    )


class Blank(RegionExtractor):
    """Sixteen regions of zeros a picture, at no cost."""

    def __init__(self) -> None:
        self.name, self.digest, self.dim, self.picture_size = "blank", "0", 256, 224
        self.network = nn.Linear(1, 1)
        self.nothing = torch.zeros(64, 16, self.dim)  # made once: to fill it is work for PyTorch's threads

    def extract(
        self, images: Sequence[Picture], boxes: Sequence[np.ndarray] | None = None, batch_size: int = 64
    ) -> RegionBatch:
        places = torch.tensor([0.0, 0.0, 1.0, 1.0]).expand(len(images), 16, 4)
        return RegionBatch(self.nothing[: len(images)], torch.ones(len(images), 16, dtype=torch.bool), places)


def photo_files(count: int) -> list[tuple[str, Path]]:
    paths = find_pictures(PHOTOS)
    return [(f"{i}.jpg", paths[i % len(paths)]) for i in range(count)]


def mean_side(listed: Sequence[tuple[str, Path]]) -> float:
    return float(np.mean([open_picture(path).size for path in {path for _, path in listed}]))


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def extracting(listed: Sequence[tuple[str, Path]], extractor: RegionExtractor) -> Callable[[], None]:
    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            extract(listed, extractor, Path(folder) / "store", batch_size=64)

    return run


def decoding(listed: Sequence[tuple[str, Path]], extractor: RegionExtractor) -> Callable[[], None]:
    """The photos opened and shrunk by one process a core, which keep nothing."""

    def decode(part: Sequence[tuple[str, Path]]) -> None:
        for id, path in part:
            extractor.prepare(open_picture(path), id)

    def run() -> None:
        context = multiprocessing.get_context("fork")
        processes = [context.Process(target=decode, args=(listed[i :: cores()],)) for i in range(cores())]
        for process in processes:
            process.start()
        for process in processes:
            process.join()

    return run


def crowd(images: int, boxes: int, device: str) -> tuple[Tensor, Tensor]:
    """Boxes that crowd around a few places, as proposals do, and their scores."""
    generator = torch.Generator().manual_seed(0)
    middle = torch.rand(images, -(-boxes // 8), 2, generator=generator).repeat(1, 8, 1)[:, :boxes]
    middle = middle + 0.02 * torch.randn(images, boxes, 2, generator=generator)
    half = 0.05 + 0.15 * torch.rand(images, boxes, 2, generator=generator)
    places = clip(torch.cat([middle - half, middle + half], dim=-1))
    return places.to(device), torch.rand(images, boxes, generator=generator).to(device)


def shifted_photos(extractor: RegionExtractor, count: int) -> list[np.ndarray]:
    """Ready for the extractor: the photos of the repository over and over, each time moved a little farther."""
    photos = [extractor.prepare(path) for path in find_pictures(PHOTOS)]
    return [np.roll(photos[i % len(photos)], 13 * (i // len(photos)), axis=1) for i in range(count)]


def greedily_one_by_one(overlap: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The rule as the published codes have it, for one list of boxes: what `nms` is tested and timed against."""
    kept = torch.zeros(len(scores), dtype=torch.bool)
    left = scores.argsort(descending=True, stable=True)
    while len(left):
        first, left = left[0], left[1:]
        kept[first] = True
        left = left[~(overlap[first, left] > threshold)]
    return kept


def worth_one_by_one(boxes: Tensor, chances: Tensor, overlap: float = 0.3) -> Tensor:
    """`class_confidence` of one picture as it was published: class by class, and each box by box."""
    between, worth = iou(boxes, boxes), torch.zeros(len(boxes))
    for label in range(1, chances.shape[1]):
        kept = greedily_one_by_one(between, chances[:, label], overlap)
        worth = torch.where(kept, torch.maximum(worth, chances[:, label]), worth)
    return worth


def regions_of_one(extractor: BottomUpExtractor, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """Boxes and vectors of one picture: what `extract` gives, by the published steps."""
    c, network = extractor.config, extractor.network
    maps = network.maps(pixels)
    output = network.rpn(maps.joined)
    logits, place = output.logits[0].topk(min(c.candidates, output.logits.shape[1]))
    boxes = clip(decode(output.changes[0, place], output.anchors[place]))
    boxes, score = (part[valid(boxes, MIN_PROPOSAL_SIDE)] for part in (boxes, logits.sigmoid()))
    on_cpu = boxes.cpu()
    kept = greedily_one_by_one(iou(on_cpu, on_cpu), score.cpu(), c.proposal_overlap)
    boxes = boxes[kept.to(boxes.device)][None, : c.proposals]
    heads = network.classify(network.vectors(maps, boxes))
    boxes = refine(boxes, heads.changes)
    worth = worth_one_by_one(boxes[0].cpu(), heads.classes.softmax(dim=-1)[0].cpu(), c.class_overlap)
    worth = torch.where(worth >= MIN_CLASS_SCORE, worth, 0.0)
    order, real = select(worth[None], c.confidence, c.least, c.most)
    boxes = boxes[:, order[0][real[0]].to(boxes.device)]
    boxes = torch.cat([boxes, boxes.new_tensor([[[0.0, 0.0, 1.0, 1.0]]])], dim=1) if c.whole else boxes
    return boxes[0], network.vectors(maps, boxes)[0]
