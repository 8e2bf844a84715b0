"""MARN by its equations in plain NumPy: cases of any sizes, with gradients worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def write_marn(
    folder: Path,
    widths: tuple[int, ...] = (3, 4, 2),
    items: int = 4,
    d: int = 3,
    dc: int = 5,
    dh: int = 2,
    dp: int = 2,
    grl: float = 0.7,
    lam: float = 0.1,
    seed: int = 0,
    **options: Any,
) -> None:
    draw = np.random.default_rng(seed)
    count = len(widths)
    shapes: dict[str, tuple[int, ...]] = {}
    for m, width in enumerate(widths):
        shapes |= {f"pre{m}_w": (dc, width), f"pre{m}_b": (dc,), f"S{m}_w": (d, dc), f"S{m}_b": (d,)}
        shapes |= {f"att{m}_w": (d, d), f"att{m}_b": (d,)}
    shapes |= {"I_w": (d, dc), "I_b": (d,), "D0_w": (count, d), "D0_b": (count,), "D1_w": (count, d), "D1_b": (count,)}
    shapes |= {"a0w": (4, 3 * d), "a0b": (4,), "a1w": (1, 4), "a1b": (1,)}
    for gate in "urh":
        shapes |= {f"W{gate}": (dh, d + dp), f"U{gate}": (dh, dh), f"b{gate}": (dh,)}
    shapes |= {"m0w": (5, dh + d), "m0b": (5,), "m1w": (1, 5), "m1b": (1,)}
    w = {name: draw.normal(size=shape) * 0.5 for name, shape in shapes.items()}
    e = [draw.normal(size=(items, width)) for width in widths]
    prop = draw.normal(size=(items - 1, dp))

    f = [e[m] @ w[f"pre{m}_w"].T + w[f"pre{m}_b"] for m in range(count)]
    s_m = np.stack([f[m] @ w[f"S{m}_w"].T + w[f"S{m}_b"] for m in range(count)], axis=1)
    c_m = np.stack([f[m] @ w["I_w"].T + w["I_b"] for m in range(count)], axis=1)
    gates = np.stack([np.tanh(s_m[:, m] @ w[f"att{m}_w"].T + w[f"att{m}_b"]) for m in range(count)], axis=1)
    s = (gates * s_m).sum(axis=1)
    c = c_m.sum(axis=1) if options.get("invariant") == "sum" else c_m.mean(axis=1)
    rep = s + c

    d0, d1_c, d1_s = (softmax(x @ w[f"D{n}_w"].T + w[f"D{n}_b"]) for n, x in ((0, c_m), (1, c_m), (1, s_m)))
    own = np.arange(count)
    weight = 1 - d0[:, own, own]
    if options.get("normalise_weights"):
        weight = weight / weight.mean()
    losses = [
        -np.log(d0[:, own, own]).mean(),
        -(weight * np.log(d1_c[:, own, own])).mean(),
        -np.log(d1_s[:, own, own]).mean(),
    ]
    by_c = weight[..., None] * (d1_c - np.eye(count)) / (items * count)  # of the logits
    by_s = (d1_s - np.eye(count)) / (items * count)

    candidate, history = rep[0], rep[1:]
    pairs = np.concatenate([history, np.tile(candidate, (items - 1, 1)), history * candidate], axis=1)
    a = softmax((np.maximum(pairs @ w["a0w"].T + w["a0b"], 0) @ w["a1w"].T + w["a1b"])[:, 0])
    h, states = np.zeros(dh), []
    for t in range(items - 1):
        x = np.concatenate([history[t], prop[t]])
        u, r = (sigmoid(w[f"W{gate}"] @ x + w[f"U{gate}"] @ h + w[f"b{gate}"]) for gate in "ur")
        new = np.tanh(w["Wh"] @ x + r * (w["Uh"] @ h) + w["bh"])
        h = (1 - a[t] * u) * h + a[t] * u * new
        states.append(h)
    hidden = np.maximum(w["m0w"] @ np.concatenate([h, candidate]) + w["m0b"], 0)
    ctr = sigmoid(w["m1w"] @ hidden + w["m1b"])[0]
    click = -np.log(ctr if options.get("clicked", 1) else 1 - ctr)

    out = {
        "s_m": s_m,
        "c_m": c_m,
        "atten": gates,
        "s": s,
        "c": c,
        "rep": rep,
        "D0": d0,
        "w": weight,
        "L_D0": losses[0],
        "D1_c": d1_c,
        "L_D1": losses[1],
        "D1_s": d1_s,
        "L_Ds": losses[2],
        "grad_L_D1_wrt_c_plain": by_c @ w["D1_w"],
        "grad_L_D1_wrt_c_reversed": -grl * by_c @ w["D1_w"],
        "grad_L_Ds_wrt_s": by_s @ w["D1_w"],
        "grad_D1w_total": np.einsum("imk,imd->kd", by_c, c_m) + np.einsum("imk,imd->kd", by_s, s_m),
        "att_hist": a,
        "augru_h": np.array(states),
        "ctr": ctr,
        "L_ctr": click,
        "L_total": click + lam * sum(losses),
    }
    folder.mkdir(parents=True, exist_ok=True)
    stored = {f"param_{name}": value for name, value in w.items()} | {f"out_{k}": np.asarray(v) for k, v in out.items()}
    stored |= {f"in_e{m}": value for m, value in enumerate(e)} | {"in_prop": prop}
    np.savez(folder / "golden.npz", **stored)  # type: ignore[arg-type]
    sizes = {"B": items, "M": count, "d": d, "dc": dc, "de": widths, "dh": dh, "dp": dp, "grl": grl, "lam": lam}
    (folder / "config.json").write_text(json.dumps(sizes | options))
