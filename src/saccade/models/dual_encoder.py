"""Dual encoders of transformers as matchers, from the hub or a folder: CLIP, MetaCLIP 2, SigLIP, SigLIP 2, ColPali.

    S(I, T) = exp(τ) cos(v, t) + β          CLIP has no β; SigLIP was trained for σ(S) to be the chance that they fit
    S(I, T) = Σ_j max_i (v_i · e_j)         ColPali: over all tokens of the query and of the picture

What the pictures' patches are in the texts' space is the extractor's matter (`saccade.vision.dual`). Words are the
model's own tokens through its own projection; a word of several tokens is their mean, and tokens that are no words
(start, end, padding, a prompt) are part of the score and of nothing that is shown. The weights by which words point at
patches are softmax_i(λ cos(e_j, v_i)), of every word by itself. None of these models was trained to align single words
(ColPali's tokens aside), so this is what their vectors show, not what their score is made of.

Such a model is trained elsewhere: there is nothing of it in the registry, and `saccade train` knows it not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from saccade.batch import Alignment, FrameBatch, ImageCode, RegionBatch, TextBatch, TextCode
from saccade.core.config import from_dict
from saccade.core.errors import SaccadeError
from saccade.core.files import read_json
from saccade.core.hub import hub_name
from saccade.language.tokenise import tokenise
from saccade.language.vocabulary import SPECIAL, Vocabulary
from saccade.metrics.calibration import Platt
from saccade.models.base.matcher import Matcher
from saccade.models.base.model import CALIBRATION
from saccade.nn.attention import masked_softmax
from saccade.nn.encode import full_precision, mean_state, unit
from saccade.ops.all_pairs import all_pairs
from saccade.vision.boxes import WHOLE
from saccade.vision.dual import open_network, open_tokeniser, processor_setting

MOST_PIECES = 512  # of a query to ColPali
QUERY_PREFIX, AUGMENTATION = "Question: ", 10  # ColPali's, and how many padding tokens follow a query


@dataclass(frozen=True)
class PieceBatch(TextBatch):
    """Sentences as words, and as the pieces that a model reads: `joins` has 1 where a piece belongs to a word."""

    pieces: Int[Tensor, "text piece"] | None = None
    piece_mask: Bool[Tensor, "text piece"] | None = None
    joins: Float[Tensor, "text word piece"] | None = None


@dataclass(frozen=True)
class PieceVocabulary(Vocabulary):
    """A tokeniser of transformers, and the words of this house by their places in a sentence."""

    words: tuple[str, ...] = SPECIAL
    tokeniser: Any = field(default=None, compare=False)
    longest: int = MOST_PIECES
    fill: bool = False  # every sentence is padded to the longest there may be, as in training
    before: str = ""  # … what stands before each of them
    after: str = ""

    def __len__(self) -> int:
        return len(self.tokeniser)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and not self.unknown(word)

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        words = tokenise(text)
        if not words:
            raise SaccadeError("the text is empty: give at least one word")
        return [len(SPECIAL)] * len(words), words  # ids of words are none: a model reads pieces

    def check(self, text: str) -> list[str]:
        words = [word for word in tokenise(text) if any(map(str.isalnum, word))]
        if not words:
            raise SaccadeError("the text is empty: give at least one word")
        unknown = self.unknown(text)
        if len(unknown) == len(words):
            raise SaccadeError(f'the model knows none of the words of "{text}"')
        return unknown

    def unknown(self, text: str) -> list[str]:
        """Words that the model has no piece for, or that stand beyond what it reads."""
        if not tokenise(text):
            return []
        batch = self.batch([text])
        assert batch.joins is not None
        assert batch.pieces is not None
        lost = batch.joins[0] * (batch.pieces[0] == self._unknown_id)
        seen = zip(batch.words[0], batch.joins[0].sum(dim=1).tolist(), lost.sum(dim=1).tolist(), strict=True)
        return [word for word, known, missing in seen if any(map(str.isalnum, word)) and (not known or missing)]

    @property
    def _unknown_id(self) -> int:
        id = self.tokeniser.unk_token_id
        return -1 if id is None or id == self.tokeniser.eos_token_id else int(id)  # CLIP writes any letter

    def batch(self, texts: Sequence[str], ends: bool = True) -> PieceBatch:
        """Words without <start> and <end>, whatever `ends` says: what begins and ends a sentence are pieces."""
        encoded = TextBatch.of(*zip(*[self.encode(text) for text in texts], strict=True)) if texts else TextBatch.of([])
        given = [f"{self.before}{text}{self.after}" for text in texts]
        offsets = bool(getattr(self.tokeniser, "is_fast", False))
        found = self.tokeniser(
            given,
            padding="max_length" if self.fill else "longest",
            truncation=True,
            max_length=self.longest,
            add_special_tokens=not self.before,
            return_attention_mask=True,
            return_offsets_mapping=offsets,
        )
        pieces = torch.tensor(found["input_ids"], dtype=torch.long).view(len(texts), -1)
        joins = torch.zeros(*encoded.tokens.shape, pieces.shape[1])
        for row, (text, said) in enumerate(zip(texts, encoded.words, strict=True)):
            whole = given[row]
            spans = found["offset_mapping"][row] if offsets else self._walk(whole, pieces[row].tolist())
            for word, (first, end) in enumerate(word_places(text, said)):
                first, end = first + len(self.before), end + len(self.before)
                own = [n for n, (start, stop) in enumerate(spans) if start < end and stop > first and stop > start]
                joins[row, word, own] = 1.0
        mask = torch.tensor(found["attention_mask"], dtype=torch.bool).view(pieces.shape)
        return PieceBatch(encoded.tokens, encoded.mask, encoded.words, pieces=pieces, piece_mask=mask, joins=joins)

    def _walk(self, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Where pieces stand, of a tokeniser that does not say: each is looked for after the one before."""
        spans, at, lower = list[tuple[int, int]](), 0, text.lower()
        special = set(self.tokeniser.all_special_ids)
        for id, piece in zip(ids, self.tokeniser.convert_ids_to_tokens(list(ids)), strict=True):
            letters = piece.replace("▁", "").replace("</w>", "").lower()
            place = lower.find(letters, at) if letters and id not in special else -1
            at = at if place < 0 else place + len(letters)
            spans.append((place, at) if place >= 0 else (at, at))
        return spans


def word_places(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """Where `tokenise`'s words stand in a sentence; of one that is written otherwise there, nowhere."""
    lower, at, places = text.lower(), 0, []
    for word in words:
        forms = (word, '"') if word in ("``", "''") else (word, word.replace("'", "’"))
        found = [(lower.find(form, at), len(form)) for form in forms]
        start, size = min((place for place in found if place[0] >= 0), default=(at, 0))
        places.append((start, start + size))
        at = start + size
    return places


@dataclass(frozen=True)
class DualEncoderConfig:
    """What of it is not the checkpoint's."""

    region_dim: int | None = None  # of a patch's vector
    sharpness: float = 30.0  # λ of the word→patch weights: cosines of these models lie close together
    budget_mb: int = 256


class DualEncoder(Matcher):
    """One vector a picture and one a text, and vectors of patches and words beside them."""

    Config = DualEncoderConfig
    name = "dual_encoder"
    task = "matching"
    reads_text: ClassVar[bool] = True

    def __init__(self, config: DualEncoderConfig, vocabulary: PieceVocabulary, extractor: str, network: Any) -> None:
        super().__init__(config, vocabulary, extractor)
        self.network = network
        self.kind: str = network.config.model_type

    @classmethod
    def described(cls, folder: Path) -> dict[str, Any]:
        return {"model": cls.name, "extractor": f"dual:{hub_name(folder) or folder}"}

    @classmethod
    def read_folder(cls, folder: Path) -> DualEncoder:
        """Raises: SaccadeError if weights, tokeniser or processor are missing or damaged."""
        source = str(hub_name(folder) or folder)
        network, tokeniser = open_network(source), open_tokeniser(source)
        config, kind = network.config, network.config.model_type
        if kind == "colpali":
            prefix = processor_setting(source, "query_prefix", QUERY_PREFIX)
            tokeniser.padding_side = "right"
            vocabulary = PieceVocabulary(
                tokeniser=tokeniser,
                before=f"{tokeniser.bos_token}{prefix}",
                after=f"{tokeniser.pad_token * AUGMENTATION}\n",
            )
            model: DualEncoder = LateInteraction(
                DualEncoderConfig(config.embedding_dim), vocabulary, f"dual:{source}", network
            )
        else:
            longest = min(int(config.text_config.max_position_embeddings), int(tokeniser.model_max_length), MOST_PIECES)
            vocabulary = PieceVocabulary(tokeniser=tokeniser, longest=longest, fill=kind.startswith("siglip"))
            dim = config.vision_config.hidden_size if kind.startswith("siglip") else config.projection_dim
            model = DualEncoder(DualEncoderConfig(dim), vocabulary, f"dual:{source}", network)
        if kind.startswith("siglip"):
            model.calibration = Platt()  # its score is a logit
        if (folder / CALIBRATION).exists():
            model.calibration = from_dict(Platt, read_json(folder / CALIBRATION), str(folder / CALIBRATION))
        return model.eval()

    def _save_pretrained(self, save_directory: Path) -> None:
        raise SaccadeError(
            f"this model is transformers': model.network.save_pretrained({str(save_directory)!r}) writes it"
        )

    def encode_images(self, images: RegionBatch) -> ImageCode:
        """The last region is the picture itself; of a video every region is a frame."""
        features = unit(images.features.float())
        if isinstance(images, FrameBatch):
            return ImageCode(features, images.mask, unit(mean_state(features, images.mask.sum(dim=1))))
        last = images.mask.sum(dim=1) - 1
        pooled = features[torch.arange(len(features), device=features.device), last]
        mask = images.mask[:, 1:]  # one region less
        return ImageCode(features[:, :-1] * mask[..., None], mask, pooled, images.boxes[:, :-1] * mask[..., None])

    @torch.no_grad()
    def _states(self, texts: TextBatch) -> tuple[Float[Tensor, "text piece dim"], Float[Tensor, "text dim"]]:
        """Every piece through the model's own projection, and the text's vector."""
        assert isinstance(texts, PieceBatch)
        masks = "attention_mask" in self.vocabulary.tokeniser.model_input_names  # type: ignore[attr-defined]
        assert texts.piece_mask is not None
        found = self.network.get_text_features(
            input_ids=texts.pieces, attention_mask=texts.piece_mask.long() if masks else None
        )
        project = self.network.text_model.head if self.kind.startswith("siglip") else self.network.text_projection
        return project(found.last_hidden_state), found.pooler_output

    def encode_texts(self, texts: TextBatch) -> TextCode:
        states, pooled = self._states(texts)
        return TextCode(unit(_words(texts, states)), texts.mask, unit(pooled))

    @property
    def scale(self) -> tuple[Tensor, Tensor | float]:
        """exp(τ) and β."""
        return self.network.logit_scale.exp(), getattr(self.network, "logit_bias", 0.0)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        scale, bias = self.scale
        assert images.pooled is not None
        assert texts.pooled is not None
        with full_precision(images.pooled):
            return images.pooled @ texts.pooled.T * scale + bias

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        scale, bias = self.scale
        assert images.pooled is not None
        assert texts.pooled is not None
        cosines = torch.einsum("twd,trd->twr", texts.words, images.regions)
        shown = masked_softmax(self.config.sharpness * cosines, images.mask[:, None]) * texts.mask[..., None]
        best = cosines.masked_fill(~images.mask[:, None], -1).amax(dim=2) * texts.mask
        score = (images.pooled * texts.pooled).sum(dim=1) * scale + bias
        return Alignment(shown, score, texts.mask, images.mask, word_score=best)


class LateInteraction(DualEncoder):
    """ColPali: the score is MaxSim over all tokens; `TextCode.nodes` has them, `TextCode.words` the words alone."""

    def encode_images(self, images: RegionBatch) -> ImageCode:
        features = images.features.float()
        pooled = unit(mean_state(features, images.mask.sum(dim=1)))
        return ImageCode(features, images.mask, pooled, images.boxes)

    @torch.no_grad()
    def encode_texts(self, texts: TextBatch) -> TextCode:
        assert isinstance(texts, PieceBatch)
        assert texts.piece_mask is not None
        mask = texts.piece_mask.long()
        found = self.network(input_ids=texts.pieces, attention_mask=mask, token_type_ids=torch.zeros_like(mask))
        states = found.embeddings.float()
        every = states * mask[..., None]
        return TextCode(unit(_words(texts, states)), texts.mask, unit(mean_state(every, mask.sum(dim=1))), nodes=every)

    def similarity(self, images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
        return all_pairs(_late_table, images, replace(texts, phrases=None, links=None), self.budget)

    def shown(self, images: ImageCode) -> Bool[Tensor, "image region"]:
        """Patches; the tokens of the picture's prompt are no place."""
        assert images.boxes is not None
        return images.mask & (images.boxes != images.boxes.new_tensor(WHOLE)).any(dim=2)

    def align(self, images: ImageCode, texts: TextCode) -> Alignment:
        placed = self.shown(images)
        cosines = torch.einsum("twd,trd->twr", texts.words, images.regions)
        shown = masked_softmax(self.config.sharpness * cosines, placed[:, None]) * texts.mask[..., None]
        best = cosines.masked_fill(~placed[:, None], -1).amax(dim=2) * texts.mask
        score = torch.stack([_late_table(images.select([n]), texts.select([n]))[0, 0] for n in range(len(images))])
        return Alignment(shown, score, texts.mask, placed, word_score=best)


def _late_table(images: ImageCode, texts: TextCode) -> Float[Tensor, "image text"]:
    """Σ over a query's tokens of the best of the picture's; padding tokens are zeros and add nothing."""
    assert texts.nodes is not None
    scores = torch.einsum("ird,tnd->itnr", images.regions, texts.nodes)
    best = scores.masked_fill(~images.mask[:, None, None], -torch.inf).amax(dim=3)
    return best.sum(dim=2)


def _words(texts: TextBatch, states: Float[Tensor, "text piece dim"]) -> Float[Tensor, "text word dim"]:
    """The mean of each word's pieces; zeros of a word that has none."""
    assert isinstance(texts, PieceBatch)
    assert texts.joins is not None
    joins = texts.joins.to(states)
    return joins @ states / joins.sum(dim=2, keepdim=True).clamp(min=1)
