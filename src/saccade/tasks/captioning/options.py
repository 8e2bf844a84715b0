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


class How(str, Enum):
    greedy = "greedy"
    beam = "beam"
    diverse = "diverse"
    sample = "sample"


class LengthPenalty(str, Enum):
    none = "none"
    wu = "wu"
    average = "average"


HowOption = Annotated[
    How | None,
    typer.Option(
        "--how",
        help="greedy takes the likeliest word each time; beam follows several sentences at once; diverse makes them "
        "differ; sample draws words by their probability.",
        show_default=False,
    ),
]
BeamOption = Annotated[
    int | None,
    typer.Option(
        "--beam", "-b", min=1, max=MAX_COUNT, help="Sentences followed at once; 1 is greedy.", show_default=False
    ),
]
LongestOption = Annotated[
    int | None, typer.Option("--longest", min=1, max=MAX_COUNT, help="Words of a caption at most.", show_default=False)
]
PenaltyOption = Annotated[
    LengthPenalty | None,
    typer.Option(
        "--length-penalty",
        help="Long sentences are less likely than short ones; average and wu (Google's) make up for it.",
        show_default=False,
    ),
]
RepeatOption = Annotated[
    int | None,
    typer.Option("--no-repeat", metavar="N", min=0, help="3: no three words in a row are said twice; 0: they may be."),
]


@dataclass(frozen=True)
class EvalOptions:
    """Of captioners: BLEU, METEOR, ROUGE-L, CIDEr and scene graphs of what they say of each picture, beside what people
    said, times 100 as in papers. --how, --beam, --longest, --length-penalty, --no-repeat and --captions are for them;
    where nothing is said, captions are found as in the run's own evaluations.
    """

    how: HowOption = None
    beam: BeamOption = None
    longest: LongestOption = None
    length_penalty: PenaltyOption = None
    no_repeat: RepeatOption = None
    captions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Keep what a captioner said, in COCO's results format; of several models each gets a file of its own.",
        ),
    ] = None

    def over(self, base: DecodingConfig) -> DecodingConfig:
        """`base` with what was asked for."""
        found = {"longest": self.longest, "penalty": self.length_penalty, "no_repeat": self.no_repeat}
        return chosen_decoding(base, self.how, self.beam, **found)  # type: ignore[arg-type]


def chosen_decoding(
    base: DecodingConfig,
    how: How | None = None,
    beam: int | None = None,
    samples: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    nucleus: float | None = None,
    longest: int | None = None,
    penalty: LengthPenalty | None = None,
    no_repeat: int | None = None,
) -> DecodingConfig:
    """`base` with what was asked for; the way of decoding follows from the options where it is not named."""
    drawing = {"--top-k": top_k, "--nucleus": nucleus}
    searching = {"--beam": beam, "--length-penalty": penalty}
    if how is None:
        if any(value is not None for value in (*drawing.values(), samples)):
            how = How.sample
        elif any(value is not None for value in searching.values()):
            how = How.beam
        else:
            how = How(base.how)
    for option, value in {**drawing, **searching}.items():
        wanted = (How.sample,) if option in drawing else (How.beam, How.diverse)
        if value is not None and how not in wanted:
            names = " or ".join(way.value for way in wanted)
            raise SaccadeError(f"{option} goes with --how {names}, and these options mean --how {how.value}")
    if how is How.greedy and (samples or 1) > 1:
        raise SaccadeError(f"--how greedy has one caption a picture: --samples {samples} goes with the other ways")
    beams = beam or base.beam
    if how in (How.beam, How.diverse) and (samples or 1) > beams:
        raise SaccadeError(f"--samples {samples} of {beams} beams: give --beam {samples} to have so many")
    if how is How.beam and beam == 1:
        how = How.greedy
    changes = {
        "beam": beam,
        "samples": (samples or DEFAULT_SAMPLES) if how is How.sample else None,
        "temperature": temperature,
        "top_k": top_k,
        "nucleus": nucleus,
        "longest": longest,
        "length_penalty": None if penalty is None else penalty.value,
        "no_repeated_ngrams": no_repeat,
    }
    found = replace(base, how=how.value, groups=1, **{k: v for k, v in changes.items() if v is not None})  # type: ignore[arg-type]
    return replace(found, groups=found.beam) if how is How.diverse else found  # each beam differs from all others


def describe_decoding(config: DecodingConfig) -> str:
    """In a few words, for a table's title."""
    if config.how == "greedy":
        return "greedy"
    if config.how == "sample":
        return "sampled"
    return f"{'diverse beams' if config.how == 'diverse' else 'beam search'} of {config.beam}"
