"""A golden case of Pixel-BERT for any sizes, computed in float64 one item and one cell at a time, unlike our code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from interbert_golden import Official

SIZES = {
    "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 2, "vocab_size": 15,
    "max_position_embeddings": 9, "type_vocab_size": 2, "max_grid_row_position_embeddings": 4,
    "max_grid_col_position_embeddings": 5, "backbone_channel_in_size": 3, "num_labels": 4, "loss_type": "bce",
}  # fmt: skip


def make_case(folder: Path, seed: int = 0, rows: int = 4, columns: int = 7, **options: Any) -> Path:
    """Checkpoint, options, inputs and outputs in the layout of the re-implementation."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes, generator = {**SIZES, **options}, torch.Generator().manual_seed(seed)
    weights = random_weights(sizes, generator)
    torch.save(weights, folder / "model.pt")
    (folder / "config.json").write_text(json.dumps(sizes))
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2])
    ids = torch.randint(1, sizes["vocab_size"], (2, 6), generator=generator) * mask
    scores = torch.rand(2, sizes["num_labels"], generator=generator, dtype=torch.float64)
    given = {
        "cnn_feat": torch.randn(2, sizes["backbone_channel_in_size"], rows, columns, generator=generator).double(),
        "ids": ids,
        "mask": mask,
        "mlm": torch.where(torch.arange(6) % 3 == 1, ids, -100),
        "itm": torch.tensor([1, 0]),
        "vqa": scores if sizes["loss_type"] == "bce" else scores.argmax(dim=1),
    }
    found = outputs(weights, sizes, given)
    stored = {f"in_{name}": value for name, value in given.items()} | {f"out_{k}": v for k, v in found.items()}
    np.savez(folder / "io.npz", **{name: np.asarray(value) for name, value in stored.items()})
    return folder


def random_weights(sizes: dict[str, Any], generator: torch.Generator) -> dict[str, Tensor]:
    dim, hidden, words = sizes["hidden_size"], sizes["intermediate_size"], sizes["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {"grid_encoder.0.weight": (dim, sizes["backbone_channel_in_size"], 3, 3)}
    for part in ("transformer", "vqa"):
        tables = {
            "embeddings.word": words,
            "embeddings.position": sizes["max_position_embeddings"],
            "embeddings.token_type": sizes["type_vocab_size"],
            "visual_embeddings.position": sizes["max_position_embeddings"],
            "visual_embeddings.row_position": sizes["max_grid_row_position_embeddings"],
            "visual_embeddings.col_position": sizes["max_grid_col_position_embeddings"],
            "visual_embeddings.token_type": 1,
        }
        shapes |= {f"{part}.bert.{name}_embeddings.weight": (count, dim) for name, count in tables.items()}
        shapes |= {f"{part}.bert.{name}.LayerNorm": (dim,) for name in ("embeddings", "visual_embeddings")}
        shapes[f"{part}.bert.pooler.dense"] = (dim, dim)
        for number in range(sizes["num_hidden_layers"]):
            place = f"{part}.bert.encoder.layer.{number}"
            shapes |= {f"{place}.attention.self.{name}": (dim, dim) for name in ("query", "key", "value")}
            shapes |= {f"{place}.attention.output.dense": (dim, dim), f"{place}.intermediate.dense": (hidden, dim)}
            shapes |= {f"{place}.output.dense": (dim, hidden)}
            shapes |= {f"{place}.{name}.LayerNorm": (dim,) for name in ("attention.output", "output")}
    shapes |= {
        "transformer.cls.predictions.bias.weight": (words,),
        "transformer.cls.predictions.transform.dense": (dim, dim),
        "transformer.cls.predictions.transform.LayerNorm": (dim,),
        "transformer.cls.seq_relationship": (2, dim),
        "vqa.classifier.0": (2 * dim, dim),
        "vqa.classifier.2": (sizes["num_labels"], 2 * dim),
    }
    weights: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        for kind in ("",) if name.endswith(".weight") else (".weight", ".bias"):
            start = 1.0 if "LayerNorm.weight" in name + kind else 0.0
            size = shape[:1] if kind == ".bias" else shape
            weights[name + kind] = start + 0.4 * torch.randn(size, generator=generator, dtype=torch.float64)
    bias = weights["transformer.cls.predictions.bias"] = weights.pop("transformer.cls.predictions.bias.weight")
    weights["transformer.cls.predictions.decoder.bias"] = bias
    weights["transformer.cls.predictions.decoder.weight"] = weights[
        "transformer.bert.embeddings.word_embeddings.weight"
    ]
    return weights


def grid_of(kernel: Tensor, cells: Tensor) -> Tensor:
    """One place at a time: 3 × 3 cells by the kernel, the largest of 2 × 2 of these, no less than zero."""
    rows, columns = cells.shape[1:]
    padded = torch.zeros(len(cells), rows + 2, columns + 2, dtype=cells.dtype)
    padded[:, 1:-1, 1:-1] = cells
    found = [
        [(kernel * padded[:, y : y + 3, x : x + 3]).flatten(1).sum(dim=1) for x in range(columns)] for y in range(rows)
    ]
    pooled = [
        [
            torch.stack([found[2 * y + a][2 * x + b] for a in (0, 1) for b in (0, 1)]).amax(dim=0)
            for x in range(columns // 2)
        ]
        for y in range(rows // 2)
    ]
    return torch.stack([torch.stack(row) for row in pooled]).clamp(min=0)


class Half(Official):
    """`transformer` or `vqa`: words first, then pixels."""

    def __init__(self, weights: dict[str, Tensor], sizes: dict[str, Any], part: str) -> None:
        super().__init__(weights, sizes)
        self.place = f"{part}.bert"

    def table(self, name: str) -> Tensor:
        return self.weights[f"{self.place}.{name}_embeddings.weight"]

    def states(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        kernel = self.weights["grid_encoder.0.weight"]
        grid = torch.stack([grid_of(kernel, cells) for cells in given["cnn_feat"]])
        rows, columns = (self.table(f"visual_embeddings.{name}_position") for name in ("row", "col"))
        pixels = [
            cells[y, x] + rows[y] + columns[x] + self.table("visual_embeddings.token_type")[0]
            for cells in grid
            for y in range(grid.shape[1])
            for x in range(grid.shape[2])
        ]
        seen = self.norm(
            f"{self.place}.visual_embeddings.LayerNorm", torch.stack(pixels).view(len(grid), -1, grid.shape[3])
        )
        count = given["ids"].shape[1]
        words = self.table("embeddings.word")[given["ids"]] + self.table("embeddings.position")[:count]
        words = self.norm(f"{self.place}.embeddings.LayerNorm", words + self.table("embeddings.token_type")[0])
        states = torch.cat([words, seen], dim=1)
        mask = torch.cat([given["mask"], torch.ones(seen.shape[:2], dtype=torch.long)], dim=1)
        for number in range(self.sizes["num_hidden_layers"]):
            states, _ = self.layer(
                f"{self.place}.encoder.layer.{number}", states, mask, self.sizes["num_attention_heads"]
            )
        pooled = torch.tanh(self.linear(f"{self.place}.pooler.dense", states[:, 0]))
        return {"grid": grid, "vis_emb": seen, "txt_emb": words, "seq": states, "pooled": pooled}


def outputs(weights: dict[str, Tensor], sizes: dict[str, Any], given: dict[str, Tensor]) -> dict[str, Tensor]:
    half, other = Half(weights, sizes, "transformer"), Half(weights, sizes, "vqa")
    out = half.states(given)
    head = "transformer.cls.predictions"
    hidden = half.gelu(half.linear(f"{head}.transform.dense", out["seq"][:, :6]))
    hidden = half.norm(f"{head}.transform.LayerNorm", hidden)
    logits = hidden @ half.table("embeddings.word").T + weights[f"{head}.bias"]
    match = half.linear("transformer.cls.seq_relationship", out["pooled"])
    labels = given["mlm"].flatten().tolist()
    each = [
        -torch.log_softmax(row, 0)[label] if label >= 0 else row.new_zeros(())
        for row, label in zip(logits.flatten(0, 1), labels, strict=True)
    ]
    per_token = torch.stack(each)
    per_pair = torch.stack([-torch.log_softmax(match[n], 0)[given["itm"][n]] for n in range(2)])
    said = other.linear(
        "vqa.classifier.2", other.linear("vqa.classifier.0", other.states(given)["pooled"]).clamp(min=0)
    )
    if given["vqa"].dim() == 2:
        chance = torch.sigmoid(said)
        loss = -(given["vqa"] * chance.log() + (1 - given["vqa"]) * (1 - chance).log()).sum() / 2
    else:
        loss = -torch.stack([torch.log_softmax(said[n], 0)[given["vqa"][n]] for n in range(2)]).mean()
    return out | {
        "mlm_logits": logits,
        "itm_logits": match,
        "mlm_loss_per_token": per_token,
        "mlm_loss_mean_over_all_positions": per_token.mean(),
        "mlm_loss_mean_over_masked": per_token.sum() / sum(label >= 0 for label in labels),
        "itm_loss_per_ex": per_pair,
        "itm_loss": per_pair.mean(),
        "vqa_logits": said,
        "vqa_loss": loss,
    }


def make_golden(folder: Path) -> Path:
    """Two cases: an odd number of columns; and another form of answers with one layer and three heads."""
    make_case(folder)
    make_case(folder / "ce", 3, 6, 4, loss_type="ce", num_hidden_layers=1, hidden_size=12, num_attention_heads=3)
    return folder
