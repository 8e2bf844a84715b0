"""Sentences written word by word: what may not be said, the likeliest word (greedy), or one drawn at random."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from saccade.batch import END, PAD, START, UNKNOWN, CaptionState, PictureBatch, RegionBatch
from saccade.decoding.config import DecodingConfig
from saccade.decoding.output import DecodedCaptions
from saccade.language import Vocabulary
from saccade.models.base.captioner import Captioner

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
        self.needs_history = bool(config.no_immediate_repeat or config.no_repeat_ngram_size or bad)

    def __call__(
        self, log_probabilities: Float[Tensor, "row word"], generated: Int[Tensor, "row step"]
    ) -> Float[Tensor, "row word"]:
        config, allowed = self.config, log_probabilities
        if config.temperature != 1:
            allowed = (allowed / config.temperature).log_softmax(dim=-1)
        if len(self.suppressed):
            allowed = allowed.index_fill(1, self.suppressed, FORBIDDEN)
        if not self.needs_history or not generated.shape[1]:
            return allowed
        end, last = allowed[:, END], generated[:, -1:]
        if config.no_immediate_repeat:
            allowed = allowed.scatter(1, last, FORBIDDEN)
        if config.no_repeat_ngram_size:
            allowed = self._without_repeated(allowed, generated)
        if len(self.bad_endings):
            bad = torch.isin(last[:, 0], self.bad_endings)
            allowed = allowed.select_scatter(allowed[:, END].masked_fill(bad, FORBIDDEN), 1, END)
        stuck = allowed.detach().amax(dim=1) == FORBIDDEN  # nothing is left to say: then the sentence may end
        return allowed.select_scatter(torch.where(stuck, end, allowed[:, END]), 1, END)

    def _without_repeated(
        self, allowed: Float[Tensor, "row word"], generated: Int[Tensor, "row step"]
    ) -> Float[Tensor, "row word"]:
        """Whatever followed an earlier occurrence of the last n − 1 words."""
        before = self.config.no_repeat_ngram_size - 1
        if generated.shape[1] <= before:
            return allowed
        followers = generated[:, before:]
        same = torch.ones_like(followers, dtype=torch.bool)
        if before:
            earlier = generated[:, :-1].unfold(1, before, 1)  # [row, follower, n − 1]
            same = (earlier == generated[:, None, -before:]).all(dim=2)
        times = torch.zeros_like(allowed).scatter_add(1, followers, same.to(allowed.dtype))
        if self.config.repeat_ngram_penalty is None:
            return allowed.masked_fill(times > 0, FORBIDDEN)
        return allowed - times * self.config.repeat_ngram_penalty


Choose = Callable[[Tensor], tuple[Tensor, Tensor]]  # log-probabilities → words, log-probabilities they come from


def start_state(model: Captioner, images: RegionBatch | PictureBatch | CaptionState) -> CaptionState:
    """The state before the first word; a state that is given already stays as it is."""
    return images if isinstance(images, CaptionState) else model.start(model.extract(images))


def should_check(like: Tensor, step: int) -> bool:
    """Whether to check now if all sentences are over: on a GPU, where that is a synchronisation, every fourth step."""
    return not like.is_cuda or step % 4 == 3


def greedy(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    distributions: bool = False,
) -> DecodedCaptions:
    """One caption a picture: always the likeliest word."""

    def likeliest(allowed: Float[Tensor, "row word"]) -> tuple[Tensor, Tensor]:
        return allowed.argmax(dim=1), allowed

    with torch.no_grad():
        return _one_by_one(model, start_state(model, images), config or DecodingConfig(), likeliest, distributions)


def sample(
    model: Captioner,
    images: RegionBatch | PictureBatch | CaptionState,
    config: DecodingConfig | None = None,
    *,
    generator: torch.Generator | None = None,
    distributions: bool = False,
) -> DecodedCaptions:
    """`config.num_return_sequences` captions a picture, each word drawn from those that `top_k` and `top_p` leave.

    The log-probabilities are those of the distribution drawn from, and keep their gradient unless it is switched off.
    """
    config = config or DecodingConfig()

    def drawn(allowed: Float[Tensor, "row word"]) -> tuple[Tensor, Tensor]:
        policy = top_k_top_p(allowed, config.top_k, config.top_p)
        return torch.multinomial(policy.detach().exp(), 1, generator=generator)[:, 0], policy

    state = start_state(model, images).repeat(config.num_return_sequences)
    return _one_by_one(model, state, config, drawn, distributions, config.num_return_sequences)


def top_k_top_p(allowed: Float[Tensor, "row word"], top_k: int, top_p: float) -> Float[Tensor, "row word"]:
    """Only the likeliest words: `top_k` of them, and of those the fewest that have a share of `top_p`."""
    if 0 < top_k < allowed.shape[1]:
        kept = allowed.detach().topk(top_k, dim=1).indices
        allowed = allowed.masked_fill(torch.ones_like(allowed, dtype=torch.bool).scatter(1, kept, False), FORBIDDEN)
    if top_p < 1:
        likely, order = allowed.detach().softmax(dim=1).sort(dim=1, descending=True)
        before = likely.cumsum(dim=1) - likely  # the share of likelier words: 0 for the first, which always stays
        allowed = allowed.masked_fill((before >= top_p).scatter(1, order, before >= top_p), FORBIDDEN)
    return allowed.log_softmax(dim=1)


def _one_by_one(
    model: Captioner,
    state: CaptionState,
    config: DecodingConfig,
    choose: Choose,
    distributions: bool,
    per_image: int = 1,
) -> DecodedCaptions:
    """Until every sentence has ended; one that has ended says padding."""
    device = next(model.parameters()).device
    constraints = Constraints(config, model.vocabulary, device)
    words: Int[Tensor, " row"] = torch.full((len(state),), START, device=device)
    over = torch.zeros_like(words, dtype=torch.bool)
    generated = words.new_zeros(len(state), 0)
    chosen, weights, sentinels, policies = [], [], [], []
    for step in range(config.max_length):
        log_probabilities, output = model.predict_next(words, state)
        state = output.state
        words, policy = choose(constraints(log_probabilities, generated))
        chosen.append(policy.gather(1, words[:, None])[:, 0].masked_fill(over, 0))
        weights.append(output.weights.detach().masked_fill(over[:, None], 0))
        if output.sentinel is not None:
            sentinels.append(output.sentinel.detach().masked_fill(over, 0))
        if distributions:
            policies.append(policy.masked_fill(over[:, None], 0))
        words = words.masked_fill(over, PAD)
        generated = torch.cat([generated, words[:, None]], dim=1)
        if not config.continue_after_end:
            over = over | (words == END)
            if should_check(over, step) and bool(over.all()):
                break
    log_probabilities = torch.stack(chosen, dim=1)
    return DecodedCaptions(
        generated,
        log_probabilities,
        log_probabilities.sum(dim=1),
        torch.stack(weights, dim=1),
        torch.stack(sentinels, dim=1) if sentinels else None,
        torch.stack(policies, dim=1) if distributions else None,
        per_image,
    ).trimmed()
