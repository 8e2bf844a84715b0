"""What may not be said: words that are never wanted, repetitions, and endings that end nothing."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import END, UNKNOWN
from saccade.decoding.config import DecodingConfig
from saccade.language import Vocabulary

FORBIDDEN = float("-inf")


class Constraints:
    """Log-probabilities in, log-probabilities out; what is forbidden has −∞, and nothing is normalised again."""

    def __init__(self, config: DecodingConfig, vocabulary: Vocabulary, device: torch.device) -> None:
        self.config = config
        suppressed = {*config.suppress_tokens, *((UNKNOWN,) if config.suppress_unk else ())}
        self.suppressed = torch.tensor(sorted(suppressed), dtype=torch.long, device=device)
        wanted = set(config.bad_endings) if config.no_bad_endings else set()
        bad = [i for i, word in enumerate(vocabulary.words) if word in wanted]
        self.bad_endings = torch.tensor(bad, dtype=torch.long, device=device)
        self.look_back = bool(config.no_immediate_repeat or config.no_repeat_ngram_size or bad)

    def __call__(
        self, log_probabilities: Float[Tensor, "row word"], said: Int[Tensor, "row step"]
    ) -> Float[Tensor, "row word"]:
        config, allowed = self.config, log_probabilities
        if config.temperature != 1:
            allowed = (allowed / config.temperature).log_softmax(dim=-1)
        if len(self.suppressed):
            allowed = allowed.index_fill(1, self.suppressed, FORBIDDEN)
        if not self.look_back or not said.shape[1]:
            return allowed
        end, last = allowed[:, END], said[:, -1:]
        if config.no_immediate_repeat:
            allowed = allowed.scatter(1, last, FORBIDDEN)
        if config.no_repeat_ngram_size:
            allowed = self._without_repeated(allowed, said)
        if len(self.bad_endings):
            bad = torch.isin(last[:, 0], self.bad_endings)
            allowed = allowed.select_scatter(allowed[:, END].masked_fill(bad, FORBIDDEN), 1, END)
        stuck = allowed.detach().amax(dim=1) == FORBIDDEN  # nothing is left to say: then the sentence may end
        return allowed.select_scatter(torch.where(stuck, end, allowed[:, END]), 1, END)

    def _without_repeated(
        self, allowed: Float[Tensor, "row word"], said: Int[Tensor, "row step"]
    ) -> Float[Tensor, "row word"]:
        """Whatever followed an earlier occurrence of the last n − 1 words."""
        before = self.config.no_repeat_ngram_size - 1
        if said.shape[1] <= before:
            return allowed
        followers = said[:, before:]
        same = torch.ones_like(followers, dtype=torch.bool)
        if before:
            earlier = said[:, :-1].unfold(1, before, 1)  # [row, follower, n − 1]
            same = (earlier == said[:, None, -before:]).all(dim=2)
        times = torch.zeros_like(allowed).scatter_add(1, followers, same.to(allowed.dtype))
        if self.config.repeat_ngram_penalty is None:
            return allowed.masked_fill(times > 0, FORBIDDEN)
        return allowed - times * self.config.repeat_ngram_penalty
