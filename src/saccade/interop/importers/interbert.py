"""Checkpoints of InterBERT: `pytorch_model*.bin`, a plain state dict of the pre-training or the fine-tuning model.

Numbers of layers and heads lie in `config.json` beside it, widths are read from the weights. Pieces are those of
`vocab.txt` beside it; without that file they are numbers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import Options, read_checkpoint, state_dict
from saccade.interop.importer import (
    Importer,
    Source,
    Step,
    Table,
    Term,
    WeightRow,
    add_to,
    const,
    ignored,
    optional,
    to,
)
from saccade.interop.importers.answering import required, width_of
from saccade.interop.words import OfficialWords, numbered_words
from saccade.language import Vocabulary
from saccade.language.vocabulary import SPECIAL
from saccade.language.wordpieces import OFFICIAL, official_order, official_pieces
from saccade.models import InterBert, InterBertConfig
from saccade.models.base.fusion import PRETRAINING, Output

OPTIONS = "config.json"
WORDS, DECODER = "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"
TASKS: dict[str, Output] = {
    "vil_prediction.weight": "labels",
    "vil_logit.weight": "choice",
    "vision_logit.weight": "region_choice",
    "linguisic_logit.weight": "word_choice",
}
LAYER = {
    "attention.output.dense": "project",
    "attention.output.LayerNorm": "norm1",
    "intermediate.dense": "fc1",
    "output.dense": "fc2",
    "output.LayerNorm": "norm2",
}


def read_interbert(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
    """Raises: SaccadeError if the words, or the two tables of word vectors, do not fit."""
    weights, beside = state_dict(read_checkpoint(path), path, "the checkpoint"), path.with_name(OPTIONS)
    values = read_json(beside) if beside.is_file() else {}
    if not isinstance(values, dict):
        raise SaccadeError(f"{beside} is no mapping of options")
    table = required(weights, WORDS, path, title)
    if DECODER in weights and not torch.equal(weights[DECODER], table):
        raise SaccadeError(f"{path}: {DECODER} is not {WORDS}, and InterBERT ties them")
    words = piece_words(len(table), vocabulary, path)
    return Source(path, title, Options(values, beside, title), weights, words.vocabulary, words)


def piece_words(count: int, vocabulary: Vocabulary | None, path: Path) -> OfficialWords:
    known: Vocabulary
    if path.with_name("vocab.txt").is_file():
        order = official_order(path.parent)
        known = official_pieces(order, source=path.with_name("vocab.txt"))
        named = dict(zip(OFFICIAL, SPECIAL, strict=False))
        rows = torch.tensor([known.id_of(named.get(piece, piece)) for piece in order])
    else:
        known = vocabulary or numbered_words(count)
        rows = torch.arange(len(known))
    if len(rows) != count:
        raise SaccadeError(f"{path} knows {count} word pieces, the vocabulary has {len(rows)}")
    return OfficialWords(known, rows, rows)


KNOWN = {"hidden_act": ("gelu",), "v_hidden_act": ("gelu",), "fusion_method": ("mul", "sum")}


def check(source: Source) -> None:
    for name, known in KNOWN.items():
        given = source.options.get(name, known[0])
        if given not in known:
            raise SaccadeError(f"{source.options.path}: {name} is {given}, expected {' or '.join(known)}")


def third(number: int) -> Step:
    """Queries, keys and values are one matrix here: this is the first, second or last third of it."""

    def step(value: Tensor) -> Tensor:
        parts = [value if n == number else torch.zeros_like(value) for n in range(3)]
        return torch.cat(parts)

    return step


def layer_rows(theirs: str, ours: str) -> dict[str, WeightRow]:
    rows = {
        f"{theirs}.attention.self.{name}.{kind}": add_to(f"{ours}.qkv.{kind}", third(n))
        for n, name in enumerate(("query", "key", "value"))
        for kind in ("weight", "bias")
    }
    return rows | {f"{theirs}.{part}.*": to(f"{ours}.{name}.*") for part, name in LAYER.items()}


def weights_of(config: InterBertConfig) -> Table:
    preset = config.preset
    table: dict[str, Any] = {
        WORDS: to("text.words.weight", words="input"),
        "bert.embeddings.position_embeddings.weight": to("text.positions.weight"),
        "bert.embeddings.token_type_embeddings.weight": to("text.segments.weight"),
        "bert.embeddings.LayerNorm.*": to("text.norm.*"),
        "bert.v_embeddings.image_embeddings.*": to("image.features.*"),
        "bert.v_embeddings.image_location_embeddings.*": to("image.positions.*"),
        "bert.v_embeddings.LayerNorm.*": to("image.norm.*"),
        "bert.t_pooler.dense.*": to("pool_text.*"),
        "bert.v_pooler.dense.*": to("pool_image.*"),
        "cls.predictions.bias": to("word_bias", words="output"),
        "cls.predictions.transform.dense.*": to("word_transform.dense.*"),
        "cls.predictions.transform.LayerNorm.*": to("word_transform.norm.*"),
        DECODER: ignored("tied to the word embeddings"),
        "cls.imagePredictions.transform.dense.*": to("region_transform.dense.*"),
        "cls.imagePredictions.transform.LayerNorm.*": to("region_transform.norm.*"),
        "cls.imagePredictions.decoder.*": to("region_out.*"),
        "cls.bi_seq_relationship.*": to("match_out.*"),
        "vil_prediction.*": to("label_out.*"),
        "vil_logit.*": to("choice_out.*"),
        "vision_logit.*": to("region_choice_out.*"),
        "linguisic_logit.*": to("word_choice_out.*"),
    }
    for number in range(preset.layers + preset.text_layers):
        own = f"shared.{number}" if number < preset.layers else f"text.{number - preset.layers}"
        table |= layer_rows(f"bert.encoder.layer.{number}", f"streams.{own}")
    for number in range(preset.image_layers):
        table |= layer_rows(f"bert.encoder.v_layer.{number}", f"streams.image.{number}")
    return table


def _outputs(source: Source) -> tuple[Output, ...]:
    return (*PRETRAINING, *(output for name, output in TASKS.items() if name in source.weights))


def _labels(source: Source) -> int:
    found = source.weights.get("vil_prediction.weight")
    return 0 if found is None else len(found)


def _depth(option: str, default: int) -> Term:
    return lambda source: int(source.options.get(option, default))


def _fusion(source: Source) -> str:
    return {"mul": "product", "sum": "sum"}[source.options.get("fusion_method", "mul")]


INTERBERT: Importer[InterBert] = Importer(
    system="interbert",
    title="InterBERT",
    model=InterBert,
    reads=read_interbert,
    check=check,
    brings_words=True,
    config={
        "region_dim": width_of("bert.v_embeddings.image_embeddings.weight", 1),
        "dim": width_of(WORDS, 1),
        "heads": optional("num_attention_heads", InterBertConfig.heads),
        "image_heads": optional("v_num_attention_heads", InterBertConfig.image_heads),
        "hidden": width_of("bert.encoder.layer.0.intermediate.dense.weight", 0),
        "image_hidden": lambda source: _image_hidden(source),
        "layers": _depth("num_hidden_layers", 6),
        "text_layers": _depth("t_num_hidden_layers", 6),
        "image_layers": _depth("v_num_hidden_layers", 6),
        "pooled_dim": width_of("bert.t_pooler.dense.weight", 0),
        "max_words": width_of("bert.embeddings.position_embeddings.weight", 0),
        "segments": width_of("bert.embeddings.token_type_embeddings.weight", 0),
        "region_output": lambda source: "features" if source.options.get("predict_feature", False) else "classes",
        "region_classes": width_of("cls.imagePredictions.decoder.weight", 0),
        "fusion": _fusion,
        "outputs": _outputs,
        "labels": _labels,
        "dropout": optional("hidden_dropout_prob", InterBertConfig.dropout),
        "attention_dropout": optional("attention_probs_dropout_prob", InterBertConfig.attention_dropout),
        "vocabulary": const("pieces"),
    },
    weights=weights_of,
)


def _image_hidden(source: Source) -> int:
    found = source.weights.get("bert.encoder.v_layer.0.intermediate.dense.weight")
    return InterBertConfig.image_hidden if found is None else len(found)
