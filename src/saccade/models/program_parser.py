"""A program generator: questions into programs (Johnson, Hariharan, van der Maaten, Hoffman, Fei-Fei, Lawrence Zitnick,
Girshick: Inferring and Executing Programs for Visual Reasoning; ICCV 2017), with the attention of Luong et al. (2015).

A program is the sequence of its steps, each a word of its own ("filter red"). Steps take the results that are waiting,
the latest first, so that the sequence alone says what takes what (reverse Polish notation).

    h_i = [GRU(x)_i; x_i]                              the question, read in both directions, beside its words
    s_t = GRU(s_{t−1}, y_{t−1}),   s_0 = tanh(W_0 h̄)   h̄ = the mean of h
    α_t = softmax_i(s_t · W_a h_i),   c_t = Σ_i α_ti h_i
    P(y_t | y_<t, x) = softmax(W_o tanh(W_c [s_t; c_t]))

The words themselves stand in h, since most steps are one of them: "riding" is seldom asked, and found at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from saccade.batch import PAD, Program, Step, TextBatch, padded_ids
from saccade.core.config import check_ranges
from saccade.core.errors import SaccadeError
from saccade.language import Vocabulary
from saccade.models.base.model import Model, register
from saccade.nn.encode import dropout_layer, mean_state
from saccade.nn.programs import KINDS, THINGS
from saccade.nn.recurrent import SentenceGru

END = 0  # of a program, and padding


@dataclass(frozen=True)
class ProgramParserConfig:
    steps: tuple[str, ...] = ()  # those that a program may have, from the training programs: "filter red"
    word_dim: int = 128
    dim: int = 256
    dropout: float = 0.0
    max_steps: int = 32  # of a program

    def __post_init__(self) -> None:
        check_ranges(self, "word_dim dim max_steps", "at least 1")
        check_ranges(self, "dropout", "zero or more")


@dataclass(frozen=True)
class Parsed:
    """What was made of a question; `program` is None if the steps make none."""

    program: Program | None
    probability: float


def step_word(step: Step) -> str:
    return f"{step.op} {step.argument}".rstrip()


def assemble(words: Sequence[str]) -> Program | None:
    """The program of these steps, each taking what the latest before it gave; None if they make none."""
    steps: list[Step] = []
    waiting: list[int] = []
    for word in words:
        op, _, argument = word.partition(" ")
        if op not in KINDS:
            return None
        count = len(KINDS[op].inputs)
        taken = tuple(waiting[len(waiting) - count :])
        if tuple(KINDS[steps[place].op].result for place in taken) != KINDS[op].inputs:
            return None
        del waiting[len(waiting) - count :]
        waiting.append(len(steps))
        steps.append(Step(op, taken, argument))
    whole = len(waiting) == 1 and KINDS[steps[-1].op].result != THINGS
    return tuple(steps) if whole else None


@register(
    "program_parser",
    task="parsing",
    title="Inferring and Executing Programs for Visual Reasoning",
    venue="Johnson et al., ICCV 2017",
)
class ProgramParser(Model):
    Config = ProgramParserConfig
    config: ProgramParserConfig

    def __init__(self, config: ProgramParserConfig, vocabulary: Vocabulary, extractor: str | None = None) -> None:
        super().__init__(config, vocabulary, extractor)
        steps, dim = len(config.steps) + 1, config.dim
        self.places = {word: place for place, word in enumerate(config.steps, start=1)}
        self.words = nn.Embedding(len(vocabulary), config.word_dim, padding_idx=PAD)
        self.encoder = SentenceGru(config.word_dim, dim, bidirectional=True)
        read = 2 * dim + config.word_dim
        self.first_state = nn.Linear(read, dim)  # W_0
        self.steps = nn.Embedding(steps + 1, config.word_dim)  # the last begins a program
        self.decoder = nn.GRU(config.word_dim, dim, batch_first=True)
        self.keys = nn.Linear(read, dim, bias=False)  # W_a
        self.mix = nn.Linear(dim + read, dim)  # W_c
        self.out = nn.Linear(dim, steps)  # W_o
        self.dropout = dropout_layer(config.dropout)

    def target(self, programs: Sequence[Program]) -> Int[Tensor, "text step"]:
        """The steps of programs, and after them END. Raises: SaccadeError if one is not known."""
        words = [[step_word(step) for step in program] for program in programs]
        unknown = [word for own in words for word in own if word not in self.places]
        if unknown:
            raise SaccadeError(f'the parser knows no step "{unknown[0]}"')
        return padded_ids([[*(self.places[word] for word in own), END] for own in words])[0]

    def encode(self, questions: TextBatch) -> tuple[Float[Tensor, "text word state"], Float[Tensor, "1 text dim"]]:
        """h, and s_0."""
        words = self.dropout(self.words(questions.tokens))
        states = torch.cat([self.encoder(words, questions.lengths), words], dim=2)
        return states, self.first_state(mean_state(states, questions.lengths)).tanh()[None]

    def decode(
        self,
        questions: TextBatch,
        read: Float[Tensor, "text word state"],
        before: Int[Tensor, "text step"],
        state: Float[Tensor, "1 text dim"],
    ) -> tuple[Float[Tensor, "text step choice"], Float[Tensor, "1 text dim"]]:
        """Logits of the steps after those of `before`, and the last state."""
        states, state = self.decoder(self.dropout(self.steps(before)), state)
        scores = states @ self.keys(read).mT
        weights = scores.masked_fill(~questions.mask[:, None], float("-inf")).softmax(dim=2)  # α
        mixed = self.mix(torch.cat([states, weights @ read], dim=2)).tanh()
        return self.out(self.dropout(mixed)), state

    def forward(self, questions: TextBatch, target: Int[Tensor, "text step"]) -> Float[Tensor, "text step choice"]:
        """Logits of every step of `target`, given those before it."""
        read, state = self.encode(questions)
        begin = torch.full_like(target[:, :1], len(self.config.steps) + 1)
        return self.decode(questions, read, torch.cat([begin, target[:, :-1]], dim=1), state)[0]

    def loss(self, questions: TextBatch, target: Int[Tensor, "text step"]) -> Float[Tensor, ""]:
        """−log P of the steps, END among them: the mean over programs' steps."""
        logits = self(questions, target)
        told = target.roll(1, dims=1).ne(END) | torch.arange(target.shape[1], device=target.device).eq(0)
        each = F.cross_entropy(logits.flatten(0, 1), target.flatten(), reduction="none").view_as(target)
        return (each * told).sum() / told.sum()

    @torch.no_grad()
    def parse(self, texts: Sequence[str]) -> list[Parsed]:
        """The likeliest step each time, until END."""
        device = self.out.weight.device
        questions = self.read(texts).to(device)
        read, state = self.encode(questions)
        before = torch.full((len(texts), 1), len(self.config.steps) + 1, device=device)
        done = torch.zeros(len(texts), dtype=torch.bool, device=device)
        chance, said = torch.zeros(len(texts), device=device), []
        for _ in range(self.config.max_steps + 1):
            logits, state = self.decode(questions, read, before, state)
            best = logits[:, -1].log_softmax(dim=1).max(dim=1)
            chance = chance + best.values.float().masked_fill(done, 0)
            before = best.indices.masked_fill(done, END)[:, None]
            done = done | (before[:, 0] == END)
            said.append(before)
            if done.all():
                break
        rows = torch.cat(said, dim=1).tolist()
        found = []
        for row, likely in zip(rows, chance.exp().tolist(), strict=True):
            steps = row[: row.index(END)] if END in row else []  # one that does not end is none
            found.append(Parsed(assemble([self.config.steps[place - 1] for place in steps]) if steps else None, likely))
        return found
