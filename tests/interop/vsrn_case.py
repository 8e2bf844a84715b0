"""A golden case of VSRN for any options, computed in float64 by loops over pictures and captions, unlike our code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WORDS, REGION_DIM, WORD_DIM, DIM, HIDDEN, CAPTION_WORD = 17, 9, 5, 6, 4, 3


def linear(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    weight = state[f"{name}.weight"]
    y = x @ (weight[..., 0] if weight.dim() == 3 else weight).T
    return y + state[f"{name}.bias"] if f"{name}.bias" in state else y


def batch_norm(state: dict[str, Tensor], name: str, x: Tensor) -> Tensor:
    spread = (state[f"{name}.running_var"] + 1e-5).sqrt()
    return (x - state[f"{name}.running_mean"]) / spread * state[f"{name}.weight"] + state[f"{name}.bias"]


def gru(state: dict[str, Tensor], name: str, layers: int = 1, both: bool = False) -> nn.GRU:
    own = {k.removeprefix(f"{name}."): v for k, v in state.items() if k.startswith(f"{name}.")}
    width = own["weight_hh_l0"].shape[1]
    net = nn.GRU(own["weight_ih_l0"].shape[1], width, layers, batch_first=True, bidirectional=both).double()
    net.load_state_dict(own)
    return net


def weights(options: argparse.Namespace) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Random weights under the official names."""
    torch.manual_seed(4)
    images: dict[str, nn.Module] = {"fc": nn.Linear(REGION_DIM, DIM), "img_rnn": nn.GRU(DIM, DIM)}
    for block in range(1, 5):
        for part in ("g", "theta", "phi"):
            images[f"Rs_GCN_{block}.{part}"] = nn.Conv1d(DIM, DIM, 1)
        images[f"Rs_GCN_{block}.W"] = nn.Sequential(nn.Conv1d(DIM, DIM, 1), nn.BatchNorm1d(DIM))
    if options.data_name == "f30k_precomp":
        images["bn"] = nn.BatchNorm1d(DIM)
    texts = {"embed": nn.Embedding(WORDS, WORD_DIM), "rnn": nn.GRU(WORD_DIM, DIM, options.num_layers)}
    wide = HIDDEN * (2 if options.bidirectional else 1)
    captions = {
        "encoder.vid2hid": nn.Linear(DIM, HIDDEN),
        "encoder.rnn": nn.GRU(HIDDEN, HIDDEN, bidirectional=bool(options.bidirectional)),
        "decoder.embedding": nn.Embedding(WORDS, CAPTION_WORD),
        "decoder.attention.linear1": nn.Linear(2 * wide, wide),
        "decoder.attention.linear2": nn.Linear(wide, 1, bias=False),
        "decoder.rnn": nn.GRU(CAPTION_WORD + wide, wide),
        "decoder.out": nn.Linear(wide, WORDS),
    }
    found = []
    for parts in (images, texts, captions):
        state = {f"{name}.{k}": v for name, part in parts.items() for k, v in part.state_dict().items()}
        for key in state:
            if "running_var" in key:
                state[key] = 0.5 + torch.rand_like(state[key])
            elif "running_mean" in key:
                state[key] = torch.randn_like(state[key])
        found.append(state)
    return found[0], found[1], found[2]


def encode_picture(state: dict[str, Tensor], options: argparse.Namespace, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    flickr = options.data_name == "f30k_precomp"
    x = linear(state, "fc", x)
    first = x = x if flickr else x / x.norm(dim=0)
    for block in (f"Rs_GCN_{n}" for n in range(1, 5)):
        share = linear(state, f"{block}.theta", x) @ linear(state, f"{block}.phi", x).T / len(x)
        mixed = linear(state, f"{block}.W.0", share @ linear(state, f"{block}.g", x))
        x = x + batch_norm(state, f"{block}.W.1", mixed)
    x = x / x.norm(dim=0)
    whole = gru(state, "img_rnn")(x[None])[1][0, 0]
    whole = batch_norm(state, "bn", whole) if flickr else whole
    whole = whole if options.no_imgnorm else whole / whole.norm()
    return first, x, whole.abs() if options.use_abs else whole


def encode_caption(state: dict[str, Tensor], options: argparse.Namespace, tokens: Tensor) -> Tensor:
    whole = gru(state, "rnn", options.num_layers)(state["embed.weight"][tokens][None])[0][0, -1]
    whole = whole / whole.norm()
    return whole.abs() if options.use_abs else whole


def generate(
    state: dict[str, Tensor], options: argparse.Namespace, regions: Tensor, labels: Tensor
) -> tuple[Tensor, ...]:
    reader, writer = gru(state, "encoder.rnn", both=bool(options.bidirectional)), gru(state, "decoder.rnn")
    outputs, hidden = reader(linear(state, "encoder.vid2hid", regions)[None])
    memory = torch.cat(list(hidden), dim=-1)[None]
    generated = []
    for step in range(options.max_len - 1):
        pairs = torch.cat([outputs[0], memory[0].expand(len(regions), -1)], dim=1)
        scores = linear(state, "decoder.attention.linear2", linear(state, "decoder.attention.linear1", pairs).tanh())
        context = scores[:, 0].softmax(dim=0) @ outputs[0]
        word = state["decoder.embedding.weight"][labels[step]]
        out, memory = writer(torch.cat([word, context])[None, None], memory)
        generated.append(linear(state, "decoder.out", out[0, 0]).log_softmax(dim=0))
    return outputs[0], hidden[:, 0], torch.stack(generated)


def table(measure: str, images: Tensor, texts: Tensor) -> Tensor:
    if measure == "cosine":
        return images @ texts.T
    return -torch.stack([torch.stack([(t - v).clamp(min=0).norm() for t in texts]) for v in images])


def make_case(folder: Path, name: str, captions_kept: bool = True, **changes: Any) -> None:
    """NAME.pth.tar, NAME.caption_model.pt and NAME.io.npz."""
    options = argparse.Namespace(
        data_name="coco_precomp", img_dim=REGION_DIM, word_dim=WORD_DIM, embed_size=DIM, num_layers=1, margin=0.2,
        measure="cosine", use_abs=False, no_imgnorm=False, max_violation=False, dim_hidden=HIDDEN, bidirectional=0,
        dim_word=CAPTION_WORD, rnn_type="gru", max_len=7, input_dropout_p=0.2,
    )  # fmt: skip
    vars(options).update(changes)
    image_state, text_state, caption_state = weights(options)
    checkpoint = {"epoch": 1, "model": [image_state, text_state], "best_rsum": 0.0, "opt": options, "Eiters": 9}
    torch.save(checkpoint, folder / f"{name}.pth.tar")
    if captions_kept:
        torch.save(caption_state, folder / f"{name}.caption_model.pt")
    dice = np.random.default_rng(5)
    features = torch.from_numpy(dice.normal(size=(3, 4, REGION_DIM)).astype(np.float32))
    lengths = dice.integers(3, 10, size=15)
    lengths[:3] = 6, 7, 8  # about where captions of max_len 7 are cut
    tokens = np.zeros((15, 9), dtype=np.int64)
    for row, length in zip(tokens, lengths, strict=True):
        row[:length] = [1, *dice.integers(3, WORDS, size=length - 2), 2]
    double = [{k: v.double() for k, v in state.items()} for state in (image_state, text_state, caption_state)]
    with torch.no_grad():
        pictures = [encode_picture(double[0], options, x.double()) for x in features]
        first, regions, images = (torch.stack(part) for part in zip(*pictures, strict=True))
        texts = torch.stack(
            [encode_caption(double[1], options, torch.from_numpy(t[:n])) for t, n in zip(tokens, lengths, strict=True)]
        )
        chosen = np.array([1, 7, 12])
        labels = np.zeros((3, options.max_len + 1), dtype=np.int64)
        for row, caption in zip(labels, chosen, strict=True):
            words = list(tokens[caption, : lengths[caption]])
            if len(words) > options.max_len - 1:
                words = [*words[: options.max_len - 1], 2][: options.max_len]
            row[: len(words)] = words
        masks = np.array([[n <= list(row).index(0) for n in range(len(row))] for row in labels], dtype=np.float32)
        generated = [
            generate(double[2], options, r, torch.from_numpy(row)) for r, row in zip(regions, labels, strict=True)
        ]
        outputs, hidden, log_probabilities = (torch.stack(part) for part in zip(*generated, strict=True))
        captioning = sum(
            -float(log_probabilities[p, s, labels[p, s + 1]]) * masks[p, s + 1] / 3
            for p in range(3)
            for s in range(options.max_len - 1)
        )
        scores = table(options.measure, images, texts[chosen])
        wrong = 1 - torch.eye(3, dtype=torch.float64)
        own = scores.diagonal()
        ranked = ((0.2 + scores - own[:, None]).clamp(min=0) * wrong).sum()
        ranked = float(ranked + ((0.2 + scores - own).clamp(min=0) * wrong).sum())
    arrays = {
        "images": features, "captions": tokens, "lengths": lengths.astype(np.int64), "batch_img_idx": np.arange(3),
        "batch_cap_idx": chosen, "region_fc_emb": first, "region_gcn_emb": regions, "img_emb": images,
        "cap_emb": texts, "batch_scores": scores, f"sims_{options.measure}32": table(options.measure, images, texts),
        "sims64": table(options.measure, images, texts), "caption_labels": labels, "caption_masks": masks,
        "caption_encoder_out": outputs, "caption_encoder_hidden": hidden.transpose(0, 1),
        "caption_logprobs": log_probabilities,
        "loss_caption": captioning, f"loss_sum__{options.measure}": ranked, "loss_total": ranked + captioning,
    }  # fmt: skip
    np.savez(folder / f"{name}.io.npz", **{key: np.asarray(value) for key, value in arrays.items()})
