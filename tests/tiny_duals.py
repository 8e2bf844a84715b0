"""Tiny dual encoders of transformers with random weights, saved as their makers save them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

WORDS = ["a", "man", "in", "red", "shirt", "rides", "horse", "on", "the", "beach", "dog", "ball", "photo", "of", "two"]
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SIDE, PATCH = 32, 8


def processor_of(kind: str) -> Any:
    """The library's own image processor, in its form for Pillow."""
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
    from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
    from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

    if kind == "clip":
        return CLIPImageProcessorPil(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    if kind == "siglip2":
        return Siglip2ImageProcessorPil(patch_size=PATCH, max_num_patches=16)
    processor = SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor.image_seq_length = (SIDE // PATCH) ** 2
    return processor


def save_dual(folder: Path, kind: str) -> Path:
    """clip, siglip, siglip2 (pictures keep their shape) or colpali."""
    transformers, torch_state = _library(), torch.get_rng_state()
    torch.manual_seed(0)
    tokeniser = clip_tokeniser() if kind == "clip" else piece_tokeniser(kind)
    network = _network(transformers, kind, tokeniser)
    with torch.no_grad():
        for weight in network.parameters():
            weight.copy_(torch.randn_like(weight) * 0.2)
        if hasattr(network, "logit_scale"):
            network.logit_scale.fill_(2.0)
    torch.set_rng_state(torch_state)
    network.save_pretrained(folder)
    if kind == "colpali":
        transformers.ColPaliProcessor(image_processor=processor_of(kind), tokenizer=tokeniser).save_pretrained(folder)
    else:
        processor_of(kind).save_pretrained(folder)
        tokeniser.save_pretrained(folder)
    return folder


@cache
def _library() -> Any:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    return transformers


def _network(transformers: Any, kind: str, tokeniser: Any) -> Any:
    text = {**SIZES, "vocab_size": len(tokeniser), "max_position_embeddings": 24}
    vision = {**SIZES, "image_size": SIDE, "patch_size": PATCH}
    if kind == "clip":
        ends = {"bos_token_id": tokeniser.bos_token_id, "eos_token_id": tokeniser.eos_token_id}
        config = transformers.CLIPConfig(text_config={**text, **ends}, vision_config=vision, projection_dim=24)
        return transformers.CLIPModel(config)
    if kind == "siglip":
        config = transformers.SiglipConfig(text_config={**text, "projection_size": 32}, vision_config=vision)
        return transformers.SiglipModel(config)
    if kind == "siglip2":
        shaped = {**SIZES, "num_patches": 16, "patch_size": PATCH}
        config = transformers.Siglip2Config(text_config={**text, "projection_size": 32}, vision_config=shaped)
        return transformers.Siglip2Model(config)
    reader = {**SIZES, "model_type": "gemma", "num_key_value_heads": 2, "head_dim": 8, "vocab_size": len(tokeniser)}
    vlm = transformers.PaliGemmaConfig(
        vision_config={**vision, "model_type": "siglip_vision_model", "projection_dim": 32},
        text_config=reader,
        image_token_index=tokeniser.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
    )
    return transformers.ColPaliForRetrieval(transformers.ColPaliConfig(vlm_config=vlm, embedding_dim=16))


def clip_tokeniser() -> Any:
    """Byte pairs: some words whole, all others by their letters."""
    marks = [*"abcdefghijklmnopqrstuvwxyz'.,!?-0123456789"]
    pieces, merges = [*marks, *(f"{letter}</w>" for letter in marks)], list[tuple[str, str]]()
    for word in WORDS:
        parts = [*word[:-1], f"{word[-1]}</w>"]
        while len(parts) > 1:
            merges += [] if (parts[0], parts[1]) in merges else [(parts[0], parts[1])]
            parts = ["".join(parts[:2]), *parts[2:]]
            pieces += [] if parts[0] in pieces else [parts[0]]
    pieces += ["<|startoftext|>", "<|endoftext|>"]
    vocabulary = {piece: id for id, piece in enumerate(pieces)}
    return _library().CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=24)


def piece_tokeniser(kind: str) -> Any:
    """Unigram pieces that begin with ▁; SigLIP's without capitals, an end and no mask, ColPali's with its own ends."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<image>"]
    said = [*WORDS, "Question:", "Describe", "image."] if kind == "colpali" else WORDS
    pieces = [(word, 0.0) for word in special] + [(f"▁{word}", -2.0) for word in said]
    pieces += [("▁", -3.0), ("\n", -3.0), *((letter, -5.0) for letter in "abcdefghijklmnopqrstuvwxyzQD:.'")]
    table: Any = Tokenizer(models.Unigram(pieces, unk_id=3))
    table.pre_tokenizer = pre_tokenizers.Metaspace()
    named = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    fast = _library().PreTrainedTokenizerFast
    if kind == "colpali":
        tokeniser = fast(tokenizer_object=table, bos_token="<bos>", additional_special_tokens=["<image>"], **named)
        tokeniser.image_token, tokeniser.image_token_id = "<image>", 4
        from transformers.models.colpali.processing_colpali import EXTRA_TOKENS

        tokeniser.add_tokens(EXTRA_TOKENS)
        return tokeniser
    table.normalizer = normalizers.Lowercase()
    table.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    return fast(tokenizer_object=table, model_max_length=24, model_input_names=["input_ids"], **named)
