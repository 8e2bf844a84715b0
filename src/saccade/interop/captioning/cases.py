"""Captioners of ImageCaptioning.pytorch against what the reference computed, whatever the model: teacher forcing,
attention, cross-entropy and its gradients, greedy and beam search with all stored options, self-critical training."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from saccade.batch import CaptionState, RegionBatch, Told
from saccade.decoding import Decoded, DecodingConfig, beam_search, diverse_beam_search, greedy
from saccade.interop.captioning.official import Official
from saccade.interop.infos import OfficialWords
from saccade.interop.verification import GRADIENT, Case, load_arrays
from saccade.language.vocabulary import PAD, START, UNKNOWN
from saccade.metrics.captions.frequencies import DocumentFrequencies
from saccade.metrics.captions.reward import SelfCriticalReward
from saccade.models import Adaptive, UpDown
from saccade.tasks.captioning.self_critical import mean_of_others, policy_loss

LOG_PROBABILITY, METRIC, LOSS = 1e-5, 1e-6, 1e-5
WU_ALPHA = 0.9
DOCUMENT_FREQUENCIES = "scst_df.p"
SEARCH_OPTIONS: dict[str, dict[str, Any]] = {  # the endings of stored beam searches
    "dc": {"no_immediate_repeat": True},
    "nobad": {"no_bad_endings": True},
    "unk": {"unknown": False},
    "wu": {"length_penalty": "wu", "alpha": WU_ALPHA},
    "avg": {"length_penalty": "average"},
    "old": {},  # the reference's earlier implementation finds the same
}
AnyOfficial = Official[UpDown] | Official[Adaptive]


@dataclass(frozen=True)
class Lesson:
    """Pictures and the captions of each, one after the other."""

    images: RegionBatch
    whole: Float[Tensor, "image dim"]
    words: Int[Tensor, "text word"]  # <start> … <end>
    per_image: int
    steps: int  # that the reference takes: it stops where all captions are over

    def all_real(self) -> RegionBatch:
        """As the reference sees them when it is given no masks: padding is a region like others."""
        return RegionBatch(self.images.features, torch.ones_like(self.images.mask), self.images.boxes)


def open_caption_cases(folder: Path, load: Callable[[Path], Any]) -> Iterator[tuple[Case, Any]]:
    """NAME_io.npz with NAME_model.pth and NAME_infos.pkl; the models compute in double precision."""
    for path in sorted(folder.glob("*_io.npz")):
        name = path.name.removesuffix("_io.npz")
        official = load(folder / f"{name}_model.pth")
        official.model.double()
        yield Case(name, load_arrays(path)), official


def verify_captions(case: Case, official: AnyOfficial, folder: Path, asked_bias: str) -> None:
    """Everything a case may hold. `asked_bias` is added to the state there, to every region's key here."""
    lesson = _take_lesson(case, official.words)
    state = official.model.start_from(lesson.images, lesson.whole)
    _verify_seen(case, official, state, official.state[asked_bias])
    told = official.model.tell(state.repeat(lesson.per_image), lesson.words[:, :-1])
    _verify_told(case, official, told, lesson, "")
    _verify_loss(case, official, told, lesson)
    with torch.no_grad():
        if case.stored.get("logprobs_tf_nomask", np.zeros(0)).size:
            unmasked = official.model.start_from(lesson.all_real(), lesson.whole)
            told = official.model.tell(unmasked.repeat(lesson.per_image), lesson.words[:, :-1])
            _verify_told(case, official, told, lesson, "_nomask")
        else:
            for key in ("logprobs_tf_nomask", "attn_tf_nomask"):
                if key in case.stored:
                    case.excuse(key, "stored empty: the reference cannot normalise batches without masks")
        longest = int(official.options.get("max_length", 20) or official.options("seq_length"))
        _verify_greedy(case, official, state, longest)
        _verify_searches(case, official, state, longest)
        _verify_self_critical(case, official, state, lesson, folder)


def _take_lesson(case: Case, words: OfficialWords) -> Lesson:
    features = torch.from_numpy(case.take("att_feats")).double()
    mask = torch.ones(features.shape[:2], dtype=torch.bool)
    if "att_masks" in case.stored:
        mask = torch.from_numpy(case.take("att_masks")) > 0
    regions = int(mask.sum(dim=1).max())  # the reference cuts off what is padding in all pictures
    images = RegionBatch(features[:, :regions], mask[:, :regions], torch.zeros(len(mask), regions, 4).double())
    case.compare_stored({"num_boxes": mask.sum(dim=1)}, 0.0)
    labels = torch.from_numpy(case.take("labels"))
    flat = labels.reshape(-1, labels.shape[-1])
    sentences = torch.cat([torch.full_like(flat[:, :1], START), words.sentences(flat[:, 1:])], dim=1)
    if "label_masks" in case.stored:
        case.compare("label_masks", (sentences != PAD).view(labels.shape), 0.0)
    going_on = (flat[:, 1:-1] != 0).any(dim=0)
    steps = 1 + (int(going_on.cumprod(dim=0).sum()) if len(going_on) else 0)
    whole = torch.from_numpy(case.take("fc_feats")).double()
    return Lesson(images, whole, sentences, len(flat) // len(features), steps)


def _verify_seen(case: Case, official: AnyOfficial, state: CaptionState, asked: Tensor) -> None:
    seen: Any = state.seen
    stored = {"fc_embed": seen.whole, "att_embed": seen.regions, "ctx2att": seen.keys - asked.to(seen.keys)}
    mask = seen.mask[:, :, None]
    if "ctx2att" in case.stored:  # the key of padding, which is never looked at, is the bias alone
        stored["ctx2att"] = torch.where(mask, stored["ctx2att"], official.state["ctx2att.bias"].to(seen.keys))
    case.compare_stored(stored, LOG_PROBABILITY)


def _verify_told(case: Case, official: AnyOfficial, told: Told, lesson: Lesson, ending: str) -> None:
    """What would be said after each word, and where the model looked; the reference leaves zeros when all is said."""
    weights = told.weights
    if told.sentinel is not None:
        weights = torch.cat([told.sentinel[:, :, None], weights], dim=2)
    stored = {"logprobs_tf": official.words.columns_back(told.log_probabilities), "attn_tf": weights}
    for key, value in stored.items():
        kept = value.clone()
        kept[:, lesson.steps :] = 0
        if key + ending in case.stored:
            shape = case.stored[key + ending].shape
            kept = kept[:, : lesson.steps] if len(shape) == 3 and shape[1] == lesson.steps else kept
            case.compare(key + ending, kept, LOG_PROBABILITY)


def _verify_loss(case: Case, official: AnyOfficial, told: Told, lesson: Lesson) -> None:
    """Cross-entropy, and the norm of its gradient for every official weight."""
    labels = lesson.words[:, 1:]
    wanted = labels != PAD
    loss = told.missed(labels, wanted).sum() / wanted.sum()
    case.compare_stored({"xe_loss": loss}, LOSS)
    if "grad_names" not in case.stored or "grad_norms" not in case.stored:
        return
    official.model.zero_grad()
    loss.backward(retain_graph=True)  # type: ignore[no-untyped-call]
    gradients = official.gradients()
    for name, norm in zip(case.take("grad_names").tolist(), case.take("grad_norms").tolist(), strict=True):
        found = float(gradients[name].norm()) if name in gradients else float("inf")
        case.check(f"grad_norms__{name}", abs(found - norm), GRADIENT * norm if norm > 1e-3 else 1e-5)


def _verify_greedy(case: Case, official: AnyOfficial, state: CaptionState, longest: int) -> None:
    config = DecodingConfig(longest=longest, unknown=True)
    said = greedy(official.model, state, config, distributions=True)
    assert said.distributions is not None
    everything = _filled(official.words.columns_back(said.distributions), longest)
    case.compare_stored({"greedy_seq": _ids(official, said, longest)}, 0.0)
    case.compare_stored({"greedy_step_logprobs": everything}, LOG_PROBABILITY)
    case.compare_stored({"greedy_token_logprob": _filled(said.log_probabilities, longest)}, LOG_PROBABILITY)
    if "greedy_constraint_seq" in case.stored:
        constrained = greedy(
            official.model, state, DecodingConfig(longest=longest, unknown=True, no_immediate_repeat=True)
        )
        case.compare("greedy_constraint_seq", _ids(official, constrained, longest), 0.0)


def _verify_searches(case: Case, official: AnyOfficial, state: CaptionState, longest: int) -> None:
    """`beam3_wu_seqs` is beam search of three with the length penalty wu; `dbs_b4g2_seqs` is diverse, in two groups."""
    parts = r"(best|seqs|scores|lens)"
    beams = {
        match[1]: match for key in case.stored if (match := re.fullmatch(rf"(beam(\d+)((?:_[a-z]+)*))_{parts}", key))
    }
    for name, match in beams.items():
        options = [word for word in match[3].split("_") if word]
        if not all(word in SEARCH_OPTIONS for word in options):
            continue  # and the case fails: stored, never compared
        settings: dict[str, Any] = {"unknown": True}
        for word in options:
            settings |= SEARCH_OPTIONS[word]
        if int(official.words.ours[-1]) != UNKNOWN:  # the reference looks for UNK among the last word only
            settings["unknown"] = True
        config = DecodingConfig(longest=longest, beam=int(match[2]), finished="slot", **settings)
        _compare_search(case, official, beam_search(official.model, state, config), name, longest)
    diverse = {match[1]: match for key in case.stored if (match := re.fullmatch(rf"(dbs_b(\d+)g(\d+))_{parts}", key))}
    for name, match in diverse.items():
        config = DecodingConfig(
            how="diverse", longest=longest, beam=int(match[2]), groups=int(match[3]), finished="slot", unknown=True
        )
        _compare_search(case, official, diverse_beam_search(official.model, state, config), name, longest)


def _compare_search(case: Case, official: AnyOfficial, said: Decoded, name: str, longest: int) -> None:
    ids = _ids(official, said, longest).view(-1, said.per_image, longest)
    found = {"seqs": ids, "best": ids[:, 0], "lens": said.lengths.view(-1, said.per_image)}
    case.compare_stored({f"{name}_{part}": value for part, value in found.items()}, 0.0)
    case.compare_stored({f"{name}_scores": said.score.view(-1, said.per_image)}, LOG_PROBABILITY)


def _verify_self_critical(case: Case, official: AnyOfficial, state: CaptionState, lesson: Lesson, folder: Path) -> None:
    """Stored samples: their log-probabilities, what they and greedy captions earn, and the losses of both baselines."""
    if "scst_samples" not in case.stored:
        return
    samples = torch.from_numpy(case.take("scst_samples"))
    words = official.words.sentences(samples)
    wanted, per_image = words != PAD, len(words) // len(state)
    read = torch.cat([torch.full_like(words[:, :1], START), words[:, :-1]], dim=1)
    told = official.model.tell(state.repeat(per_image), read)
    said = -told.missed(words, wanted)
    everything = official.words.columns_back(told.log_probabilities).masked_fill(~wanted[:, :, None], 0)
    case.compare_stored({"scst_sample_logprobs": everything}, LOG_PROBABILITY)
    owner = np.arange(len(words)) // per_image
    baseline = official.words.sentences(torch.from_numpy(case.take("greedy_seq")))
    reward = _reward(case, lesson, official.words, folder / DOCUMENT_FREQUENCIES, lambda given: given(words, owner))
    earned, expected = torch.from_numpy(reward(words, owner)), torch.from_numpy(reward(baseline))
    case.compare_stored({"scst_sample_ciderd": earned, "scst_greedy_ciderd": expected}, METRIC)
    ahead = earned - expected[owner]
    case.compare_stored({"scst_reward": ahead[:, None].expand(said.shape)}, METRIC)
    case.compare_stored({"scst_loss": policy_loss(said, ahead, wanted)}, LOSS)
    if per_image > 1:
        ahead = earned - mean_of_others(earned, per_image)
        case.compare_stored({"nsc_loss": policy_loss(said, ahead, wanted)}, LOSS)


def _reward(
    case: Case, lesson: Lesson, words: OfficialWords, file: Path, earned: Callable[[SelfCriticalReward], np.ndarray]
) -> SelfCriticalReward:
    """References have their <end> unless they are as long as a caption can be.

    Each case counted n-grams in its own captions, but the folder has one file for all, of the last of them: whichever
    of the two explains the stored rewards better was used.
    """
    captions = lesson.words[:, 1:-1].view(len(lesson.images), lesson.per_image, -1).tolist()
    rewards = [SelfCriticalReward(captions)]
    if file.exists():
        known: Mapping[str, int] = {str(official): int(ours) for official, ours in enumerate(words.ours)}  # text there
        counted = DocumentFrequencies.load(file).rename(lambda word: known.get(str(word), word))
        rewards.append(SelfCriticalReward(captions, counted))
    stored = case.stored.get("scst_sample_ciderd")
    if stored is None or stored.shape != earned(rewards[0]).shape:
        return rewards[-1]
    return min(rewards, key=lambda reward: float(np.abs(earned(reward) - stored).max()))


def _ids(official: AnyOfficial, said: Decoded, longest: int) -> Int[Tensor, "row step"]:
    return _filled(official.words.sentences_back(said.words), longest)


def _filled(values: Tensor, longest: int) -> Tensor:
    """Zeros up to `longest` steps."""
    missing = longest - values.shape[1]
    return F.pad(values, (0, missing) if values.dim() == 2 else (0, 0, 0, missing))
