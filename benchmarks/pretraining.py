"""A step of InterBERT's pre-training: as a share of what the device can multiply, and against the same model written
with PyTorch's `nn.TransformerEncoder` in a plain loop; and what leaving padding out is worth.

Operations are counted as the model needs them: for real tokens alone, a backward pass twice the forward pass, and word
logits of hidden pieces only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.bench import Bench, Case
from benchmarks.problems import LONGEST, SHORTEST
from benchmarks.rows import Row, Target
from saccade.batch import END, START, PairBatch, RegionBatch, TextBatch
from saccade.language.wordpieces import official_pieces
from saccade.models import InterBert, InterBertConfig
from saccade.nn.transformer import attend_over, pack, places_of
from saccade.nn.transformer.embeddings import locations, whole_location
from saccade.ops import Backend, backend
from saccade.ops.packed_attention import PACKED_ATTENTION, PackedAttention, through_padding
from saccade.tasks.pretraining.task import MaskedPairs, PretrainingConfig, mask_pairs, score_objectives

PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}  # multiply-adds as two, of bfloat16 without sparsity
REGIONS, PIECES = 36, 30522
SETTINGS = PretrainingConfig(region_target="features", hard_rate=0.0)
IN_A_ROW = 4  # steps that are timed as one: the next is launched while the last still computes, as in training


class Plain(nn.Module):
    """InterBERT by PyTorch's own encoder layers; embeddings and outputs are the model's."""

    def __init__(self, model: InterBert) -> None:
        super().__init__()
        config, preset = model.config, model.config.preset
        self.model = model

        def stack(layers: int, heads: int, hidden: int) -> nn.TransformerEncoder:
            rate = config.dropout
            layer = nn.TransformerEncoderLayer(config.dim, heads, hidden, rate, "gelu", batch_first=True)
            return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

        self.shared = stack(preset.layers, config.heads, config.hidden)
        self.text = stack(preset.text_layers, config.heads, config.hidden)
        self.image = stack(preset.image_layers, config.image_heads, config.image_hidden)

    def forward(self, given: MaskedPairs) -> Tensor:
        model, images = self.model, given.images
        features = images.features.masked_fill(given.regions[..., None], 0)
        whole = features.sum(dim=1, keepdim=True) / images.mask.sum(dim=1)[:, None, None]
        where = torch.cat([whole_location(features).expand(len(features), 1, -1), locations(images.boxes)], dim=1)
        regions = model.image(torch.cat([whole, features], dim=1), where)
        words = model.text(given.texts.tokens)
        away = ~torch.cat([images.mask[:, :1], images.mask, given.texts.mask], dim=1)
        both = self.shared(torch.cat([regions, words], dim=1), src_key_padding_mask=away)
        count = regions.shape[1]
        regions = self.image(both[:, :count], src_key_padding_mask=away[:, :count])
        words = self.text(both[:, count:], src_key_padding_mask=away[:, count:])
        pooled = model.pool(regions, words)
        masked = given.regions & given.matched[:, None]
        losses = [
            F.cross_entropy(model.word_logits(words).flatten(0, 1), given.words.flatten(), ignore_index=-1),
            model.region_loss(model.region_outputs(regions[:, 1:]), masked, images.features),
            model.match_loss(model.match_logits(pooled), given.matched),
        ]
        return torch.stack(losses).sum()


def gpu(bench: Bench) -> Iterator[Case]:
    yield Case("InterBERT, a pre-training step", partial(step_row, bench, 512))
    yield Case("InterBERT, a pre-training step of many pairs", partial(step_row, bench, 2048))
    yield Case("attention within packed items", partial(attention_row, bench))
    yield from cpu(bench)


def cpu(bench: Bench) -> Iterator[Case]:
    yield Case("InterBERT's layers without padding", partial(padding_row, bench))


def config_of(bench: Bench, **settings: Any) -> InterBertConfig:
    small = {"dim": 16, "heads": 2, "image_heads": 2, "hidden": 32, "image_hidden": 32, "pooled_dim": 16, "layers": 1}
    small |= {"text_layers": 1, "image_layers": 1, "region_dim": 24}
    own = {**(small if bench.quick else {}), "region_output": "features", **settings}
    return InterBertConfig(**own)  # type: ignore[arg-type]


def batch_of(bench: Bench, pairs: int, dim: int, ragged: bool = False) -> PairBatch:
    """Captions of 8 to 18 pieces; regions are 36, or from 10 on where they are ragged."""
    torch.manual_seed(0)
    words = torch.randint(5, PIECES if not bench.quick else 90, (pairs, LONGEST)).tolist()
    lengths = torch.randint(SHORTEST, LONGEST + 1, (pairs,)).tolist()
    texts = TextBatch.of([[START, *own[:count], END] for own, count in zip(words, lengths, strict=True)])
    counts = torch.randint(10, REGIONS + 1, (pairs,)) if ragged else torch.full((pairs,), REGIONS)
    mask = torch.arange(REGIONS) < counts[:, None]
    corner = torch.rand(pairs, REGIONS, 2) * 0.5
    boxes = torch.cat([corner, corner + 0.1 + torch.rand(pairs, REGIONS, 2) * 0.4], dim=2)
    images = RegionBatch(torch.randn(pairs, REGIONS, dim) * mask[..., None], mask, boxes)
    return PairBatch(images, texts, torch.arange(pairs), torch.arange(pairs)).to(bench.device)


def operations(model: InterBert, given: MaskedPairs) -> float:
    """Of forward and backward, for real tokens."""
    config, preset = model.config, model.config.preset
    words, regions = given.texts.mask.sum(dim=1).double(), given.images.mask.sum(dim=1).double() + 1

    def layers(count: int, tokens: Tensor, hidden: int) -> float:
        each = 2 * (4 * config.dim**2 + 2 * config.dim * hidden)
        return count * float((tokens * each + 4 * tokens**2 * config.dim).sum())

    found = layers(preset.layers, words + regions, config.hidden) + layers(preset.text_layers, words, config.hidden)
    found += layers(preset.image_layers, regions, config.image_hidden)
    predicted = float((given.words >= 0).sum()) * len(model.vocabulary) + float(given.regions.sum()) * config.region_dim
    return 3 * (found + 2 * config.dim * (predicted + float(regions.sum()) * config.region_dim))


def peak_of(bench: Bench) -> float:
    """What the device multiplies at best: published, or else by a large product in the same numbers."""
    if bench.device == "cuda":
        name = torch.cuda.get_device_name()
        if (known := next((peak for part, peak in PEAKS.items() if part in name), None)) is not None:
            return known
    side = bench.size(4096 if bench.device == "cuda" else 1024, 64)
    matrix = torch.randn(side, side, device=bench.device, dtype=number_of(bench))
    return 2 * side**3 / bench.best_of({"product": lambda: matrix @ matrix})["product"]


def number_of(bench: Bench) -> torch.dtype:
    return torch.bfloat16 if bench.device == "cuda" else torch.float32


def mixed(bench: Bench) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if bench.device == "cuda" else nullcontext()


def step_row(bench: Bench, pairs: int) -> Row:
    pairs = bench.size(pairs, 4)
    pieces = official_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(f"w{n}" for n in range(5, PIECES))])
    if bench.quick:
        pieces = replace(pieces, words=pieces.words[:90])
    torch.manual_seed(0)
    config = config_of(bench, packed=True)
    ours = InterBert(config, pieces).to(bench.device)
    plain = Plain(InterBert(config, pieces)).to(bench.device)
    batch = batch_of(bench, pairs, config.region_dim)
    given = mask_pairs(ours, batch, SETTINGS)
    models: dict[str, nn.Module] = {"ours": ours, "plain": plain}
    losses = {
        "ours": lambda: torch.stack([*score_objectives(ours, given, SETTINGS).losses.values()]).sum(),
        "plain": lambda: plain(given),
    }
    if bench.device == "cuda":
        for kernel in ("flash", "triton"):
            models[kernel] = InterBert(replace(config, compiled=True), pieces).to(bench.device)
            losses[kernel] = partial(forced_loss, models[kernel], given, kernel)

    def steps(name: str, optimiser: torch.optim.Optimizer) -> None:
        for _ in range(IN_A_ROW):
            optimiser.zero_grad()
            with mixed(bench):
                loss = losses[name]()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()

    fused = bench.device == "cuda"
    optimisers = {name: torch.optim.AdamW(model.parameters(), 1e-5, fused=fused) for name, model in models.items()}
    spent = bench.best_of({name: partial(steps, name, optimisers[name]) for name in models}, runs=5)
    spent = {name: seconds / IN_A_ROW for name, seconds in spent.items()}
    best = min(seconds for name, seconds in spent.items() if name != "plain")
    needed, peak = operations(ours, given), peak_of(bench)
    figures = {"of_peak": needed / best / peak, "pairs_a_second": pairs / best}
    if bench.device == "cuda":
        figures |= {"eager_seconds": spent["ours"], "of_peak_eager": needed / spent["ours"] / peak}
        figures |= {"flash_seconds": spent["flash"], "tile_seconds": spent["triton"]}
    form = "bfloat16" if bench.device == "cuda" else "float32"
    return Row(
        name="",
        shape=f"{pairs} pairs, {REGIONS} regions, captions of {SHORTEST} to {LONGEST} pieces, {form}",
        seconds=best,
        official_seconds=spent["plain"],
        figures=figures,
        targets=(Target("of_peak", "≥", 0.3),) if bench.device == "cuda" else (),
        note=f"the paper's widths; against `nn.TransformerEncoder` in a plain loop; {needed / 1e12:.3g} T operations",
    )


def forced_loss(model: InterBert, given: MaskedPairs, kernel: str) -> Tensor:
    with backend(kernel):
        return torch.stack([*score_objectives(model, given, SETTINGS).losses.values()]).sum()


def attention_row(bench: Bench) -> Row:
    """Attention of packed pictures and captions, forward and backward, by each kernel that can do it."""
    torch.manual_seed(0)
    pairs, heads, width = bench.size(512, 4), 12, 64
    counts = torch.randint(REGIONS + SHORTEST, REGIONS + LONGEST + 1, (pairs,))
    mask = (torch.arange(int(counts.max())) < counts[:, None]).to(bench.device)
    dim = 3 * heads * width
    places = places_of(mask)
    states = pack(torch.randn(*mask.shape, dim, device=bench.device, dtype=number_of(bench)), places)
    joined = states.view(-1, 3, heads, width).requires_grad_()
    problem = PackedAttention(joined, places.at, places.starts, attend_over(mask), 0.1)
    wanted = torch.randn_like(states[:, : heads * width]).view(-1, heads, width)

    def run(row: Backend[PackedAttention, Tensor]) -> None:
        row.run(problem).backward(wanted)  # type: ignore[no-untyped-call]

    rows = [row for row in PACKED_ATTENTION.backends if row.reason(problem) is None]
    kept = replace(problem, joined=joined.detach(), dropout=0.0)
    plain = through_padding(kept).float()
    spent = bench.best_of({row.name: partial(run, row) for row in rows}, runs=10)
    return Row(
        name="",
        shape=f"{pairs} items of {int(counts.min())} to {int(counts.max())} tokens, {heads} heads of {width}",
        seconds=min(spent.values()),
        official_seconds=spent["torch"],
        difference=max(float((row.run(kept).float() - plain).abs().max()) for row in rows),
        figures={f"{name}_seconds": seconds for name, seconds in spent.items()},
        targets=(Target("difference", "≤", 2e-2),),
        note="forward and backward, a tenth of the weights dropped; against padding and PyTorch's attention",
    )


@torch.no_grad()
def padding_row(bench: Bench) -> Row:
    """The same layers, packed and padded; regions from 10 to 36."""
    pairs = bench.size(256 if bench.device == "cuda" else 16, 4)
    pieces = official_pieces(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", *(f"w{n}" for n in range(5, 90))])
    models = {}
    for packed in (True, False):
        torch.manual_seed(0)
        models[packed] = InterBert(config_of(bench, packed=packed), pieces).to(bench.device).eval()
    batch = batch_of(replace(bench, quick=True), pairs, models[True].config.region_dim, ragged=True)
    tokens = float(batch.images.mask.sum() + batch.texts.mask.sum())
    places = batch.images.mask.numel() + batch.texts.mask.numel()

    def run(packed: bool) -> Tensor:
        with mixed(bench):
            return models[packed](batch.images, batch.texts).pooled  # type: ignore[no-any-return]

    apart = float((run(True).float() - run(False).float()).abs().max())
    spent = bench.best_of({"ours": lambda: run(True), "padded": lambda: run(False)}, runs=5, warm=True)
    return Row(
        name="",
        shape=f"{pairs} pairs, 10 to {REGIONS} regions, captions of {SHORTEST} to {LONGEST} pieces, forward",
        seconds=spent["ours"],
        official_seconds=spent["padded"],
        figures={"padding": 1 - tokens / places},
        note=f"against the same with padding masked, which is {100 * (1 - tokens / places):.0f} % of all places; "
        f"outputs differ by {apart:.0e}",
    )
