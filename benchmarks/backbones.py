"""DINOv2-S: how near a forward pass comes to the rate at which the same machine multiplies matrices.

    python -m benchmarks.backbones --device cuda       # within half a minute; the page's other rows stay

Most of a vision transformer is linear layers. The floor is the time in which one large product of the same precision,
measured in the same run, would do as many multiplications as all linear layers and the attention.
"""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Iterator
from functools import partial

import torch

from benchmarks.bench import Bench, Case
from benchmarks.command import main
from benchmarks.rows import Row, Target
from saccade.vision.backbones.dinov2 import Dinov2, Dinov2Config

TINY = Dinov2Config(dim=32, depth=2, heads=2, positions=4)


def cpu(bench: Bench) -> Iterator[Case]:
    yield Case("DINOv2-S, forward, float32", partial(forward, bench, 8, torch.float32, 1024, 0.55))


def gpu(bench: Bench) -> Iterator[Case]:
    yield Case("DINOv2-S, forward, bfloat16", partial(forward, bench, 256, torch.bfloat16, 8192, 0.25))


@torch.inference_mode()
def forward(bench: Bench, images: int, dtype: torch.dtype, side: int, share: float) -> Row:
    """`side`: of the product that gives the rate; `share` of that rate is the target."""
    config = TINY if bench.quick else Dinov2Config()
    images, side, size = bench.size(images, 2), bench.size(side, 64), bench.size(224, 56)
    torch.manual_seed(0)
    network = Dinov2("dinov2-s", config).to(bench.device).eval()
    pictures = torch.randn(images, 3, size, size, device=bench.device)
    matrix = torch.randn(side, side, device=bench.device, dtype=dtype)

    reading = copy.deepcopy(network)
    if dtype == torch.bfloat16:  # as `saccade extract --precision bf16`
        reading.read_in_bfloat16()

    def ours() -> torch.Tensor:
        return reading(pictures)[0]

    spent = bench.best_of(  # a GPU needs some turns to come to its clock, a CPU seconds for each
        {"ours": ours, "product": lambda: matrix @ matrix},
        runs=5 if bench.device == "cpu" else 30,
        warm=bench.device == "cpu",
    )
    exact = network.double()(pictures[:1].double())[0]
    patches = (size // config.patch) ** 2
    return Row(
        name="",
        shape=f"{images:,} pictures of {size} × {size}",
        seconds=spent["ours"],
        floor_seconds=multiplications(config, patches) * images * spent["product"] / side**3,
        floor="GEMM",
        difference=float((ours()[:1].double() - exact).abs().max()),
        figures={"pictures_a_second": images / spent["ours"]},
        targets=(Target("gemm_share", "≥", share),),
    )


def multiplications(config: Dinov2Config, patches: int) -> int:
    """Of one picture: the patches' layer, then in each block qkv, projection, two layers, and attention twice."""
    tokens, dim = 1 + config.registers + patches, config.dim
    block = tokens * dim * dim * (4 + 2 * config.mlp_ratio) + 2 * tokens * tokens * dim
    return patches * 3 * config.patch**2 * dim + config.depth * block


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options, others = parser.parse_known_args()
    kind, subject = ("gpu", gpu) if options.device == "cuda" else ("cpu", cpu)
    words = ["--only", "backbones", "--each", "25", *others]
    sys.exit(main(kind, options.device, {"backbones": subject}, 0.5, __doc__, words))
