"""IMRAM against what the official code computed: embeddings, every look of both directions, losses, gradients."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from saccade.batch import ImageCode, TextBatch, TextCode
from saccade.interop.matching.cases import compare_gradient_norms, compare_metrics, open_cases, take_inputs
from saccade.interop.matching.imram import import_imram, our_parameter
from saccade.interop.options import Options
from saccade.interop.verification import EMBEDDING, LOSS, SIMILARITY, Case, verifier
from saccade.models import Imram
from saccade.nn import SentenceGru, triplet_loss, unit


@verifier("imram")
def verify_imram(folder: Path) -> Iterator[Case]:
    for case, model, options in open_cases(folder, import_imram):
        yield _verify_case(case, model, options)


def _verify_case(case: Case, model: Imram, options: Options) -> Case:
    given = take_inputs(case)
    with torch.no_grad():
        images, texts = model.encode_images(given.images), model.encode_texts(given.texts)
        batch = model.encode_images(given.batch_images), model.encode_texts(given.batch_texts)
        embeddings = {
            "img_emb": images.regions,
            "cap_emb": texts.words,
            "batch_img_emb": batch[0].regions,
            "batch_cap_emb": batch[1].words,
            "img_mean": images.regions.mean(dim=1),
            "cap_final_state": _final_state(model, given.texts),
        }
        case.compare_stored(embeddings, EMBEDDING)
        case.compare_stored({"cap_emb_len": given.texts.lengths}, 0.0)
        table, scores = model.similarity(images, texts), model.similarity(*batch)
        case.compare_stored({"sims": table}, SIMILARITY)
        case.compare_stored({"batch_scores_eval": scores, "batch_scores_train": scores.T}, SIMILARITY)
        compare_metrics(case, table.numpy())
        _verify_looks(case, model, options, images, texts)
    for tag in ("sum", "max"):
        scores = model(given.batch_images, given.batch_texts).double()
        loss = triplet_loss(scores, float(options.get("margin", 0.2)), "hardest" if tag == "max" else "all")
        case.compare_stored({f"loss_{tag}": loss}, LOSS)
        compare_gradient_norms(case, tag, loss, model, lambda name: our_parameter(name.removeprefix("model.")))
    return case


def _verify_looks(case: Case, model: Imram, options: Options, images: ImageCode, texts: TextCode) -> None:
    """`step_sims__t2i__0` …: cases store the looks of both directions, whichever of them the model sums up."""
    stored = [match for key in case.stored if (match := re.fullmatch(r"step_sims__(t2i|i2t)__(\d+)", key))]
    if stored:
        steps = max(model.config.steps, *(int(match[2]) + 1 for match in stored))
        whole = import_imram(options.path, model.vocabulary, queries="both", steps=steps)
        assert whole.words_ask is not None
        assert whole.regions_ask is not None
        sides = {"t2i": whole.words_ask, "i2t": whole.regions_ask}
        found = {way: side.similarities(images, texts) for way, side in sides.items()}
        for match in stored:
            case.compare(match[0], found[match[1]][int(match[2])], SIMILARITY)


def _final_state(model: Imram, texts: TextBatch) -> Float[Tensor, "text dim"]:
    """The mean of both directions' last states, of the first layer as in the official code. No score depends on it."""
    first = SentenceGru(model.config.word_dim, model.config.dim, 1, bidirectional=True)
    state = model.words.rnn.state_dict()
    first.load_state_dict({name: state[name] for name in first.state_dict()})
    forward, backward = first(model.words.embed(texts.tokens), texts.lengths).chunk(2, dim=-1)
    last = forward[torch.arange(len(texts)), texts.lengths - 1]
    mean = (last + backward[:, 0]) / 2
    return unit(mean) if model.config.unit_words else mean
