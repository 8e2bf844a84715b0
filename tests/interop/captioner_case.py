"""A golden case of an LSTM captioner for any options, computed in float64 one caption at a time, unlike our code."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

WORDS = ["the", "dog", "a", "runs", "on", "grass", "cat", "is"]
PICTURES, REGIONS, CAPTIONS, MAX_WORDS = 3, 5, 2, 6
OPTIONS: dict[str, Any] = {
    "caption_model": "updown",
    "input_encoding_size": 5,
    "rnn_size": 6,
    "att_hid_size": 4,
    "att_feat_size": 9,
    "fc_feat_size": 9,
    "num_layers": 1,
    "use_bn": 0,
    "drop_prob_lm": 0.5,
    "max_length": MAX_WORDS,
}


def weights(opt: dict[str, Any], vocabulary: int) -> dict[str, Tensor]:
    """Random weights under the official names."""
    torch.manual_seed(7)
    word, dim, hid, region = (opt[k] for k in ("input_encoding_size", "rnn_size", "att_hid_size", "att_feat_size"))
    state: dict[str, Tensor] = {"embed.0.weight": torch.randn(vocabulary + 1, word)}

    def linear(name: str, rows: int, columns: int, bias: bool = True) -> None:
        state[f"{name}.weight"] = torch.randn(rows, columns) * 0.4
        if bias:
            state[f"{name}.bias"] = torch.randn(rows) * 0.3

    def norm(name: str, size: int) -> None:
        for part in ("weight", "bias", "running_mean"):
            state[f"{name}.{part}"] = torch.randn(size)
        state[f"{name}.running_var"] = torch.rand(size) + 0.5

    use = opt["use_bn"]
    linear("fc_embed.0", dim, region)
    linear(f"att_embed.{int(use > 0)}", dim, region)
    if use:
        norm("att_embed.0", region)
    if use == 2:
        norm("att_embed.4", dim)
    linear("ctx2att", hid, dim)
    linear("logit", vocabulary + 1, dim)
    linear("core.attention.alpha_net", 1, hid)
    if opt["caption_model"] == "updown":
        linear("core.attention.h2att", hid, dim)
        for name, width in (("att_lstm", 2 * dim + word), ("lang_lstm", 2 * dim)):
            for part, size in (("ih", width), ("hh", dim)):
                state[f"core.{name}.weight_{part}"] = torch.randn(4 * dim, size) * 0.4
                state[f"core.{name}.bias_{part}"] = torch.randn(4 * dim) * 0.3
        return {name: value.double() for name, value in state.items()}
    gates, layers = dim * (5 if opt["caption_model"] == "adaattmo" else 4), opt["num_layers"]
    linear("core.lstm.w2h", gates, word)
    linear("core.lstm.v2h", gates, dim)
    for layer in range(layers):
        linear(f"core.lstm.h2h.{layer}", gates, dim)
        if layer:
            linear(f"core.lstm.i2h.{layer - 1}", gates, dim)
    for name, width in (("r_w2h", word), ("r_v2h", dim)) if layers == 1 else (("r_i2h", dim),):
        linear(f"core.lstm.{name}", dim, width)
    linear("core.lstm.r_h2h", dim, dim)
    for name, rows in (
        ("fr_linear.0", dim),
        ("fr_embed", hid),
        ("ho_linear.0", dim),
        ("ho_embed", hid),
        ("att2h", dim),
    ):
        linear(f"core.attention.{name}", rows, dim)
    return {name: value.double() for name, value in state.items()}


class Reference:
    """One picture at a time, one word at a time."""

    def __init__(self, opt: dict[str, Any], state: dict[str, Tensor]) -> None:
        self.opt, self.state = opt, state

    def linear(self, name: str, x: Tensor) -> Tensor:
        return x @ self.state[f"{name}.weight"].T + self.state[f"{name}.bias"]

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean, spread = self.state[f"{name}.running_mean"], (self.state[f"{name}.running_var"] + 1e-5).sqrt()
        return (x - mean) / spread * self.state[f"{name}.weight"] + self.state[f"{name}.bias"]

    def embed(self, regions: Tensor, whole: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        use = self.opt["use_bn"]
        values = self.linear(f"att_embed.{int(use > 0)}", self.norm("att_embed.0", regions) if use else regions).relu()
        values = self.norm("att_embed.4", values) if use == 2 else values
        return values, self.linear("ctx2att", values), self.linear("fc_embed.0", whole).relu()

    def memory(self) -> list[tuple[Tensor, Tensor]]:
        zeros = torch.zeros(self.opt["rnn_size"]).double()
        layers = 2 if self.opt["caption_model"] == "updown" else self.opt["num_layers"]
        return [(zeros, zeros)] * layers

    def step(self, word: int, context: Any, memory: list[Any]) -> tuple[Tensor, Tensor, list[Any]]:
        """Log-probabilities, attention and the next memory."""
        x = self.state["embed.0.weight"][word].relu()
        run = self.updown if self.opt["caption_model"] == "updown" else self.adaptive
        hidden, attention, memory = run(x, context, memory)
        return self.linear("logit", hidden).log_softmax(0), attention, memory

    def scores(self, keys: Tensor, query: Tensor) -> Tensor:
        return self.linear("core.attention.alpha_net", (keys + query).tanh())[:, 0].softmax(0)

    def updown(self, x: Tensor, context: Any, memory: list[Any]) -> tuple[Tensor, Tensor, list[Any]]:
        values, keys, whole = context

        def cell(name: str, given: Tensor, before: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
            part = {k: self.state[f"core.{name}.{k}"] for k in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            sums = part["weight_ih"] @ given + part["bias_ih"] + part["weight_hh"] @ before[0] + part["bias_hh"]
            enter, forget, candidate, leave = sums.chunk(4)
            kept = forget.sigmoid() * before[1] + enter.sigmoid() * candidate.tanh()
            return leave.sigmoid() * kept.tanh(), kept

        first = cell("att_lstm", torch.cat([memory[1][0], whole, x]), memory[0])
        attention = self.scores(keys, self.linear("core.attention.h2att", first[0]))
        second = cell("lang_lstm", torch.cat([attention @ values, first[0]]), memory[1])
        return second[0], attention, [first, second]

    def adaptive(self, x: Tensor, context: Any, memory: list[Any]) -> tuple[Tensor, Tensor, list[Any]]:
        values, keys, whole = context
        dim, after = self.opt["rnn_size"], []
        for layer, (hidden, cell) in enumerate(memory):
            if layer == 0:
                given = self.linear("core.lstm.w2h", x) + self.linear("core.lstm.v2h", whole)
            else:
                given = self.linear(f"core.lstm.i2h.{layer - 1}", after[-1][0])
            sums = given + self.linear(f"core.lstm.h2h.{layer}", hidden)
            enter, forget, leave = sums[: 3 * dim].sigmoid().chunk(3)
            rest = sums[3 * dim :]
            candidate = rest.tanh() if len(rest) == dim else torch.maximum(rest[:dim], rest[dim:])
            kept = forget * cell + enter * candidate
            after.append((leave * kept.tanh(), kept))
        if len(memory) == 1:
            gate = self.linear("core.lstm.r_w2h", x) + self.linear("core.lstm.r_v2h", whole)
        else:
            gate = self.linear("core.lstm.r_i2h", after[-2][0])
        sentinel = (gate + self.linear("core.lstm.r_h2h", memory[-1][0])).sigmoid() * after[-1][1].tanh()
        sentinel = self.linear("core.attention.fr_linear.0", sentinel).relu()
        top = self.linear("core.attention.ho_linear.0", after[-1][0]).tanh()
        keys = torch.cat([self.linear("core.attention.fr_embed", sentinel)[None], keys])
        attention = self.scores(keys, self.linear("core.attention.ho_embed", top))
        mean = attention @ torch.cat([sentinel[None], values])
        return self.linear("core.attention.att2h", mean + top).tanh(), attention, after

    def greedy(self, context: Any, no_repeat: bool = False) -> list[int]:
        chosen: list[int] = []
        memory = self.memory()
        while len(chosen) < MAX_WORDS and (not chosen or chosen[-1]):
            log_probabilities, _, memory = self.step(chosen[-1] if chosen else 0, context, memory)
            if no_repeat and chosen:
                log_probabilities = log_probabilities.index_fill(0, torch.tensor(chosen[-1:]), float("-inf"))
            chosen.append(int(log_probabilities.argmax()))
        return chosen

    def beam(self, context: Any, size: int, alpha: float = 0.0) -> list[tuple[float, list[int]]]:
        """Ended sentences leave the beam, their places go to others; the best `size` of all that ended or were cut."""
        alive: list[tuple[float, list[int], list[Any]]] = [(0.0, [], self.memory())]
        done: list[tuple[float, list[int]]] = []
        for length in range(1, MAX_WORDS + 1):
            options = []
            for total, chosen, memory in alive:
                log_probabilities, _, after = self.step(chosen[-1] if chosen else 0, context, memory)
                options += [(total + float(p), [*chosen, w], after) for w, p in enumerate(log_probabilities)]
            best = sorted(options, key=lambda option: -option[0])[:size]
            for total, chosen, _ in best:
                if chosen[-1] == 0 or length == MAX_WORDS:
                    done.append((total / ((5 + length) / 6) ** alpha, chosen))
            alive = [option for option in best if option[1][-1]]
            if not alive:
                break
        return sorted(done, key=lambda each: -each[0])[:size]


def make_case(
    folder: Path, name: str, unknown: bool = True, steps: int = MAX_WORDS, clip: bool = False, **options: Any
) -> None:
    """NAME_model.pth, NAME_infos.pkl and NAME_io.npz; captions of at most `steps` words."""
    opt = {**OPTIONS, **options}
    words = [*WORDS, "UNK"] if unknown else WORDS
    state = weights(opt, len(words))
    for value in state.values():
        value.requires_grad_()
    reference = Reference(opt, state)
    counts = [3, 1, 2] if clip else [3, 1, REGIONS]
    features = torch.randn(PICTURES, REGIONS, opt["att_feat_size"]).double()
    masks = torch.arange(REGIONS) < torch.tensor(counts)[:, None]
    features = features * masks[:, :, None]
    whole = torch.randn(PICTURES, opt["fc_feat_size"]).double()  # it need not be the regions' mean
    labels = torch.zeros(PICTURES, CAPTIONS, MAX_WORDS + 2, dtype=torch.long)
    for picture in range(PICTURES):
        for caption in range(CAPTIONS):
            length = (picture + caption) % steps + 1 if picture + caption else steps
            labels[picture, caption, 1 : length + 1] = torch.randint(1, len(words) + 1, (length,))
    context = [reference.embed(f[:n], w) for f, n, w in zip(features, counts, whole, strict=True)]
    unmasked = [reference.embed(f[: max(counts)], w) for f, w in zip(features, whole, strict=True)]
    wide = max(counts) + (opt["caption_model"] != "updown")
    lengths = (labels != 0).sum(dim=2)
    stop = min(int(lengths.max()) + 1, MAX_WORDS + 1)
    stored: dict[str, Any] = {"num_boxes": torch.tensor(counts), "label_masks": torch.zeros(labels.shape)}
    nll, wanted = torch.zeros(()).double(), 0
    for ending, pictures in (("", context), ("_nomask", unmasked)):
        log_probabilities = torch.zeros(PICTURES * CAPTIONS, MAX_WORDS + 1, len(words) + 1).double()
        attention = torch.zeros(PICTURES * CAPTIONS, MAX_WORDS + 1, wide).double()
        for row in range(PICTURES * CAPTIONS):
            picture, caption = divmod(row, CAPTIONS)
            stored["label_masks"][picture, caption, : lengths[picture, caption] + 2] = 1
            memory = reference.memory()
            for step in range(stop):
                word = int(labels[picture, caption, step])
                chances, shares, memory = reference.step(word, pictures[picture], memory)
                log_probabilities[row, step], attention[row, step, : len(shares)] = chances.detach(), shares.detach()
                if not ending and step <= lengths[picture, caption]:
                    nll, wanted = nll - chances[labels[picture, caption, step + 1]], wanted + 1
        stored |= {f"logprobs_tf{ending}": log_probabilities, f"attn_tf{ending}": attention}
    if opt["use_bn"]:
        stored |= {"logprobs_tf_nomask": torch.zeros(0), "attn_tf_nomask": torch.zeros(0)}
    loss = nll / wanted
    learned = [key for key in state if "running" not in key]
    gradients = torch.autograd.grad(loss, [state[key] for key in learned], allow_unused=True)
    stored |= {"xe_loss": loss.detach(), "grad_names": np.array(learned)}
    stored["grad_norms"] = np.array([0.0 if g is None else float(g.norm()) for g in gradients])
    with torch.no_grad():
        stored["fc_embed"] = torch.stack([part[2] for part in context])
        for key, place in (("att_embed", 0), ("ctx2att", 1)):
            padding = state["ctx2att.bias"] if place else torch.zeros(()).double()
            table = torch.zeros(PICTURES, max(counts), context[0][place].shape[1]).double() + padding
            for picture, count in enumerate(counts):
                table[picture, :count] = context[picture][place]
            stored[key] = table
        filled = lambda ids: [*ids, *[0] * (MAX_WORDS - len(ids))]  # noqa: E731
        stored["greedy_seq"] = torch.tensor([filled(reference.greedy(each)) for each in context])
        stored["greedy_constraint_seq"] = torch.tensor([filled(reference.greedy(each, True)) for each in context])
        for key, alpha in (("beam2", 0.0), ("beam2_wu", 0.9)):
            beams = [reference.beam(each, 2, alpha) for each in context]
            stored[f"{key}_seqs"] = torch.tensor([[filled(chosen) for _, chosen in each] for each in beams])
            stored[f"{key}_scores"] = torch.tensor([[score for score, _ in each] for each in beams])
    stored |= {"att_feats": features, "att_masks": masks.float(), "fc_feats": whole, "labels": labels}
    arrays = {key: value.detach().numpy() if isinstance(value, Tensor) else value for key, value in stored.items()}
    np.savez(folder / f"{name}_io.npz", **arrays)
    torch.save({key: value.detach() for key, value in state.items()}, folder / f"{name}_model.pth")
    infos = {"opt": argparse.Namespace(**opt), "vocab": {str(i + 1): word for i, word in enumerate(words)}, "iter": 5}
    (folder / f"{name}_infos.pkl").write_bytes(pickle.dumps(infos, protocol=2))
