"""Unsupervised captioning: both players, rewards, losses, gradient norms.

A case is a pair of files, io.npz with tf_variables.npz, or NAME.io.npz with NAME.tf_variables.npz.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import PAD, START, CaptionState, TextBatch
from saccade.core.arrays import read_npz
from saccade.core.errors import SaccadeError
from saccade.interop.harness import EMBEDDING, LOSS, Case, Difference, Golden, of_gradient, unmasked
from saccade.interop.importer import Imported
from saccade.interop.importers.unsupervised import UNSUPERVISED
from saccade.models import Unsupervised
from saccade.models.unsupervised import Rollout, first_mentions, up_to_end

OUTPUTS, VARIABLES = "io.npz", "tf_variables.npz"


class UnsupervisedCase:
    """The stored inputs as ours; official ids and columns are mapped on the way."""

    def __init__(self, case: Case, imported: Imported[Unsupervised]) -> None:
        self.case, self.imported, self.model = case, imported, imported.model
        self.ids = imported.words.inputs
        self.images = unmasked(case.tensor("image_feat").double()[:, None])
        self.sampled = self._words("sampled_seq")
        classes = self._words("classes")
        real = torch.arange(classes.shape[1]) < case.tensor("num")[:, None]
        self.concepts = classes.masked_fill(~real, PAD)
        self.scores = case.tensor("scores").double() * real
        self.real = self._sentences("real_sentence", "real_len")
        self.corrupted = self._sentences("key", "key_len")
        self.mask = up_to_end(self.sampled)

    def _words(self, key: str) -> Int[Tensor, "row word"]:
        official = self.case.tensor(key).long()
        if official.numel() and not 0 <= int(official.min()) <= int(official.max()) < len(self.ids):
            raise SaccadeError(f"{self.case.name}: {key} holds ids beyond the {len(self.ids)} words of the checkpoint")
        return self.ids[official]

    def _sentences(self, key: str, length: str) -> TextBatch:
        words = self._words(key)
        return TextBatch(words, torch.arange(words.shape[1]) < self.case.tensor(length)[:, None])

    def official_logits(
        self, state: CaptionState, words: Int[Tensor, "row step"]
    ) -> Float[Tensor, "row step official"]:
        """Of every official word after each of these: <S> is one there, which is no output of ours."""
        hidden = []
        for word in words.unbind(dim=1):
            output = self.model.step(word, state)
            state = output.state
            hidden.append(output.hidden)
        return self.model.logits(torch.stack(hidden, dim=1))[:, :, self.ids]

    def logits(self) -> Float[Tensor, "image step official"]:
        start = self.sampled.new_full((len(self.sampled), 1), START)
        return self.official_logits(self.model.start(self.images), torch.cat([start, self.sampled[:, :-1]], dim=1))

    def log_probabilities(self) -> Float[Tensor, "image step"]:
        official = self.case.tensor("sampled_seq").long()
        return self.logits().log_softmax(dim=2).gather(2, official[:, :, None])[:, :, 0]

    @cached_property
    def greedy(self) -> Int[Tensor, "image step"]:
        """Official ids; in the official code <S> may be an output too, and decoding goes on after </S>."""
        state, words, ids = self.model.start(self.images), self.sampled.new_full((len(self.sampled),), START), []
        for _ in range(self.sampled.shape[1]):
            output = self.model.step(words, state)
            state = output.state
            ids.append(self.model.logits(output.hidden)[:, self.ids].argmax(dim=1))
            words = self.ids[ids[-1]]
        return torch.stack(ids, dim=1)

    def critic_output(self, ending: str) -> Any:
        """What the critic makes of the sampled sentences, or of real ones."""
        if ending:
            return self.model.critic.score(self.real.tokens[:, 1:], self.real.mask[:, 1:])
        return self.model.critic.score(self.sampled, self.mask)

    @cached_property
    def losses(self) -> dict[str, Tensor]:
        """The losses of both players; `gradients` needs their graphs."""
        with torch.enable_grad():
            rollout = Rollout(self.sampled, self.model.encode_images(self.images)[0], self.concepts, self.scores)
            critic = self.model.discriminator_losses(self.real, rollout)
            game, _ = self.model.generator_loss(self.log_probabilities(), rollout, self.ids[self.greedy])
            recalled = self.model.critic.score(self.corrupted.tokens, self.corrupted.mask).recalled.detach()
            logits = self.official_logits(self.model.start_from(recalled), self.real.tokens[:, :-1])
            labels, wanted = self.case.tensor("real_sentence").long()[:, 1:], self.real.mask[:, 1:]
            sentences = torch.nn.functional.cross_entropy(logits[wanted], labels[wanted])
            return {
                "gan_dis_loss": critic["adversarial_loss"],
                "dis_loss": torch.stack([*critic.values()]).sum(),
                "gen_loss": game,
                "sentence_ae_loss": sentences,
                "of generator": game + sentences,
            }

    def gradients(self) -> dict[str, Difference]:
        """Each player's gradients, and that neither loss reaches the other player."""
        names = [str(name) for name in self.case.take("grad_names")]
        norms = dict(zip(names, self.case.stored["grad_norms"].tolist(), strict=True))
        found: dict[str, Difference] = {}
        for player, loss in (("generator", "of generator"), ("critic", "dis_loss")):
            self.model.zero_grad()
            self.losses[loss].backward(retain_graph=True)  # type: ignore[no-untyped-call]
            strayed = [
                float(weight.grad.norm())
                for name, weight in self.model.named_parameters()
                if name.startswith("critic.") != (player == "critic") and weight.grad is not None
            ]
            found[f"{player}: gradient of the other player"] = Difference(max(strayed, default=0.0), 0.0)
            official = self.imported.gradients()
            for name, stored in norms.items():
                if name not in official:
                    raise SaccadeError(f'{self.case.name}: grad_names has "{name}", which is no variable of the model')
                if name.startswith("Discriminator") == (player == "critic"):
                    apart = abs(float(official[name].norm()) - stored)
                    found[f"grad_norms__{name}"] = Difference(apart, of_gradient(stored))
        return found


def opens(folder: Path) -> Iterator[UnsupervisedCase]:
    for path in sorted(folder.glob(f"*{OUTPUTS}")):
        prefix = path.name.removesuffix(OUTPUTS)
        variables = folder / f"{prefix}{VARIABLES}"
        if not variables.exists():
            raise SaccadeError(f"{path} has no checkpoint beside it: expected {variables.name}")
        case = Case(prefix.strip("._-") or folder.name, read_npz(path))
        yield UnsupervisedCase(case, UNSUPERVISED.read(variables, dtype=torch.float64))


LOSSES = ("gan_dis_loss", "dis_loss", "gen_loss", "sentence_ae_loss")
CRITIC = tuple(f"dis_{part}{ending}" for part in ("pred", "mask", "feat") for ending in ("", "_real"))
GENERATOR = ("gen_feat", "gen_logits", "gen_log_probs", "gen_baseline", "length", "obj_rewards")
GOLDEN = Golden(
    "unsupervised",
    opens,
    {
        "gen_feat": (lambda c: c.model.encode_images(c.images)[0], EMBEDDING),
        "gen_logits": (lambda c: c.logits(), EMBEDDING),
        "gen_log_probs": (lambda c: c.log_probabilities(), EMBEDDING),
        "gen_baseline": (lambda c: c.greedy, 0.0),
        "length": (lambda c: c.mask.sum(dim=1), 0.0),
        "dis_pred(|_real)": (lambda c, ending: c.critic_output(ending).logits, EMBEDDING),
        "dis_feat(|_real)": (lambda c, ending: c.critic_output(ending).recalled, EMBEDDING),
        "obj_rewards": (lambda c: first_mentions(c.sampled, c.mask, c.concepts, c.scores), EMBEDDING),
        "dis_mask(|_real)": (lambda c, ending: c.critic_output(ending).mask, 0.0),
        f"({'|'.join(LOSSES)})": (lambda c, key: c.losses[key], LOSS),
        "grad_norms": (lambda c: c.gradients(), 0.0),
    },
    required=lambda case: (*GENERATOR, *CRITIC, *LOSSES, "grad_norms"),
)
