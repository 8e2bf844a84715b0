"""DINOv2: Learning Robust Visual Features without Supervision (Oquab, Darcet, Moutakanni et al.; TMLR 2024), with the
registers of "Vision Transformers Need Registers" (Darcet, Oquab, Mairal, Bojanowski; ICLR 2024).

A picture is cut into patches of 14 × 14 pixels. Each becomes a token by one linear layer and is told its place; a class
token, and registers in which the network may keep what belongs to no place, stand before them.

    z₀ = [class + p₀; registers; E x₁ + p₁; …; E x_n + p_n]
    z′ = z + γ₁ ⊙ attention(norm z),   z = z′ + γ₂ ⊙ W₂ gelu(W₁ norm z′)          for each block

A map is the patches' tokens after a block, normalised by the network's last layer norm and laid out as the patches
were. Position embeddings were learnt for pictures of 518 pixels and are interpolated for others.

`dinov2-s` has the weights of `saccade weights get dinov2-s`; `dinov2:HUB/NAME` or `dinov2:FOLDER` reads a checkpoint of
transformers (small, base, large; with or without registers) without that library. Behind either name, `:9` takes the
map of block 9 in place of the last, and `:3+6+9+12` those of four blocks; blocks after the last of them are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.hub import model_folder
from saccade.core.pretrained import load_pretrained
from saccade.core.weights import build_within, check_values, held_shapes, read_weights
from saccade.vision.backbones.base import Backbone, normalise_by

DEFAULT_SIZE = 224  # pixels a side, of most of the training and of what others report


@dataclass(frozen=True)
class Dinov2Config:
    """The defaults are those of ViT-S/14 with registers."""

    dim: int = 384
    depth: int = 12  # blocks
    heads: int = 6
    mlp_ratio: int = 4
    patch: int = 14  # pixels a side
    positions: int = 37  # patches a side of the pictures that position embeddings were learnt for
    registers: int = 4
    eps: float = 1e-6


class PatchEmbedding(nn.Module):
    """Pictures to tokens: the class, the registers, and the patches row by row."""

    def __init__(self, config: Dinov2Config) -> None:
        super().__init__()
        self.side = config.positions
        self.patches = nn.Conv2d(3, config.dim, config.patch, config.patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, config.dim))
        self.positions = nn.Parameter(torch.zeros(1, 1 + self.side**2, config.dim))
        self.registers = nn.Parameter(torch.zeros(1, config.registers, config.dim)) if config.registers else None

    def forward(self, pictures: Float[Tensor, "image 3 height width"]) -> Float[Tensor, "image token dim"]:
        patches = self.patches(pictures)
        places = self.place(*patches.shape[-2:])
        first = (self.class_token + self.positions[:, :1]).expand(len(patches), -1, -1)
        registers = [] if self.registers is None else [self.registers.expand(len(patches), -1, -1)]
        tokens = patches.flatten(2).transpose(1, 2) + places
        return torch.cat([first.to(tokens.dtype), *(r.to(tokens.dtype) for r in registers), tokens], dim=1)

    def place(self, rows: int, columns: int) -> Float[Tensor, "1 patch dim"]:
        """Position embeddings for so many patches; only the networks with registers were trained with antialiasing."""
        learnt = self.positions[:, 1:]
        if (rows, columns) == (self.side, self.side):
            return learnt
        grid = learnt.reshape(1, self.side, self.side, -1).permute(0, 3, 1, 2).float()
        antialias = self.registers is not None
        found = functional.interpolate(grid, (rows, columns), mode="bicubic", antialias=antialias)
        return found.flatten(2).transpose(1, 2).to(learnt.dtype)


class Block(nn.Module):
    """Attention among all tokens, then two layers for each; what either adds is scaled, channel by channel."""

    def __init__(self, config: Dinov2Config) -> None:
        super().__init__()
        dim, wide = config.dim, config.dim * config.mlp_ratio
        self.heads = config.heads
        self.drop_path = 0.0
        self.norm1, self.norm2 = (nn.LayerNorm(dim, eps=config.eps) for _ in range(2))
        self.qkv, self.project = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, wide), nn.Linear(wide, dim)
        self.scale1, self.scale2 = (nn.Parameter(torch.ones(dim)) for _ in range(2))  # γ

    def forward(self, tokens: Float[Tensor, "image token dim"]) -> Float[Tensor, "image token dim"]:
        tokens = self._add(tokens, self._attend(self.norm1(tokens)), self.scale1)
        return self._add(tokens, self.fc2(functional.gelu(self.fc1(self.norm2(tokens)))), self.scale2)

    def _attend(self, tokens: Float[Tensor, "image token dim"]) -> Float[Tensor, "image token dim"]:
        split = self.qkv(tokens).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = split.permute(2, 0, 3, 1, 4)  # each [image head token part]
        attended = functional.scaled_dot_product_attention(queries, keys, values)
        found: Tensor = self.project(attended.transpose(1, 2).flatten(2))
        return found

    def _add(self, tokens: Tensor, branch: Tensor, scale: Tensor) -> Tensor:
        """One pass over the tokens. In training a picture passes a branch by with probability `drop_path`."""
        if self.training and self.drop_path:
            stays = torch.rand(len(tokens), 1, 1, device=tokens.device) >= self.drop_path
            scale = scale * stays / (1 - self.drop_path)
        return torch.addcmul(tokens, branch.to(tokens.dtype), scale.to(tokens.dtype))


class Dinov2(Backbone):
    """The network up to the last of `blocks`, counted from 1, whose maps it returns."""

    def __init__(self, name: str, config: Dinov2Config | None = None, blocks: tuple[int, ...] | None = None) -> None:
        super().__init__()
        config = config or Dinov2Config()
        self.taken = blocks or (config.depth,)
        if list(self.taken) != sorted(set(self.taken)) or not 1 <= self.taken[0] <= self.taken[-1] <= config.depth:
            raise SaccadeError(
                f'"{name}" must name blocks from 1 to {config.depth}, each once and in order, '
                f"not {'+'.join(map(str, self.taken))}"
            )
        self.name, self.size, self.multiple = name, DEFAULT_SIZE, config.patch
        self.strides = (config.patch,) * len(self.taken)
        self.channels = (config.dim,) * len(self.taken)
        self.front = 1 + config.registers  # tokens without a place
        self.embed = PatchEmbedding(config)
        self.blocks = nn.ModuleList(Block(config) for _ in range(self.taken[-1]))
        self.norm = nn.LayerNorm(config.dim, eps=config.eps)
        for part in self.modules():
            if isinstance(part, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(part.weight, std=0.02)
                nn.init.zeros_(part.bias)  # type: ignore[arg-type]
        for weight in (self.embed.class_token, self.embed.positions):
            nn.init.trunc_normal_(weight, std=0.02)

    def normalise(self, pixels: UInt8[Tensor, "image height width 3"]) -> Float[Tensor, "image 3 height width"]:
        return normalise_by(pixels)

    def forward(
        self, pictures: Float[Tensor, "image 3 height width"]
    ) -> tuple[Float[Tensor, "image channel row column"], ...]:
        self.check_sides(*pictures.shape[-2:])
        rows, columns = (side // self.multiple for side in pictures.shape[-2:])
        tokens, found = self.embed(pictures), []
        for number, block in enumerate(self.blocks, start=1):
            tokens = block(tokens)
            if number in self.taken:
                patches = self.norm(tokens[:, self.front :])
                found.append(patches.transpose(1, 2).unflatten(2, (rows, columns)))
        return tuple(found)

    @property
    def parts(self) -> tuple[nn.Module, ...]:
        return (self.embed, *self.blocks, self.norm)

    def set_drop_path(self, rate: float) -> None:
        """The chance to be passed by rises with depth, from 0 at the first block to `rate` at the last."""
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            block.drop_path = rate * number / max(len(self.blocks) - 1, 1)


def open_backbone(name: str, pretrained: bool = True) -> Dinov2:
    """`dinov2-s`, `dinov2:HUB/NAME` or `dinov2:FOLDER`, each with `:BLOCKS` behind it or not.

    Raises: SaccadeError if the checkpoint cannot be had, or is of another network.
    """
    found = re.fullmatch(r"dinov2(?:-s|:(.+?))(?::([0-9]{1,3}(?:\+[0-9]{1,3})*))?", name, re.DOTALL)
    if found is None:
        raise SaccadeError(
            f'"{name}" is no backbone: dinov2-s, dinov2:HUB/NAME or dinov2:FOLDER was expected, '
            "and behind it at most the blocks whose maps are wanted, such as :9 or :6+12"
        )
    place, numbers = found.groups()
    blocks = None if numbers is None else tuple(map(int, numbers.split("+")))
    folder = None if place is None else model_folder(place)
    config = Dinov2Config() if folder is None else read_config(folder / "config.json")
    if folder is None or not pretrained:
        network = Dinov2(name, config, blocks)
        if pretrained:
            _load(network, load_pretrained("dinov2-s"))
        return network
    path = folder / WEIGHTS
    network = build_within(lambda: Dinov2(name, config, blocks), held_shapes(path), path)
    _load(network, read_weights(path))
    return network


WEIGHTS = "model.safetensors"
RENAMES = [  # of the official weights and of transformers' → ours
    (r"^dinov2(_with_registers)?\.", ""),
    (r"^(embeddings\.)?cls_token$", "embed.class_token"),
    (r"^(embeddings\.)?register_tokens$", "embed.registers"),
    (r"^(pos_embed|embeddings\.position_embeddings)$", "embed.positions"),
    (r"^(patch_embed\.proj|embeddings\.patch_embeddings\.projection)\.", "embed.patches."),
    (r"^layernorm\.", "norm."),
    (r"^encoder\.layer\.", "blocks."),
    (r"\.attn\.qkv\.", ".qkv."),
    (r"\.attention\.attention\.(query|key|value)\.", r".\1."),
    (r"\.(attn\.proj|attention\.output\.dense)\.", ".project."),
    (r"\.(ls|layer_scale)([12])\.(gamma|lambda1)$", r".scale\2"),
    (r"\.mlp\.", "."),
]
UNUSED = re.compile(r"(^|\.)mask_token$|^classifier\.")


def read_config(path: Path) -> Dinov2Config:
    """What a config.json of transformers says. Raises: SaccadeError if it is not of a DINOv2 that is known here."""
    values = read_json(path)
    known = ("dinov2", "dinov2_with_registers")
    if not isinstance(values, dict) or values.get("model_type") not in known:
        raise SaccadeError(f"{path} is not the config of a DINOv2: its model_type must be {' or '.join(known)}")
    if values.get("use_swiglu_ffn") or values.get("qkv_bias") is False or values.get("hidden_act", "gelu") != "gelu":
        raise SaccadeError(f"{path}: only networks with GELU layers and biases are known here, not the giant one")
    patch = _number(values, "patch_size", 14, path)
    return Dinov2Config(
        dim=_number(values, "hidden_size", 768, path),
        depth=_number(values, "num_hidden_layers", 12, path),
        heads=_number(values, "num_attention_heads", 12, path),
        mlp_ratio=_number(values, "mlp_ratio", 4, path),
        patch=patch,
        positions=_number(values, "image_size", 224, path) // patch,
        registers=_number(values, "num_register_tokens", 4, path) if values["model_type"] == known[1] else 0,
        eps=float(values.get("layer_norm_eps", 1e-6)),
    )


def _number(values: Mapping[str, Any], key: str, default: int, path: Path) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or not 0 <= value <= 1 << 16:
        raise SaccadeError(f"{path}: {key} must be a whole number, not {value!r}")
    return value


def _load(network: Dinov2, state: Mapping[str, Tensor]) -> None:
    found: dict[str, Tensor] = {}
    for name, value in state.items():
        if not UNUSED.search(name):
            for pattern, ours in RENAMES:
                name = re.sub(pattern, ours, name)
            found[name] = value
    for name in [name for name in found if ".query." in name]:
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        if all(part in found for part in parts):
            found[name.replace(".query.", ".qkv.")] = torch.cat([found.pop(part) for part in parts])
    wanted = {name: value.shape for name, value in network.state_dict().items()}
    beyond = tuple(f"blocks.{number}." for number in range(len(network.blocks), 1000))  # after the last that is used
    given = {name: value for name, value in found.items() if not name.startswith(beyond)}
    wrong = sorted(
        name for name in wanted.keys() | given.keys() if name not in given or wanted.get(name) != given[name].shape
    )
    if wrong:
        raise SaccadeError(f'the weights of "{network.name}" are not those of its config: {wrong[0]} differs')
    check_values(given, network.state_dict(), network.name)
    network.load_state_dict(given)
