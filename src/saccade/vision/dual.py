"""Dual encoders of transformers as extractors, `dual:HUB/NAME` or `dual:FOLDER`: regions that lie in the texts' space.

CLIP (Radford et al., ICML 2021), MetaCLIP 2, SigLIP (Zhai et al., ICCV 2023), SigLIP 2 (Tschannen et al., 2025) at a
fixed resolution or at the picture's own shape, and ColPali (Faysse et al., ICLR 2025). The regions of a picture are its
patches, row by row, at the resolution that the model was trained on; their vectors are in the space where the model
compares pictures with texts, not yet of unit length. After the patches comes what belongs to no patch: of CLIP and
SigLIP the picture's own vector, of ColPali the tokens of its prompt. Their box is all that the model saw.

A dual encoder is trained on whole pictures, so what a patch is in the texts' space has to be said:

- CLIP reads a picture off its class token. A patch is what the last layer makes of it if it attends to itself alone,
  through the same normalisation and projection as the class token (MaskCLIP: Zhou, Loy, Dai; ECCV 2022).
- SigLIP reads a picture with an attention head. A patch is what the head makes of it if there were no other.
- ColPali has a vector for every patch, with which it was trained.

How a model wants its pictures stands in its `preprocessor_config.json`; resizing, cutting and scaling are Pillow's and
PyTorch's, with the same numbers as the library's own processors (which a test compares).
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn
from torch.nn import functional

from saccade.batch import RegionBatch
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.hub import DUAL_ENCODERS, first_line, is_dual, model_folder
from saccade.vision.backbones.hf import (
    PROCESSORS,
    import_transformers,
    load_whole,
    processor_file,
    quietly,
    read_processor,
)
from saccade.vision.boxes import WHOLE
from saccade.vision.detectors.detr import PictureForm, form_of
from saccade.vision.extractors import RegionExtractor, network_digest, upload
from saccade.vision.grid import cell_boxes
from saccade.vision.pictures import Picture, as_array

VISUAL_PROMPT = "Describe the image."  # ColPali's, unless its processor says otherwise
_opened: WeakValueDictionary[str, nn.Module] = WeakValueDictionary()  # shared by a matcher and its extractor


def open_network(source: str) -> Any:
    """The whole network of a folder or of the hub, once a process, in float32 (ColPali in its own number type).

    Raises: SaccadeError if it cannot be had, is of another kind, or has no weights in safetensors.
    """
    folder = model_folder(source)
    key = str(folder.resolve())
    network = _opened.get(key)
    if network is None:
        network = _opened[key] = _load(source, folder)
    return network


def _load(source: str, folder: Path) -> Any:
    transformers = import_transformers(f'the model "{source}"')
    described = read_json(folder / "config.json") if (folder / "config.json").is_file() else None
    if not isinstance(described, dict) or not is_dual(described):
        kind = described.get("model_type") if isinstance(described, dict) else None
        raise SaccadeError(f'"{source}" is no dual encoder ({", ".join(DUAL_ENCODERS)}), but {kind or "nothing known"}')
    dtype = "auto" if described["model_type"] == "colpali" else torch.float32
    try:
        with quietly(transformers):
            network = load_whole(
                getattr(transformers, DUAL_ENCODERS[described["model_type"]]).from_pretrained, folder, dtype=dtype
            )
    except SaccadeError:
        raise
    except OSError as error:
        raise SaccadeError(f'"{source}" has no weights in safetensors: {first_line(error)}') from error
    except Exception as error:  # damaged weights, a config that does not fit them
        raise SaccadeError(f'"{source}" cannot be loaded: {first_line(error)}') from error
    return network.eval().requires_grad_(False)


def open_tokeniser(source: str) -> Any:
    """The tokeniser beside the weights. Raises: SaccadeError if there is none that can be read."""
    transformers = import_transformers(f'the model "{source}"')
    try:
        with quietly(transformers):
            return transformers.AutoTokenizer.from_pretrained(model_folder(source), trust_remote_code=False)
    except Exception as error:  # missing files, a missing sentencepiece, damaged tables
        raise SaccadeError(f'"{source}" has no tokeniser that can be read here: {first_line(error)}') from error


@dataclass(frozen=True)
class PatchForm:
    """How pictures become patches: resized, cut in the middle if the model wants it, or kept in their own shape."""

    form: PictureForm
    patch: int  # pixels a side
    crop: tuple[int, int] | None = None  # height, width
    most: int | None = None  # patches of a picture that keeps its shape

    def resize(self, picture: UInt8[np.ndarray, "row column 3"]) -> UInt8[np.ndarray, "row column 3"]:
        """Uncut, so that boxes can be told: twice is the same as once."""
        if self.most is None:
            return self.form.resize(picture)
        height, width = picture.shape[:2]
        return replace(self.form, fixed=shape_within(height, width, self.patch, self.most)).resize(picture)

    def cut(
        self, picture: UInt8[np.ndarray, "row column 3"]
    ) -> tuple[UInt8[np.ndarray, "row column 3"], Float[Tensor, "patch_and_one 4"]]:
        """What the model sees, and the boxes of its patches in the whole picture, those of all of it last."""
        height, width = picture.shape[:2]
        rows, columns = self.crop or (height, width)
        top, left = (height - rows) // 2, (width - columns) // 2
        seen = picture[top : top + rows, left : left + columns]
        cells = torch.cat([cell_boxes(rows // self.patch, columns // self.patch), torch.tensor([WHOLE])])
        used = [columns // self.patch * self.patch, rows // self.patch * self.patch]  # an edge may be left over
        boxes = (cells * torch.tensor(used * 2) + torch.tensor([left, top] * 2)) / torch.tensor([width, height] * 2)
        return seen, boxes


def shape_within(height: int, width: int, patch: int, most: int) -> tuple[int, int]:
    """The largest picture of this shape that has at most so many patches, each side rounded up to whole patches."""

    def sides(scale: float) -> tuple[int, int]:
        return tuple(max(1, math.ceil(side * scale / patch)) * patch for side in (height, width))  # type: ignore[return-value]

    low, high = 1e-6, 100.0
    while high - low >= 1e-5:
        middle = (low + high) / 2
        rows, columns = sides(middle)
        low, high = (middle, high) if rows * columns <= most * patch * patch else (low, middle)
    return sides(low)


def read_patch_form(folder: Path, vision: Any, keeps_shape: bool) -> PatchForm:
    """From the processor's file. Raises: SaccadeError if there is none, or a field is not what it should be."""
    path = processor_file(folder)
    if path is None:
        raise SaccadeError(f"{folder / PROCESSORS[0]} is missing: it says how the model wants its pictures")
    values = {"resample": 2 if keeps_shape else 3, **read_processor(path)}  # the library's, where a file does not say
    patch = int(vision.patch_size)
    if keeps_shape:
        most = values.get("max_num_patches", 256)
        if not isinstance(most, int) or not 1 <= most <= 1 << 16:
            raise SaccadeError(f"{path}: max_num_patches is {most!r}, a number of patches was expected")
        return PatchForm(form_of({**values, "do_resize": False}, path), patch, most=most)
    cropped = values.get("do_center_crop", "crop_size" in values)
    size, crop = values.get("size"), values.get("crop_size")
    if isinstance(size, int):
        values["size"] = {"shortest_edge": size} if cropped else {"height": size, "width": size}
    form = form_of(values, path)
    if not cropped:
        if form.fixed is None:
            raise SaccadeError(f"{path}: a fixed height and width, or a part cut from the middle, was expected")
        return PatchForm(form, patch)
    crop = {"height": crop, "width": crop} if isinstance(crop, int) else crop or {}
    high, wide = _side(crop, "height"), _side(crop, "width")
    smallest = form.fixed or (form.shortest or 0, form.shortest or 0)
    if not (patch <= high <= smallest[0] and patch <= wide <= smallest[1]):
        raise SaccadeError(f"{path}: crop_size is {crop!r}, at least a patch and at most {smallest} was expected")
    return PatchForm(form, patch, (high, wide))


def _side(size: Any, name: str) -> int:
    """A whole number of a processor's file; 0 if it is none."""
    side = size.get(name) if isinstance(size, dict) else None
    return side if isinstance(side, int) else 0


def class_token_vectors(network: Any, pixels: Tensor) -> Tensor:
    """CLIP: of every patch, attending to itself alone in the last layer, and of the picture."""
    vision = network.vision_model
    found = vision(pixel_values=pixels, output_hidden_states=True)
    layer, before = vision.encoder.layers[-1], found.hidden_states[-2][:, 1:]
    alone = before + layer.self_attn.out_proj(layer.self_attn.v_proj(layer.layer_norm1(before)))
    alone = alone + layer.mlp(layer.layer_norm2(alone))
    whole = found.pooler_output[:, None]
    projected: Tensor = network.visual_projection(torch.cat([vision.post_layernorm(alone), whole], dim=1))
    return projected


def head_alone(head: Any, states: Float[Tensor, "image patch dim"]) -> Float[Tensor, "image patch dim"]:
    """What SigLIP's pooling head makes of each patch if it is the only one: its softmax over one is 1."""
    attention, dim = head.attention, states.shape[-1]
    values = functional.linear(states, attention.in_proj_weight[2 * dim :], attention.in_proj_bias[2 * dim :])
    read = attention.out_proj(values)
    found: Tensor = read + head.mlp(head.layernorm(read))
    return found


def head_vectors(network: Any, **inputs: Tensor) -> Tensor:
    """SigLIP: of every patch, the only one that the head sees, and of the picture."""
    found = network.vision_model(**inputs)
    return torch.cat(
        [head_alone(network.vision_model.head, found.last_hidden_state), found.pooler_output[:, None]], dim=1
    )


class DualExtractor(RegionExtractor):
    """Patches in the texts' space, and after them what belongs to no patch."""

    max_cpu_batch = 8

    def __init__(self, source: str) -> None:
        self.network: Any = open_network(source)
        config = self.network.config
        self.name = f"dual:{source}"
        self.kind = config.model_type
        vision = config.vlm_config.vision_config if self.kind == "colpali" else config.vision_config
        self.form = read_patch_form(model_folder(source), vision, keeps_shape=self.kind == "siglip2")
        self.prompt = _visual_prompt(source, config) if self.kind == "colpali" else None
        self.dim = _vector_dim(config, self.network)
        seen = self.network if self.kind == "colpali" else self.network.vision_model
        self.digest = network_digest(seen, json.dumps([self.kind, repr(self.form), repr(self.prompt)]))

    def prepare(self, picture: Picture, where: str = "the picture") -> UInt8[np.ndarray, "row column 3"]:
        return self.form.resize(as_array(picture, where))

    @torch.inference_mode()
    def regions(self, pictures: list[np.ndarray], boxes: list[Tensor] | None) -> RegionBatch:
        """Pictures of one size go through the network together."""
        if boxes is not None:
            raise SaccadeError(f'the extractor "{self.name}" sees patches: it cannot look at boxes that are given')
        cut = [self.form.cut(picture) for picture in pictures]
        found: list[Tensor] = [torch.empty(0)] * len(cut)
        for shape in sorted({seen.shape for seen, _ in cut}):
            alike = [i for i, (seen, _) in enumerate(cut) if seen.shape == shape]
            pixels = self.form.form.normalise(upload([cut[i][0] for i in alike], self.device))
            for i, vectors in zip(alike, self._vectors(pixels).float().cpu(), strict=True):
                found[i] = vectors
        places = [
            torch.cat([places, places[-1:].expand(len(vectors) - len(places), 4)])
            for vectors, (_, places) in zip(found, cut, strict=True)
        ]
        return RegionBatch.of(found, places, dim=self.dim)

    def _vectors(self, pixels: Float[Tensor, "image 3 height width"]) -> Float[Tensor, "image region dim"]:
        if self.kind == "colpali":
            return self._prompted(pixels)
        if self.kind == "siglip":
            return head_vectors(self.network, pixel_values=pixels)
        if self.kind == "siglip2":
            return head_vectors(self.network, **patched(pixels, self.form.patch))
        return class_token_vectors(self.network, pixels)

    def _prompted(self, pixels: Tensor) -> Tensor:
        """ColPali: every patch has a token, and the prompt follows."""
        assert self.prompt is not None
        ids = self.prompt.to(pixels.device).expand(len(pixels), -1)
        embedded = self.network(
            input_ids=ids,
            pixel_values=pixels,
            attention_mask=torch.ones_like(ids),
            token_type_ids=torch.zeros_like(ids),
        )
        vectors: Tensor = embedded.embeddings
        return vectors


def patched(pixels: Float[Tensor, "image 3 height width"], patch: int) -> dict[str, Tensor]:
    """What SigLIP 2 takes of pictures that keep their shape: rows of patches, all of them real."""
    rows, columns = pixels.shape[2] // patch, pixels.shape[3] // patch
    cells = pixels.reshape(len(pixels), 3, rows, patch, columns, patch)
    flat = cells.permute(0, 2, 4, 3, 5, 1).flatten(3).flatten(1, 2)
    mask = torch.ones(flat.shape[:2], dtype=torch.long, device=pixels.device)
    shape = torch.tensor([rows, columns], device=pixels.device).expand(len(pixels), 2)
    return {"pixel_values": flat, "pixel_attention_mask": mask, "spatial_shapes": shape}


def _vector_dim(config: Any, network: Any) -> int:
    if config.model_type == "colpali":
        return int(config.embedding_dim)
    if config.model_type in ("siglip", "siglip2"):
        if not hasattr(network.vision_model, "head"):
            raise SaccadeError("this SigLIP has no pooling head, and so no vector of a picture")
        return int(config.vision_config.hidden_size)
    return int(config.projection_dim)


def _visual_prompt(source: str, config: Any) -> Int[Tensor, " token"]:
    """The tokens that ColPali reads with a picture: one for each patch, then a sentence."""
    tokeniser, vision = open_tokeniser(source), config.vlm_config.vision_config
    patches = (int(vision.image_size) // int(vision.patch_size)) ** 2
    said = f"{tokeniser.bos_token}{processor_setting(source, 'visual_prompt_prefix', VISUAL_PROMPT)}\n"
    ids = tokeniser(said, add_special_tokens=False)["input_ids"]
    image = getattr(config.vlm_config, "image_token_id", None) or config.vlm_config.image_token_index
    return torch.tensor([int(image)] * patches + list(ids))


def processor_setting(source: str, name: str, default: str) -> str:
    """A sentence that a processor's file may name."""
    for file in reversed(PROCESSORS):
        path = model_folder(source) / file
        values = read_json(path) if path.is_file() else None
        if isinstance(values, dict) and isinstance(values.get(name), str):
            return str(values[name])
    return default


def open_extractor(argument: str = "") -> DualExtractor:
    """`HUB/NAME` or a folder."""
    if not argument:
        raise SaccadeError('the extractor "dual" needs a model: dual:HUB/NAME or dual:FOLDER')
    return DualExtractor(argument)
