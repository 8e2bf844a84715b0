"""MiniLM as word encoder: the numbers of transformers' BERT, words of several pieces, padding, slow learning."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import nn

from saccade.batch import TextBatch
from saccade.core.errors import SaccadeError
from saccade.core.files import sha256
from saccade.core.pretrained import PRETRAINED
from saccade.language import Vocabulary
from saccade.language.vectors import load_vectors
from saccade.models import entry, load_model
from saccade.nn.transformer.words import HEADS, LAYERS, MAX_WORDS, MLP_RATIO, WIDTH, TransformerWords

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "two", "dogs", "run", "surf", "##board", "-")
SENTENCES = ["two dogs run", "dogs"]


def official() -> transformers.BertModel:
    """A random BERT of MiniLM's sizes that knows eleven pieces, nothing in it at its initial zeros or ones."""
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(PIECES),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        intermediate_size=MLP_RATIO * WIDTH,
    )
    model = transformers.BertModel(config, add_pooling_layer=False)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.05)
    return model.eval()


@pytest.fixture
def minilm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> transformers.BertModel:
    """Found by name, as the files of the real package are."""
    model, folder = official(), tmp_path / "minilm"
    folder.mkdir()
    known = PRETRAINED["minilm"]
    for file in known.files:
        (folder / file.path).write_text(json.dumps({}))
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "model.safetensors")
    files = tuple(dataclasses.replace(file, sha256=sha256(folder / file.path)) for file in known.files)
    monkeypatch.setitem(PRETRAINED, "minilm", dataclasses.replace(known, files=files))
    monkeypatch.setenv("SACCADE_WEIGHTS", str(tmp_path))
    return model


def test_states_are_those_of_the_original(minilm: transformers.BertModel) -> None:
    vocabulary = Vocabulary.build(SENTENCES, 1)
    words = TransformerWords(len(vocabulary), WIDTH, normalise=False).eval()
    words.load_minilm(vocabulary)
    with torch.no_grad():
        words.fc.weight.copy_(torch.eye(WIDTH))
        words.fc.bias.zero_()
        found = words(vocabulary.batch(SENTENCES))
        ids = torch.tensor([[2, 5, 6, 7, 3], [2, 6, 3, 0, 0]])
        mask = (ids != 0).long()
        wanted = minilm(input_ids=ids, attention_mask=mask).last_hidden_state * mask[..., None]
    torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-5)


def test_a_word_of_several_pieces_is_their_mean(minilm: transformers.BertModel) -> None:
    table = minilm.get_input_embeddings().weight
    found = load_vectors("minilm", ["surfboard", "surf-board", "dogs", "zebra"])
    assert found.words == ("surfboard", "dogs")
    assert found.missing == ("surf-board", "zebra")  # no piece begins with "board"
    assert torch.allclose(torch.from_numpy(found.matrix[0]), table[[8, 9]].mean(dim=0))
    assert torch.equal(torch.from_numpy(found.matrix[1]), table[6])


def test_padding_changes_nothing_and_words_without_pieces_start_at_random(minilm: transformers.BertModel) -> None:
    vocabulary = Vocabulary.build([*SENTENCES, "zebra"], 1)
    words = TransformerWords(len(vocabulary), 16).eval()
    before = words.embed.weight[vocabulary.id_of("zebra")].clone()
    words.load_minilm(vocabulary)
    assert torch.equal(words.embed.weight[vocabulary.id_of("zebra")], before)
    texts = vocabulary.batch(["zebra dogs"])
    alone, padded = words(texts), words(texts.pad(7))
    torch.testing.assert_close(padded[:, : alone.shape[1]], alone)
    assert not padded[:, alone.shape[1] :].any()
    nothing = TextBatch(texts.tokens, torch.zeros_like(texts.mask))
    assert not words(nothing).any()
    with pytest.raises(SaccadeError, match=f"at most {MAX_WORDS}"):
        words(texts.pad(MAX_WORDS))


def test_a_matcher_reads_with_it_and_it_learns_more_slowly(minilm: transformers.BertModel, tmp_path: Path) -> None:
    vocabulary = Vocabulary.build(SENTENCES, 1)
    scan = entry("scan").model
    config = scan.Config(region_dim=8, dim=16, word_encoder="minilm", word_lr_scale=0.25)
    model = scan(config, vocabulary)
    model.begin()
    assert torch.equal(model.words.embed.weight[vocabulary.id_of("dogs")], minilm.get_input_embeddings().weight[6])  # type: ignore[union-attr]
    factor = {id(w): group["factor"] for group in model.parameter_groups() for w in group["params"]}
    own = {name: factor[id(weight)] for name, weight in model.named_parameters()}
    assert own["words.layers.5.fc2.weight"] == own["words.embed.weight"] == 0.25
    assert own["words.fc.weight"] == own["regions.fc.weight"] == 1.0
    model.save_pretrained(tmp_path / "kept")
    again, texts = load_model(tmp_path / "kept"), vocabulary.batch(SENTENCES)
    torch.testing.assert_close(again.encode_texts(texts).words, model.eval().encode_texts(texts).words)  # type: ignore[attr-defined]
