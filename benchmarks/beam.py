"""Beam search over all pictures in one batch against one picture at a time: the same model, the same search, one run.

    python benchmarks/beam.py [--images 64] [--beam 5] [--finished slot]
    python benchmarks/beam.py --device cuda --images 512

The captioner has Up-Down's sizes in the paper (two LSTMs of 1,000, 36 regions, 10,000 words) and random weights, with
<end> made so likely that captions are about as long as people's. One picture at a time is the same function with
batches of one, which is kinder to it than the Python lists of the published codes; it stops as soon as its picture is
settled, where the batch waits for its slowest.
"""

from __future__ import annotations

import argparse
import time

import torch

from saccade.batch import RegionBatch
from saccade.decoding import Decoded, DecodingConfig, beam_search
from saccade.language import Vocabulary
from saccade.language.vocabulary import END
from saccade.models import UpDown, UpDownConfig


def captioner(words: int, dim: int, end: float) -> UpDown:
    vocabulary = Vocabulary(("<pad>", "<start>", "<end>", "<unk>", *(f"word{i}" for i in range(words - 4))))
    model = UpDown(UpDownConfig(dim=dim, word_dim=dim), vocabulary).eval()
    with torch.no_grad():
        model.out.weight *= 60  # a trained captioner is surer than a fresh one, and ends sooner
        model.out.bias[END] += end
    return model


def pictures(count: int, regions: int = 36, dim: int = 2048) -> RegionBatch:
    mask = torch.ones(count, regions, dtype=torch.bool)
    return RegionBatch(torch.randn(count, regions, dim).relu(), mask, torch.zeros(count, regions, 4))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--finished", choices=["slot", "shrink", "aside"], default="slot")
    parser.add_argument("--words", type=int, default=10_000)
    parser.add_argument("--dim", type=int, default=1000, help="of the LSTMs")
    parser.add_argument("--end", type=float, default=12.0, help="added to the logit of <end>")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = captioner(arguments.words, arguments.dim, arguments.end).to(arguments.device)
    images = pictures(arguments.images).to(arguments.device)
    config = DecodingConfig(beam=arguments.beam, finished=arguments.finished)

    def together() -> Decoded:
        return beam_search(model, images, config, keep=1)

    def one_by_one() -> Decoded:
        return Decoded.join([beam_search(model, images.select([i]), config, keep=1) for i in range(len(images))])

    def timed(run: str) -> tuple[float, Decoded]:
        begun = time.perf_counter()
        decoded = together() if run == "together" else one_by_one()
        if arguments.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun, decoded

    beam_search(model, images.select([0]), config)  # warms up
    slow, alone = timed("one by one")
    fast, batch = min((timed("together") for _ in range(3)), key=lambda run: run[0])
    lengths = batch.lengths.float()
    same = sum(map(torch.equal, alone.words, batch.words))
    print(
        f"{len(images)} pictures of 36 regions, beam {arguments.beam} ({arguments.finished}), "
        f"LSTMs of {arguments.dim:,}, {arguments.words:,} words, "
        f"captions of {lengths.mean():.1f} words (at most {int(lengths.max())}), float32, {arguments.device}"
    )
    print(f"one picture at a time {slow:8.2f} s")
    print(f"all in one batch      {fast:8.2f} s")
    print(f"{slow / fast:.1f}× faster; {same} of {len(images)} captions are the same")


if __name__ == "__main__":
    main()
