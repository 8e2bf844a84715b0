"""Beam search over all pictures in one batch against one picture at a time: the same model, the same search, one run.

    python benchmarks/beam.py [--images 64] [--beam 5] [--finished slot] [--threads 2]
    python benchmarks/beam.py --device cuda --images 512

The captioner has Up-Down's sizes in the paper (two LSTMs of 1,000, 36 regions, 10,000 words) and random weights; <end>
is made so unlikely that every caption has `--longest` words. One picture at a time is the same function with batches of
one, which is kinder to it than the Python lists of the published codes. It takes the same time for every picture, so
`--loop-images` of them are enough to know it. Times are the best of several alternating runs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch

from saccade.batch import RegionBatch
from saccade.decoding import Decoded, DecodingConfig, beam_search
from saccade.language import Vocabulary
from saccade.language.vocabulary import END
from saccade.models import UpDown, UpDownConfig


def captioner(words: int, dim: int) -> UpDown:
    vocabulary = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *(f"word{i}" for i in range(words - 4))))
    model = UpDown(UpDownConfig(dim=dim, word_dim=dim), vocabulary).eval()
    with torch.no_grad():
        model.out.weight *= 60  # as sure of its words as a trained captioner: rounding then decides no caption
        model.out.bias[END] -= 1e4
    return model


def pictures(count: int, regions: int = 36, dim: int = 2048) -> RegionBatch:
    mask = torch.ones(count, regions, dtype=torch.bool)
    return RegionBatch(torch.randn(count, regions, dim).relu(), mask, torch.zeros(count, regions, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--loop-images", type=int, default=8, help="pictures for the loop, if fewer")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--longest", type=int, default=12, help="words of each caption")
    parser.add_argument("--finished", choices=["slot", "shrink", "aside"], default="slot")
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=1000, help="of the LSTMs")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = captioner(arguments.words, arguments.dim).to(arguments.device)
    images = pictures(arguments.images).to(arguments.device)
    config = DecodingConfig(beam=arguments.beam, finished=arguments.finished, longest=arguments.longest)
    some = min(arguments.loop_images, len(images))

    def together() -> Decoded:
        return beam_search(model, images, config, keep=1)

    def one_by_one() -> Decoded:
        return Decoded.join([beam_search(model, images.select([i]), config, keep=1) for i in range(some)])

    def seconds(run: Callable[[], Decoded]) -> float:
        begun = time.perf_counter()
        run()
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    same = sum(map(torch.equal, one_by_one().words, together().words[:some]))  # also warms up
    times = [(seconds(one_by_one), seconds(together)) for _ in range(arguments.runs)]
    slow, fast = min(alone for alone, _ in times) * len(images) / some, min(batch for _, batch in times)
    print(
        f"{len(images):,} pictures of 36 regions, beam {arguments.beam} ({arguments.finished}), "
        f"{config.longest} words a caption, LSTMs of {arguments.dim:,}, "
        f"{arguments.words:,} words, float32, {arguments.device}"
    )
    print(f"one picture at a time {slow:8.2f} s")
    print(f"all in one batch      {fast:8.2f} s")
    print(f"{slow / fast:.1f}× faster; {same} of {some} captions are the same")


if __name__ == "__main__":
    main()
