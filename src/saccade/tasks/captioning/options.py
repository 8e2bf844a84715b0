"""How captions are found, as options: the same for `saccade caption` and `saccade eval`; and the latter's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saccade.core.errors import SaccadeError

if TYPE_CHECKING:
    from saccade.decoding import DecodingConfig

DEFAULT_SAMPLES = 5
MAX_COUNT = 1000  # of beams, samples, words: more would fill the memory before anything is said


class Strategy(str, Enum):
    greedy = "greedy"
    beam = "beam"
    diverse = "diverse"
    sample = "sample"


class LengthPenalty(str, Enum):
    none = "none"
    wu = "wu"
    average = "average"


StrategyOption = Annotated[
    Strategy | None,
    typer.Option(
        "--strategy",
        help="greedy takes the likeliest word each time; beam follows several sentences at once; diverse makes them "
        "differ; sample draws words by their probability.",
        show_default=False,
    ),
]
NumBeamsOption = Annotated[
    int | None,
    typer.Option(
        "--num-beams", "-b", min=1, max=MAX_COUNT, help="Sentences followed at once; 1 is greedy.", show_default=False
    ),
]
MaxLengthOption = Annotated[
    int | None,
    typer.Option("--max-length", min=1, max=MAX_COUNT, help="Words of a caption at most.", show_default=False),
]
PenaltyOption = Annotated[
    LengthPenalty | None,
    typer.Option(
        "--length-penalty",
        help="Long sentences are less likely than short ones; average and wu (Google's) make up for it.",
        show_default=False,
    ),
]
NoRepeatNgramSizeOption = Annotated[
    int | None,
    typer.Option(
        "--no-repeat-ngram-size", metavar="N", min=0, help="3: no three words in a row are said twice; 0: they may be."
    ),
]


@dataclass(frozen=True)
class EvalOptions:
    """Of captioners: BLEU, METEOR, ROUGE-L, CIDEr and scene graphs of what they say of each picture, beside what people
    said, times 100 as in papers. --strategy, --num-beams, --max-length, --length-penalty, --no-repeat-ngram-size and
    --captions are for them; where none is given, captions are decoded as in the run's own evaluations.
    """

    strategy: StrategyOption = None
    num_beams: NumBeamsOption = None
    max_length: MaxLengthOption = None
    length_penalty: PenaltyOption = None
    no_repeat_ngram_size: NoRepeatNgramSizeOption = None
    captions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep what a captioner said, in COCO's results format; of several models each gets a file of its own.",
        ),
    ] = None

    def over(self, base: DecodingConfig) -> DecodingConfig:
        """`base` with what was asked for."""
        found = {
            "max_length": self.max_length,
            "penalty": self.length_penalty,
            "no_repeat_ngram_size": self.no_repeat_ngram_size,
        }
        return chosen_decoding(base, self.strategy, self.num_beams, **found)  # type: ignore[arg-type]


def chosen_decoding(
    base: DecodingConfig,
    strategy: Strategy | None = None,
    num_beams: int | None = None,
    num_return_sequences: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    max_length: int | None = None,
    penalty: LengthPenalty | None = None,
    no_repeat_ngram_size: int | None = None,
) -> DecodingConfig:
    """`base` with what was asked for; the way of decoding follows from the options where it is not named."""
    drawing = {"--top-k": top_k, "--top-p": top_p}
    searching = {"--num-beams": num_beams, "--length-penalty": penalty}
    if strategy is None:
        if any(value is not None for value in (*drawing.values(), num_return_sequences)):
            strategy = Strategy.sample
        elif any(value is not None for value in searching.values()):
            strategy = Strategy.beam
        else:
            strategy = Strategy(base.strategy)
    for option, value in {**drawing, **searching}.items():
        wanted = (Strategy.sample,) if option in drawing else (Strategy.beam, Strategy.diverse)
        if value is not None and strategy not in wanted:
            names = " or ".join(way.value for way in wanted)
            raise SaccadeError(
                f"{option} goes with --strategy {names}, and these options mean --strategy {strategy.value}"
            )
    if strategy is Strategy.greedy and (num_return_sequences or 1) > 1:
        raise SaccadeError(
            "--strategy greedy has one caption a picture: "
            f"--num-return-sequences {num_return_sequences} goes with the other ways"
        )
    beams = num_beams or base.num_beams
    if strategy in (Strategy.beam, Strategy.diverse) and (num_return_sequences or 1) > beams:
        raise SaccadeError(
            f"--num-return-sequences {num_return_sequences} of {beams} beams: "
            f"give --num-beams {num_return_sequences} to have so many"
        )
    if strategy is Strategy.beam and num_beams == 1:
        strategy = Strategy.greedy
    changes = {
        "num_beams": num_beams,
        "num_return_sequences": (num_return_sequences or DEFAULT_SAMPLES) if strategy is Strategy.sample else None,
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "max_length": max_length,
        "length_penalty": None if penalty is None else penalty.value,
        "no_repeat_ngram_size": no_repeat_ngram_size,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    found = replace(base, strategy=strategy.value, num_beam_groups=1, **given)  # type: ignore[arg-type]
    if strategy is Strategy.diverse:  # each beam differs from all others
        return replace(found, num_beam_groups=found.num_beams)
    return found


def describe_decoding(config: DecodingConfig) -> str:
    """In a few words, for a table's title."""
    if config.strategy == "greedy":
        return "greedy"
    if config.strategy == "sample":
        return "sampled"
    return f"{'diverse beams' if config.strategy == 'diverse' else 'beam search'} of {config.num_beams}"
