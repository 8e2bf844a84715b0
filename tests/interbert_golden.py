"""A golden case of InterBERT for any sizes, computed in float64 one item and one head at a time, unlike our code."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

SIZES = {
    "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 12, "num_hidden_layers": 1,
    "t_num_hidden_layers": 1, "v_num_hidden_layers": 1, "v_num_attention_heads": 4, "v_intermediate_size": 10,
    "bi_hidden_size": 6, "v_feature_size": 5, "v_target_size": 7, "vocab_size": 15, "max_position_embeddings": 9,
    "type_vocab_size": 2,
}  # fmt: skip
WORDS = "bert.embeddings.word_embeddings.weight"
ABSENT = -10000.0  # what the official code adds to the score of padding


def make_case(folder: Path, seed: int = 0, labels: int = 3, **options: Any) -> Path:
    """Checkpoints, options, inputs and outputs in the official layout."""
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {**SIZES, **options}
    generator = torch.Generator().manual_seed(seed)
    weights = random_weights(sizes, labels, generator)
    tasks = random_weights(sizes, labels, generator)
    plain = {name: w for name, w in weights.items() if not name.startswith(("vil_", "vision_", "linguisic_"))}
    for file, given in (("pytorch_model.bin", plain), ("pytorch_model_vltasks.bin", tasks)):
        torch.save(
            {**given, "cls.predictions.decoder.weight": given["bert.embeddings.word_embeddings.weight"]}, folder / file
        )
    (folder / "config.json").write_text(json.dumps(sizes))
    inputs = random_inputs(sizes, generator)
    leaves = {name: weight.clone().requires_grad_() for name, weight in plain.items()}
    stages = Official(leaves, sizes).run(inputs)
    stages["loss_total"].sum().backward()  # type: ignore[no-untyped-call]
    fine = Official(tasks, sizes).run(inputs)
    stored = {f"in_{name}": value for name, value in inputs.items()}
    stored |= {f"out_{name}": value.detach() for name, value in stages.items() if name != "pooled"}
    stored |= {f"vl_{name}": value.detach() for name, value in Official(tasks, sizes).outputs(fine, inputs).items()}
    stored |= masking(generator)
    np.savez(folder / "io.npz", **{name: np.asarray(value) for name, value in stored.items()})
    gradients: dict[str, Any] = {"loss": np.asarray(stages["loss_total"].detach().sum())}
    for name, weight in leaves.items():
        assert weight.grad is not None
        gradients |= {f"norm:{name}": np.asarray(weight.grad.norm()), f"full:{name}": weight.grad.numpy()}
    np.savez(folder / "grads.npz", **gradients)
    return folder


def random_weights(sizes: dict[str, Any], labels: int, generator: torch.Generator) -> dict[str, Tensor]:
    dim, pooled = sizes["hidden_size"], sizes["bi_hidden_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "bert.embeddings.word_embeddings.weight": (sizes["vocab_size"], dim),
        "bert.embeddings.position_embeddings.weight": (sizes["max_position_embeddings"], dim),
        "bert.embeddings.token_type_embeddings.weight": (sizes["type_vocab_size"], dim),
        "bert.embeddings.LayerNorm": (dim,),
        "bert.v_embeddings.image_embeddings": (dim, sizes["v_feature_size"]),
        "bert.v_embeddings.image_location_embeddings": (dim, 5),
        "bert.v_embeddings.LayerNorm": (dim,),
        "bert.t_pooler.dense": (pooled, dim),
        "bert.v_pooler.dense": (pooled, dim),
        "cls.predictions.bias": (sizes["vocab_size"],),
        "cls.predictions.transform.dense": (dim, dim),
        "cls.predictions.transform.LayerNorm": (dim,),
        "cls.bi_seq_relationship": (2, pooled),
        "cls.imagePredictions.transform.dense": (dim, dim),
        "cls.imagePredictions.transform.LayerNorm": (dim,),
        "cls.imagePredictions.decoder": (sizes["v_target_size"], dim),
        "vil_prediction": (labels, pooled),
        "vil_logit": (1, pooled),
        "vision_logit": (1, dim),
        "linguisic_logit": (1, dim),
    }
    count = sizes["num_hidden_layers"] + sizes["t_num_hidden_layers"]
    stacks = [(f"bert.encoder.layer.{n}", sizes["intermediate_size"]) for n in range(count)]
    stacks += [(f"bert.encoder.v_layer.{n}", sizes["v_intermediate_size"]) for n in range(sizes["v_num_hidden_layers"])]
    for place, hidden in stacks:
        shapes |= {f"{place}.attention.self.{part}": (dim, dim) for part in ("query", "key", "value")}
        shapes |= {f"{place}.attention.output.dense": (dim, dim), f"{place}.intermediate.dense": (hidden, dim)}
        shapes |= {f"{place}.output.dense": (dim, hidden)}
        shapes |= {f"{place}.{part}.LayerNorm": (dim,) for part in ("attention.output", "output")}
    weights: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        whole = name.endswith((".weight", "predictions.bias"))
        for kind in ("",) if whole else (".weight", ".bias"):
            size = shape if kind != ".bias" else shape[:1]
            start = 1.0 if "LayerNorm.weight" in name + kind else 0.0
            weights[name + kind] = start + 0.4 * torch.randn(size, generator=generator, dtype=torch.float64)
    return weights


def random_inputs(sizes: dict[str, Any], generator: torch.Generator) -> dict[str, Tensor]:
    """Three texts of 6, 5 and 3 pieces, three pictures of 4, 2 and 3 regions with the whole before them; the second
    pair is a wrong one."""
    words, regions = (6, 5, 3), (5, 3, 4)
    text = torch.tensor([[n < count for n in range(6)] for count in words])
    image = torch.tensor([[n < count for n in range(5)] for count in regions])
    ids = torch.randint(1, sizes["vocab_size"], (3, 6), generator=generator) * text
    labels = torch.where(text & (torch.arange(6) % 3 == 1), ids, -1)
    masked = torch.where(image[:, 1:] & (torch.arange(4) % 2 == 0), 1, -1)
    target = torch.rand(3, 4, sizes["v_target_size"], generator=generator, dtype=torch.float64)
    return {
        "input_ids": ids,
        "image_feat": torch.randn(3, 5, sizes["v_feature_size"], generator=generator, dtype=torch.float64),
        "image_loc": torch.rand(3, 5, 5, generator=generator, dtype=torch.float64),
        "segment_ids": torch.tensor([[0, 0, 1, 1, 1, 1]] * 3),
        "txt_mask": text.long(),
        "img_mask": image.long(),
        "multimodal_mask": torch.cat([image, text], dim=1).long(),
        "lm_labels": labels,
        "image_label": masked,
        "image_target": target / target.sum(dim=2, keepdim=True),
        "is_next": torch.tensor([0, 1, 0]),
    }


def masking(generator: torch.Generator) -> dict[str, Any]:
    """Eight regions of a picture of 200 × 100 pixels: each that is drawn hides all that overlap it by 0.4."""
    corner = torch.rand(8, 2, generator=generator, dtype=torch.float64) * 0.3
    side = 0.3 + 0.4 * torch.rand(8, 2, generator=generator, dtype=torch.float64)
    boxes = torch.cat([corner, corner + side], dim=1)
    draws = torch.rand(8, generator=generator, dtype=torch.float64)
    draws[2] = 0.03
    table = torch.zeros(8, 8, dtype=torch.float64)
    pixels = (boxes * torch.tensor([200, 100, 200, 100])).tolist()
    for a in range(8):
        for b in range(8):
            (x1, y1, x2, y2), (u1, v1, u2, v2) = pixels[a], pixels[b]
            shared = max(min(x2, u2) - max(x1, u1) + 1, 0) * max(min(y2, v2) - max(y1, v1) + 1, 0)
            area = (x2 - x1 + 1) * (y2 - y1 + 1) + (u2 - u1 + 1) * (v2 - v1 + 1)
            table[a, b] = shared / (area - shared)
    hidden = [any(draws[b] < 0.1 and table[a, b] >= 0.4 for b in range(8)) for a in range(8)]
    assert 1 < sum(hidden) < 8
    features = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    return {
        "mask_loc": torch.cat([boxes, (side[:, 0] * side[:, 1])[:, None]], dim=1),
        "mask_iou": table,
        "mask_wh": torch.tensor([200, 100]),
        "mask_draws": draws,
        "mask_feat_in": features,
        "mask_feat_out": torch.stack([0 * f if h else f for f, h in zip(features, hidden, strict=True)]),
        "mask_label": torch.tensor([1 if h else -1 for h in hidden]),
    }


class Official:
    """The equations of the notes, in their words."""

    def __init__(self, weights: dict[str, Tensor], sizes: dict[str, Any]) -> None:
        self.weights, self.sizes = weights, sizes

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean = x.mean(dim=-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
        return (x - mean) / (variance + 1e-12).sqrt() * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    @staticmethod
    def gelu(x: Tensor) -> Tensor:
        return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))

    def layer(self, place: str, x: Tensor, mask: Tensor, heads: int) -> tuple[Tensor, Tensor]:
        q, k, v = (self.linear(f"{place}.attention.self.{part}", x) for part in ("query", "key", "value"))
        width = x.shape[2] // heads
        items, maps = [], []
        for item in range(len(x)):
            parts, own = [], []
            for head in range(heads):
                cut = slice(head * width, (head + 1) * width)
                scores = q[item, :, cut] @ k[item, :, cut].T / math.sqrt(width) + ABSENT * (1 - mask[item].double())
                share = torch.softmax(scores, dim=-1)
                own.append(share)
                parts.append(share @ v[item, :, cut])
            items.append(torch.cat(parts, dim=1))
            maps.append(torch.stack(own))
        attended = self.linear(f"{place}.attention.output.dense", torch.stack(items))
        h = self.norm(f"{place}.attention.output.LayerNorm", x + attended)
        out = self.linear(f"{place}.output.dense", self.gelu(self.linear(f"{place}.intermediate.dense", h)))
        return self.norm(f"{place}.output.LayerNorm", h + out), torch.stack(maps)

    def run(self, given: dict[str, Tensor]) -> dict[str, Tensor]:
        w, sizes = self.weights, self.sizes
        places = torch.arange(given["input_ids"].shape[1])
        words = w["bert.embeddings.word_embeddings.weight"][given["input_ids"]]
        words = words + w["bert.embeddings.position_embeddings.weight"][places]
        words = words + w["bert.embeddings.token_type_embeddings.weight"][given["segment_ids"]]
        words = self.norm("bert.embeddings.LayerNorm", words)
        regions = self.linear("bert.v_embeddings.image_embeddings", given["image_feat"])
        regions = regions + self.linear("bert.v_embeddings.image_location_embeddings", given["image_loc"])
        regions = self.norm("bert.v_embeddings.LayerNorm", regions)
        out = {"txt_emb": words, "img_emb": regions}
        both, heads = torch.cat([regions, words], dim=1), sizes["num_attention_heads"]
        shared, own = sizes["num_hidden_layers"], sizes["t_num_hidden_layers"]
        for n in range(shared):
            both, out[f"layer{n}_attn"] = self.layer(f"bert.encoder.layer.{n}", both, given["multimodal_mask"], heads)
            out[f"layer{n}_out"] = both
        regions, words = both[:, : regions.shape[1]], both[:, regions.shape[1] :]
        for n in range(shared, shared + own):
            words, out[f"layer{n}_attn"] = self.layer(f"bert.encoder.layer.{n}", words, given["txt_mask"], heads)
            out[f"layer{n}_out"] = words
        for n in range(sizes["v_num_hidden_layers"]):
            place, heads = f"bert.encoder.v_layer.{n}", sizes["v_num_attention_heads"]
            regions, _ = self.layer(place, regions, given["img_mask"], heads)
            out[f"v_layer{n}_out"] = regions
        pool_t = self.linear("bert.t_pooler.dense", words[:, 0]).clamp(min=0)
        pool_v = self.linear("bert.v_pooler.dense", regions[:, 0]).clamp(min=0)
        pooled = pool_t + pool_v if sizes.get("fusion_method") == "sum" else pool_t * pool_v
        out |= {"seq_t": words, "seq_v": regions, "pool_t": pool_t, "pool_v": pool_v, "pooled": pooled}
        for key, states, head in (("msm", words, "predictions"), ("mrm", regions, "imagePredictions")):
            hidden = self.gelu(self.linear(f"cls.{head}.transform.dense", states))
            out[f"{key}_logits"] = self.norm(f"cls.{head}.transform.LayerNorm", hidden)
        table = w["bert.embeddings.word_embeddings.weight"]
        out["msm_logits"] = out["msm_logits"] @ table.T + w["cls.predictions.bias"]
        out["mrm_logits"] = self.linear("cls.imagePredictions.decoder", out["mrm_logits"])
        out["itm_logits"] = self.linear("cls.bi_seq_relationship", pooled)
        return out | self.losses(out, given)

    def losses(self, out: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Tensor]:
        zero = out["itm_logits"].new_zeros(())
        words, count, regions, hidden = zero, 0, zero, 0
        for item in range(3):
            for place, label in enumerate(given["lm_labels"][item].tolist()):
                if label >= 0:
                    words, count = words - torch.log_softmax(out["msm_logits"][item, place], 0)[label], count + 1
            for place, label in enumerate(given["image_label"][item].tolist()):
                if label == 1 and given["is_next"][item] == 0:
                    found, target = out["mrm_logits"][item, place + 1], given["image_target"][item, place]
                    if self.sizes.get("predict_feature"):
                        regions = regions + ((found - target) ** 2).mean()
                    else:
                        regions = regions + (target * (target.log() - torch.log_softmax(found, 0))).sum()
                    hidden += 1
        match = torch.stack([-torch.log_softmax(out["itm_logits"][n], 0)[given["is_next"][n]] for n in range(3)]).mean()
        words, regions = words / max(count, 1), regions / max(hidden, 1)
        found = {"loss_msm": words, "loss_mrm": regions, "loss_itm": match, "loss_total": words + regions + match}
        return {name: value.reshape(1) for name, value in found.items()}

    def outputs(self, out: dict[str, Tensor], given: dict[str, Tensor]) -> dict[str, Tensor]:
        """Of the fine-tuning model."""
        absent = (1 - given["img_mask"].double())[..., None] * ABSENT
        return {
            "pool_t": out["pool_t"],
            "pool_v": out["pool_v"],
            "vil_prediction": self.linear("vil_prediction", out["pooled"]),
            "vil_logit": self.linear("vil_logit", out["pooled"]),
            "vil_binary_prediction": out["itm_logits"],
            "vision_prediction": out["mrm_logits"],
            "vision_logit": self.linear("vision_logit", out["seq_v"]) + absent,
            "linguisic_prediction": out["msm_logits"],
            "linguisic_logit": self.linear("linguisic_logit", out["seq_t"]),
        }


def make_golden(folder: Path) -> Path:
    """As many cases as there are forms: the released one, sums and features, and one without text layers of its own,
    whose words are known."""
    make_case(folder)
    make_case(folder / "features", 1, fusion_method="sum", predict_feature=True, v_target_size=5, labels=9)
    words = [
        "a",
        "[UNK]",
        "red",
        "[PAD]",
        "##s",
        "cube",
        "[CLS]",
        "[MASK]",
        "ball",
        "on",
        "[SEP]",
        "the",
        "x",
        "y",
        "z",
    ]
    (folder / "deeper").mkdir()
    (folder / "deeper" / "vocab.txt").write_text("\n".join(words))  # in an order that is not ours
    make_case(folder / "deeper", 4, num_hidden_layers=3, t_num_hidden_layers=0, v_num_hidden_layers=2, hidden_size=12)
    return folder
