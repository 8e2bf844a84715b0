"""Unsupervised captioning against what the official code computed: both players, rewards, losses, gradient norms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import RegionBatch, TextBatch
from saccade.core.errors import SaccadeError
from saccade.interop.captioning.unsupervised import DISCRIMINATOR, NAMES, import_unsupervised, our_ids
from saccade.interop.verification import EMBEDDING, GRADIENT, LOSS, Case, load_arrays, verifier
from saccade.language.vocabulary import PAD, START
from saccade.models import Unsupervised
from saccade.models.unsupervised import Rollout
from saccade.nn import first_mentions, up_to_end

OUTPUTS, VARIABLES = "io.npz", "tf_variables.npz"


@verifier("unsupervised")
def verify_unsupervised(folder: Path) -> Iterator[Case]:
    """One case a pair of files: io.npz with tf_variables.npz, and NAME.io.npz with NAME.tf_variables.npz."""
    for path in sorted(folder.glob(f"*{OUTPUTS}")):
        prefix = path.name.removesuffix(OUTPUTS)
        variables = folder / f"{prefix}{VARIABLES}"
        if not variables.exists():
            raise SaccadeError(f"{path} has no checkpoint beside it: expected {variables.name}")
        case = Case(prefix.strip("._-") or folder.name, load_arrays(path))
        model = import_unsupervised(variables).double()  # dropout is off in a golden, as in evaluation
        _Verification(case, model).run()
        yield case


class _Verification:
    """The stored inputs as ours, and each stage compared; official ids and columns are mapped on the way."""

    def __init__(self, case: Case, model: Unsupervised) -> None:
        self.case, self.model = case, model
        self.ids = our_ids(len(model.vocabulary) - 1)
        features = torch.from_numpy(case.take("image_feat")).double()[:, None]
        count = features.shape[:2]
        self.images = RegionBatch(features, torch.ones(count, dtype=torch.bool), torch.zeros(*count, 4))
        self.said = self._words("sampled_seq")
        classes, found = self._words("classes"), torch.from_numpy(case.take("num"))
        real = torch.arange(classes.shape[1]) < found[:, None]
        self.concepts = classes.masked_fill(~real, PAD)
        self.scores = torch.from_numpy(case.take("scores")).double() * real
        self.written = self._sentences("real_sentence", "real_len")
        self.corrupted = self._sentences("key", "key_len")

    def run(self) -> None:
        self._verify_generator()
        self._verify_critic()
        self._verify_losses()

    def _words(self, key: str) -> Int[Tensor, "row word"]:
        official = torch.from_numpy(self.case.take(key)).long()
        if official.numel() and not 0 <= int(official.min()) <= int(official.max()) < len(self.ids):
            raise SaccadeError(f"{self.case.name}: {key} holds ids beyond the {len(self.ids)} words of the checkpoint")
        return self.ids[official]

    def _sentences(self, key: str, length: str) -> TextBatch:
        words, lengths = self._words(key), torch.from_numpy(self.case.take(length))
        return TextBatch(words, torch.arange(words.shape[1]) < lengths[:, None])

    def _rollout(self) -> Rollout:
        return Rollout(self.said, self.model.look(self.images)[0], self.concepts, self.scores)

    def _logits(self) -> Float[Tensor, "image step official"]:
        """Of every official word after each word of what was said."""
        start = self.said.new_full((len(self.said), 1), START)
        state, hidden = self.model.start(self.images), []
        for words in torch.cat([start, self.said[:, :-1]], dim=1).unbind(dim=1):
            thought = self.model.advance(words, state)
            state = thought.state
            hidden.append(thought.hidden)
        return self.model.speak(torch.stack(hidden, dim=1))[:, :, self.ids]

    def _log_probabilities(self) -> Float[Tensor, "image step"]:
        official = torch.from_numpy(self.case.take("sampled_seq")).long()
        return self._logits().log_softmax(dim=2).gather(2, official[:, :, None])[:, :, 0]

    @torch.no_grad()
    def _greedy(self) -> Int[Tensor, "image step"]:
        """Official ids; the official code may say <S> too, and goes on after </S>."""
        state, words, said = self.model.start(self.images), self.said.new_full((len(self.said),), START), []
        for _ in range(self.said.shape[1]):
            thought = self.model.advance(words, state)
            state = thought.state
            said.append(self.model.speak(thought.hidden)[:, self.ids].argmax(dim=1))
            words = self.ids[said[-1]]
        return torch.stack(said, dim=1)

    @torch.no_grad()
    def _verify_generator(self) -> None:
        self.case.compare("gen_feat", self.model.look(self.images)[0], EMBEDDING)
        self.case.compare("gen_logits", self._logits(), EMBEDDING)
        self.case.compare("gen_log_probs", self._log_probabilities(), EMBEDDING)
        self.case.compare("gen_baseline", self._greedy(), 0.0)

    @torch.no_grad()
    def _verify_critic(self) -> None:
        spoken = up_to_end(self.said)
        self.case.compare("length", spoken.sum(dim=1), 0.0)
        written = self.written.tokens[:, 1:], self.written.mask[:, 1:]
        for ending, sentences in (("", (self.said, spoken)), ("_real", written)):
            judged = self.model.critic.judge(*sentences)
            self.case.compare(f"dis_pred{ending}", judged.logits, EMBEDDING)
            self.case.compare(f"dis_mask{ending}", judged.mask, 0.0)
            self.case.compare(f"dis_feat{ending}", judged.recalled, EMBEDDING)
        self.case.compare("obj_rewards", first_mentions(self.said, spoken, self.concepts, self.scores), EMBEDDING)

    def _verify_losses(self) -> None:
        """The losses, each player's gradients, and that neither loss reaches the other player."""
        model, case = self.model, self.case
        critic = model.discriminator_losses(self.written, self._rollout())
        case.compare("gan_dis_loss", critic["adversarial_loss"], LOSS)
        case.compare("dis_loss", sum(critic.values(), torch.zeros(())), LOSS)
        game, _ = model.generator_loss(self._log_probabilities(), self._rollout(), self.ids[self._greedy()])
        case.compare("gen_loss", game, LOSS)
        remembered = model.critic.judge(self.corrupted.tokens, self.corrupted.mask).recalled.detach()
        sentences = self._auto_encoding(remembered)
        case.compare("sentence_ae_loss", sentences, LOSS)
        names = [str(name) for name in case.take("grad_names")]
        norms = dict(zip(names, case.take("grad_norms").tolist(), strict=True))
        for player, loss in (("generator", game + sentences), ("critic", sum(critic.values(), torch.zeros(())))):
            model.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._compare_gradients(player, norms)

    def _auto_encoding(self, remembered: Float[Tensor, "text dim"]) -> Float[Tensor, ""]:
        """Cross-entropy over the official words, of which <S> is one: ours would never say it."""
        state, hidden = self.model.start_from(remembered), []
        for words in self.written.tokens[:, :-1].unbind(dim=1):
            thought = self.model.advance(words, state)
            state = thought.state
            hidden.append(thought.hidden)
        logits = self.model.speak(torch.stack(hidden, dim=1))[:, :, self.ids]
        labels = torch.from_numpy(self.case.take("real_sentence")).long()[:, 1:]
        wanted = self.written.mask[:, 1:]
        return torch.nn.functional.cross_entropy(logits[wanted], labels[wanted])

    def _compare_gradients(self, player: str, norms: dict[str, float]) -> None:
        weights = dict(self.model.named_parameters())
        strayed = []
        for name, weight in weights.items():
            if name.startswith("critic.") != (player == "critic") and weight.grad is not None:
                strayed.append(float(weight.grad.norm()))
        self.case.check(f"{player}: gradient of the other player", max(strayed, default=0.0), 0.0)
        for official, stored in norms.items():
            if official.startswith(DISCRIMINATOR) != (player == "critic"):
                continue
            if official not in NAMES:
                raise SaccadeError(f'{self.case.name}: grad_names has "{official}", which is no variable of the model')
            parts = [weights[name].grad for name in NAMES[official]]
            norm = np.sqrt(sum(float(part.square().sum()) for part in parts if part is not None))
            allowed = GRADIENT * stored if stored > 1e-3 else 1e-5
            self.case.check(f"grad_norms__{official}", abs(norm - stored), allowed)
