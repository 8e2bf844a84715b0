"""Print the tables of docs/text.md: what a vocabulary knows in each language of Flickr8k, and which words have vectors.

python scripts/vocabulary_table.py data/flickr8k
"""

from __future__ import annotations

import sys
from pathlib import Path

from saccade.core.errors import SaccadeError
from saccade.data.datasets.photos.flickr import open_flickr8k
from saccade.language import Vocabulary, load_vectors, tokenise
from saccade.language.vocabulary import SPECIAL

NAMES = {"en": "English", "de": "German", "de1": "German (translated)", "fr": "French", "cs": "Czech"}


def texts(root: Path, split: str, language: str) -> tuple[str, ...]:
    return open_flickr8k(split, root, language).texts


def languages(root: Path) -> None:
    print("| language | train captions | words a caption | words ≥ 4 times | unknown on dev | ≥ 3 times | unknown |")
    print("|---|---|---|---|---|---|---|")
    for language, name in NAMES.items():
        train, dev = (texts(root, split, language) for split in ("train", "dev"))
        cells = [f"{len(train):,}", f"{sum(len(tokenise(t)) for t in train) / len(train):.1f}"]
        for min_count in (4, 3):
            vocabulary = Vocabulary.build(train, min_count)
            unknown = sum(len(vocabulary.unknown(t)) for t in dev) / sum(len(tokenise(t)) for t in dev)
            cells += [f"{len(vocabulary) - len(SPECIAL):,}", f"{unknown:.1%}"]
        print(f"| {name} | {' | '.join(cells)} |")


def coverage(root: Path, vectors: str) -> None:
    train = texts(root, "train", "en")
    print(f"\n| occurrences, at least | words | with a vector of {vectors} | share of all words in the captions |")
    print("|---|---|---|---|")
    for min_count in (4, 3):
        vocabulary = Vocabulary.build(train, min_count)
        found = load_vectors(vectors, vocabulary.words[len(SPECIAL) :])
        known = set(found.words)
        words = [word for text in train for word in tokenise(text) if word in vocabulary]
        share = sum(word in known for word in words) / len(words)
        print(f"| {min_count} times | {len(vocabulary) - len(SPECIAL):,} | {len(found.words):,} | {share:.2%} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("error: name the folder of Flickr8k")
    try:
        languages(Path(sys.argv[1]))
        coverage(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "glove-6b-50d")
    except SaccadeError as error:
        sys.exit(f"error: {error}")
