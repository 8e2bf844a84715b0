from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.language.wordpieces import OFFICIAL, WordPieces, learn_pieces
from saccade.models import InterBert, InterBertConfig, InterBertMatching, InterBertMatchingConfig
from saccade.models.base.fusion import contrast
from saccade.nn.transformer.streams import CoAttention, Interaction
from toy_runs import SMALL_TRANSFORMER

SIZES: dict[str, Any] = {**SMALL_TRANSFORMER, "region_classes": 5, "initial_spread": 0.3}
CAPTIONS = ("a small red cube is left of the ball", "the large green cone")


def test_frameworks_are_presets_of_the_papers_depths(vocabulary: Vocabulary) -> None:
    assert InterBertConfig().preset[:4] == (6, 6, 6, 0)
    assert InterBertConfig(framework="lxmert").preset[:4] == (0, 9, 5, 5)
    kinds = {}
    for framework in ("interbert", "unicoder_vl", "vilbert", "lxmert"):
        layers = {"layers": 1, "text_layers": 1, "image_layers": 0, "cross_layers": None}
        few = {k: v for k, v in layers.items() if framework in ("vilbert", "lxmert") or v is not None}
        few |= {"cross_layers": 1} if framework in ("vilbert", "lxmert") else {}
        config = InterBertConfig(**{**SIZES, **few, "framework": framework})
        model = InterBert(config, vocabulary)
        kinds[framework] = type(model.streams), model.pool_image is None, model.image.position_norm is None
    assert kinds == {
        "interbert": (Interaction, False, True),
        "unicoder_vl": (Interaction, True, True),
        "vilbert": (CoAttention, False, True),
        "lxmert": (CoAttention, True, False),
    }


def test_the_whole_picture_is_the_mean_of_what_is_not_hidden(
    vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    """Over all regions that are there, hidden ones counted as zeros; padding and the rest of a batch never matter."""
    torch.manual_seed(0)
    model = InterBert(InterBertConfig(**SIZES), vocabulary).double().eval()
    images = toy_images.to(dtype=torch.float64)
    hidden = torch.zeros_like(images.mask)
    hidden[:, 0] = True
    code = model.encode_images(images, hidden)
    for item in range(len(images)):
        features = images.features[item, images.mask[item]].clone()
        features[0] = 0
        whole = model.image(features.mean(dim=0), torch.tensor([0, 0, 1, 1, 1]).double())
        assert code.pooled is not None
        torch.testing.assert_close(code.pooled[item], whole)
    fused, padded = model(images, toy_texts), model(images.pad(3), toy_texts.pad(2))
    torch.testing.assert_close(padded.pooled, fused.pooled, rtol=0, atol=1e-12)
    torch.testing.assert_close(padded.words[:, : fused.words.shape[1]], fused.words, rtol=0, atol=1e-12)


@pytest.mark.parametrize("target", ["classes", "features", "contrast"])
def test_losses_are_those_of_the_definition(
    target: str, vocabulary: Vocabulary, toy_images: RegionBatch, toy_texts: TextBatch
) -> None:
    torch.manual_seed(0)
    model = InterBert(InterBertConfig(**SIZES, region_output=target), vocabulary).double().eval()  # type: ignore[arg-type]
    images = toy_images.to(dtype=torch.float64)
    fused = model(images, toy_texts)
    found, masked = model.region_outputs(fused.regions), images.mask & (torch.arange(images.mask.shape[1]) < 2)
    wanted = images.features if target != "classes" else torch.rand(*images.mask.shape, 5).double().softmax(dim=2)
    each = []
    for item, region in masked.nonzero().tolist():
        own, other = found[item, region], wanted[item, region]
        if target == "classes":
            each.append((other * (other.log() - own.log_softmax(dim=0))).sum())
        elif target == "features":
            each.append(((own - other) ** 2).mean())
        else:
            order = [(item + n) % 4 for n in range(4)]
            keys = torch.cat([images.features[n] for n in order])
            real = torch.cat([images.mask[n] for n in order])
            cosine = torch.nn.functional.cosine_similarity(own[None], keys[real], dim=1)
            each.append(-(10 * cosine).log_softmax(dim=0)[region])
    torch.testing.assert_close(model.region_loss(found, masked, wanted), torch.stack(each).mean(), rtol=1e-6, atol=1e-6)
    assert model.region_loss(found, masked & False, wanted) == 0
    words = torch.where(toy_texts.mask & (torch.arange(toy_texts.tokens.shape[1]) == 2), toy_texts.tokens, -1)
    logits = model.word_logits(fused.words)
    told = -logits[:, 2].log_softmax(dim=1).gather(1, words[:, 2:3]).mean()
    torch.testing.assert_close(model.word_loss(logits, words), told)
    assert model.word_loss(logits, torch.full_like(words, -1)) == 0


def test_a_region_is_told_from_those_of_other_pictures() -> None:
    target = torch.randn(6, 3, 4)
    target[:, 2] = 0  # padding
    scores, own = contrast(target, target)
    assert scores.shape == (6, 3, 12)
    assert torch.equal(scores.argmax(dim=2)[:, :2], own[:, :2])
    assert (scores[:, :, [2, 5, 8, 11]] < -1e30).all()


def tiny_bert(folder: Path, pieces: WordPieces, dim: int = 8, layers: int = 3) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    words = [*OFFICIAL[:1], "[unused0]", *pieces.words[5:], *OFFICIAL[1:]]
    shapes = {"word": len(words), "position": 16, "token_type": 2}
    weights = {f"embeddings.{name}_embeddings.weight": torch.randn(count, dim) for name, count in shapes.items()}
    parts = {"attention.output.dense": (dim, dim), "intermediate.dense": (12, dim), "output.dense": (dim, 12)}
    parts |= {f"attention.self.{part}": (dim, dim) for part in ("query", "key", "value")}
    for n in range(layers):
        for part, shape in parts.items():
            weights[f"encoder.layer.{n}.{part}.weight"] = torch.randn(shape)
            weights[f"encoder.layer.{n}.{part}.bias"] = torch.randn(shape[0])
    norms = [f"encoder.layer.{n}.{part}" for n in range(layers) for part in ("attention.output", "output")]
    for name in ("embeddings", *norms):
        weights |= {f"{name}.LayerNorm.weight": torch.randn(dim), f"{name}.LayerNorm.bias": torch.randn(dim)}
    folder.mkdir()
    save_file({f"bert.{name}": weight for name, weight in weights.items()}, folder / "model.safetensors")
    (folder / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
    (folder / "config.json").write_text(json.dumps({"num_attention_heads": 2}))
    return weights


def test_words_and_layers_start_from_a_bert(tmp_path: Path) -> None:
    """Joint layers first, then those of the text alone; pieces by name; the pieces that captions use, if asked."""
    pieces = learn_pieces(CAPTIONS, 200)
    weights = tiny_bert(tmp_path / "bert", pieces)
    config = InterBertConfig(**SIZES, bert=str(tmp_path / "bert"), used_pieces=True)
    vocabulary = InterBert.own_vocabulary(config, CAPTIONS[:1])
    assert isinstance(vocabulary, WordPieces)
    assert len(vocabulary) < len(pieces)
    model = InterBert(config, vocabulary)
    model.begin()
    order = (tmp_path / "bert" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    for ours, theirs in (("cube", "cube"), ("<start>", "[CLS]"), ("[MASK]", "[MASK]"), ("<pad>", "[PAD]")):
        row = weights["embeddings.word_embeddings.weight"][order.index(theirs)]
        assert torch.equal(model.text.words.weight[vocabulary.id_of(ours) if ours != "<pad>" else 0], row)
    first, second = model.text_layers()
    for n, layer in enumerate((first, second)):
        joined = [weights[f"encoder.layer.{n}.attention.self.{part}.weight"] for part in ("query", "key", "value")]
        assert torch.equal(layer.qkv.weight, torch.cat(joined))  # type: ignore[union-attr,arg-type]
        assert torch.equal(layer.norm2.bias, weights[f"encoder.layer.{n}.output.LayerNorm.bias"])  # type: ignore[union-attr,arg-type]
    groups = model.parameter_groups()
    slow = {id(w) for group in groups if group["factor"] == 0.1 for w in group["params"]}
    assert id(model.text.words.weight) in slow
    assert id(model.image.features.weight) not in slow
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    with pytest.raises(SaccadeError, match=r"give model\.dim=8"):
        InterBert(replace(config, dim=12), vocabulary).begin()
    with pytest.raises(SaccadeError, match=r"give model\.heads=2"):
        InterBert(replace(config, heads=4), vocabulary).begin()


def test_a_sentence_that_is_too_long_is_known_when_it_is_read(vocabulary: Vocabulary) -> None:
    """All captions are read before a training begins, which would else end where that one comes."""
    model = InterBert(InterBertConfig(**{**SIZES, "max_words": 6}), vocabulary)
    assert model.read(["a red cube"]).tokens.shape == (1, 5)  # and where it begins and ends
    with pytest.raises(SaccadeError, match="a sentence of 7 word pieces is too long: the model reads at most 6"):
        model.read(["a red cube", "a red cube again here"])


def test_a_cross_encoder_learns_to_choose_the_true_pair(vocabulary: Vocabulary, toy_images: RegionBatch) -> None:
    """The loss falls; a picture that is in the batch twice is no wrong answer; without any other the loss is zero."""
    torch.manual_seed(0)
    model = InterBertMatching(
        InterBertMatchingConfig(**{**SIZES, "pooled_dim": 32, "dropout": 0.0, "attention_dropout": 0.0}), vocabulary
    )
    owner, same = torch.arange(4), torch.eye(4, dtype=torch.bool)
    texts = vocabulary.batch(["a red cube", "the blue ball", "a green cone", "a small red ball"])
    optimiser, losses = torch.optim.Adam(model.parameters(), 5e-3), []
    for _ in range(60):
        codes = model.encode_images(toy_images), model.encode_texts(texts)
        loss = model.choice_loss(*codes, texts, owner, same)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[0] > 1
    assert sum(losses[-5:]) / 5 < 0.3
    table = model.eval()(toy_images, texts)
    assert torch.equal(table.argmax(dim=1), owner)
    with torch.no_grad():
        torch.testing.assert_close(model(toy_images, texts), table)
        alone = model.choice_loss(*codes, texts, owner, torch.ones(4, 4, dtype=torch.bool))
    assert alone == 0
