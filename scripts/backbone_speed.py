"""How many pictures a second a backbone encodes on one thread: as trained and folded, channels first and last.

`python scripts/backbone_speed.py efficientnet-lite0` prints the table of docs/backbones.md. Time is that of the CPU, so
a busy machine disturbs it little; the best of several rounds counts.
"""

from __future__ import annotations

import argparse
import time

import torch

from saccade.vision.backbones.base import load_backbone


def seconds(backbone: torch.nn.Module, pictures: torch.Tensor) -> float:
    start = time.process_time()
    backbone(pictures)
    return (time.process_time() - start) / len(pictures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("backbone")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--size", type=int, default=0, help="side of the pictures; 0: the backbone's own")
    options = parser.parse_args()
    torch.set_num_threads(1)
    networks = {}
    for folded in (False, True):
        for last in (False, True):
            networks[folded, last] = load_backbone(options.backbone)
            if folded:
                networks[folded, last].fold_normalisation()
            if last:
                networks[folded, last].to(memory_format=torch.channels_last)
    size = options.size or networks[False, False].size
    pixels = torch.randint(0, 256, (options.batch_size, size, size, 3), dtype=torch.uint8)
    best = dict.fromkeys(networks, float("inf"))
    with torch.inference_mode():
        for _ in range(options.rounds):
            for key, network in networks.items():
                pictures = network.normalise(pixels)
                pictures = pictures if key[1] else pictures.contiguous()
                best[key] = min(best[key], seconds(network, pictures))
    print("| | channels first | channels last |\n|---|---|---|")
    for folded in (False, True):
        rates = " | ".join(f"{1 / best[folded, last]:.0f}" for last in (False, True))
        print(f"| {'folded' if folded else 'as trained'} | {rates} |")


if __name__ == "__main__":
    main()
