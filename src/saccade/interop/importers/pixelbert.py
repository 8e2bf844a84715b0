"""Checkpoints of a re-implementation of Pixel-BERT: one state dict with the grid encoder, `transformer.*` of
pre-training and `vqa.*` of answering, each with layers of its own.

Numbers of layers and heads lie in `config.json` beside it, pieces in `vocab.txt`; without that file they are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.interop.checkpoint import Options, read_checkpoint, state_dict
from saccade.interop.importer import Importer, Source, Table, Term, blocks, const, ignored, optional, to
from saccade.interop.importers.answering import numbered_answers, required, width_of
from saccade.interop.importers.interbert import OPTIONS, layer_rows, piece_words
from saccade.language import Vocabulary
from saccade.models import PixelBert, PixelBertAnswering, PixelBertConfig

GRID, CLASSIFIER = "grid_encoder.0.weight", "vqa.classifier.2.weight"
HEAD = "transformer.cls.predictions"
TIED = {
    f"{HEAD}.decoder.weight": "transformer.bert.embeddings.word_embeddings.weight",
    f"{HEAD}.decoder.bias": f"{HEAD}.bias",
}
LOSSES = {"bce": "sigmoid", "ce": "softmax"}  # of answers
KNOWN = {"hidden_act": ("gelu",), "layer_norm_eps": (1e-12,), "loss_type": tuple(LOSSES)}


def reads(part: str) -> Callable[[Path, Vocabulary | None, str], Source]:
    """One half of a file: `transformer` or `vqa`."""

    def read(path: Path, vocabulary: Vocabulary | None, title: str) -> Source:
        given, beside = state_dict(read_checkpoint(path), path, "the checkpoint"), path.with_name(OPTIONS)
        weights = {name.removeprefix("cnn.") if name.endswith(GRID) else name: value for name, value in given.items()}
        values = read_json(beside) if beside.is_file() else {}
        if not isinstance(values, dict):
            raise SaccadeError(f"{beside} is no mapping of options")
        for copy, own in TIED.items():
            if copy in weights and own in weights and not torch.equal(weights[copy], weights[own]):
                raise SaccadeError(f"{path}: {copy} is not {own}, and Pixel-BERT ties them")
        required(weights, GRID, path, title)
        words = piece_words(
            len(required(weights, f"{part}.bert.embeddings.word_embeddings.weight", path, title)), vocabulary, path
        )
        return Source(path, title, Options(values, beside, title), weights, words.vocabulary, words)

    return read


def check(source: Source) -> None:
    for name, known in KNOWN.items():
        if (given := source.options.get(name, known[0])) not in known:
            raise SaccadeError(f"{source.options.path}: {name} is {given}, expected {' or '.join(map(str, known))}")


def bert_rows(part: str, config: PixelBertConfig) -> Table:
    place = f"{part}.bert"
    table: dict[str, Any] = {
        GRID: to("image.reduce.weight"),
        "cnn.*": ignored("the CNN below it: any backbone of ours takes its place"),
        f"{place}.embeddings.word_embeddings.weight": to("text.words.weight", words="input"),
        f"{place}.embeddings.position_embeddings.weight": to("text.positions.weight"),
        f"{place}.embeddings.token_type_embeddings.weight": to("text.segments.weight"),
        f"{place}.embeddings.LayerNorm.*": to("text.norm.*"),
        f"{place}.embeddings.position_ids": ignored("numbers from 0 on"),
        f"{place}.visual_embeddings.position_embeddings.weight": ignored("never used"),
        f"{place}.visual_embeddings.row_position_embeddings.weight": to("image.rows.weight"),
        f"{place}.visual_embeddings.col_position_embeddings.weight": to("image.columns.weight"),
        f"{place}.visual_embeddings.token_type_embeddings.weight": to("image.kind", lambda value: value[0]),
        f"{place}.visual_embeddings.LayerNorm.*": to("image.norm.*"),
        f"{place}.pooler.dense.*": to("pool_text.*"),
    }
    for number in range(config.layers):
        table |= layer_rows(f"{place}.encoder.layer.{number}", f"streams.shared.{number}")
    return table


def pretraining_rows(config: PixelBertConfig) -> Table:
    return {
        **bert_rows("transformer", config),
        f"{HEAD}.bias": to("word_bias", words="output"),
        f"{HEAD}.transform.dense.*": to("word_transform.dense.*"),
        f"{HEAD}.transform.LayerNorm.*": to("word_transform.norm.*"),
        **{copy: ignored("tied") for copy in TIED},
        "transformer.cls.seq_relationship.*": to("match_out.*", blocks(1, 0)),  # there, class 1 is a true pair
        "vqa.*": ignored("the model that answers: saccade import pixelbert_answering"),
    }


def answering_rows(config: PixelBertConfig) -> Table:
    return {
        **bert_rows("vqa", config),
        "vqa.classifier.0.*": to("label_out.0.*"),
        "vqa.classifier.2.*": to("label_out.2.*"),
        "transformer.*": ignored("the pre-trained model: saccade import pixelbert"),
    }


def settings(part: str) -> dict[str, Term]:
    place = f"{part}.bert"
    return {
        "region_dim": width_of(GRID, 1),
        "dim": width_of(GRID, 0),
        "heads": optional("num_attention_heads", PixelBertConfig.heads),
        "hidden": width_of(f"{place}.encoder.layer.0.intermediate.dense.weight", 0),
        "layers": _depth(f"{place}.encoder.layer."),
        "pooled_dim": width_of(f"{place}.pooler.dense.weight", 0),
        "max_words": width_of(f"{place}.embeddings.position_embeddings.weight", 0),
        "segments": width_of(f"{place}.embeddings.token_type_embeddings.weight", 0),
        "rows": width_of(f"{place}.visual_embeddings.row_position_embeddings.weight", 0),
        "columns": width_of(f"{place}.visual_embeddings.col_position_embeddings.weight", 0),
        "reduce": const("conv"),
        "image_norm": const(True),
        "samples": const(0),
        "word_average": const("all"),
        "dropout": optional("hidden_dropout_prob", PixelBertConfig.dropout),
        "attention_dropout": optional("attention_probs_dropout_prob", PixelBertConfig.attention_dropout),
        "vocabulary": const("pieces"),
    }


def _depth(prefix: str) -> Term:
    return lambda source: len(
        {name[len(prefix) :].partition(".")[0] for name in source.weights if name.startswith(prefix)}
    )


def _answers(source: Source) -> tuple[str, ...]:
    return numbered_answers(len(required(source.weights, CLASSIFIER, source.path, source.title)))


PIXELBERT: Importer[PixelBert] = Importer(
    system="pixelbert",
    title="Pixel-BERT",
    model=PixelBert,
    reads=reads("transformer"),
    check=check,
    brings_words=True,
    config=settings("transformer"),
    weights=pretraining_rows,
)
PIXELBERT_ANSWERING: Importer[PixelBertAnswering] = Importer(
    system="pixelbert_answering",
    title="Pixel-BERT",
    model=PixelBertAnswering,
    reads=reads("vqa"),
    check=check,
    brings_words=True,
    config={
        **settings("vqa"),
        "answers": _answers,
        "output": lambda source: LOSSES[source.options.get("loss_type", "bce")],
    },
    weights=answering_rows,
)
