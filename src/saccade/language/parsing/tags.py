"""What each word of a caption is, from tables, its ending, and its neighbours: "a dog bites a cat" has one verb.

A word has the class that the tables give it (`WordClass`), until the rule for that class has read its neighbours. The
rules go from left to right: `before` is the class found for the word before, `after` and `raw` what the tables say of
the words that follow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from saccade.language import caption_words as tables
from saccade.language.caption_words import C, WordClass, lexicon, singular, word_table
from saccade.language.parsing.scene_graph import FIRST_OF_SEVERAL, compound_length

NOUNS = frozenset({C.NOUN, C.PLURAL})
SPECIFIERS = frozenset({C.DETERMINER, C.OWNER})
BREAKS = frozenset({C.CONJUNCTION, C.COMMA})
NAMES = NOUNS | {C.MATERIAL, C.BASE, C.S_FORM, C.UNKNOWN_S}  # what may be, or begin, the name of a thing
PHRASE = NOUNS | SPECIFIERS | {C.NUMBER, C.ADJECTIVE, C.PRONOUN}  # once its words are classified
VERBS = frozenset({C.FINITE, C.DOING, C.DONE, C.INFINITIVE})  # likewise
MAY_BE_NOUN = NAMES | {C.ADJECTIVE, C.OTHER}
NOMINAL = MAY_BE_NOUN | {C.ING, C.PARTICIPLE, C.NUMBER}  # may stand between a determiner and the end of its noun phrase
PHRASE_START = MAY_BE_NOUN | SPECIFIERS | {C.NUMBER, C.PRONOUN, C.ING}
DESCRIBING = frozenset({C.ADJECTIVE, C.MATERIAL})
AFTER_VERB = SPECIFIERS | {C.PREPOSITION, C.ADVERB, C.PRONOUN, C.TO}

ARTICLES = word_table("a an the no every")
LIKE_SUFFIXES = word_table("covered dusted colored coloured sized shaped lined capped filled themed haired topped made")
OBJECT_PRONOUNS = word_table("it him them us me")
ADJECTIVE_ENDINGS = ("ous", "ful", "less", "able", "ish", "ive", "onic", "etic", "atic", "istic")
MAX_REMEMBERED_WORDS = 200_000  # a stream of unheard-of words must not fill the memory


class _Classes(dict[str, WordClass]):
    """The lexicon; a word it does not hold is judged by its ending, once."""

    def __missing__(self, word: str) -> WordClass:
        if len(self) > MAX_REMEMBERED_WORDS:
            self.clear()
            self.update(lexicon())
        self[word] = found = self._class_alone(word)
        return found

    def _class_alone(self, word: str) -> WordClass:
        if word in ("'s", "'"):
            return C.POSSESSIVE
        if not any(map(str.isalnum, word)):
            return C.MARK
        if word[0].isdigit():
            return C.NUMBER
        last = word.rsplit("-", 1)[-1]
        if last != word:
            found = self[last]
            if found in (C.ADJECTIVE, C.PARTICIPLE, C.PREPOSITION, C.MATERIAL) or last.endswith("ed"):
                return C.ADJECTIVE
            return found if found in (C.NOUN, C.PLURAL, C.S_FORM, C.UNKNOWN_S, C.ING) else C.NOUN
        if word.endswith("ing") and len(word) > 5:
            return C.ING
        if word.endswith("ed") and len(word) > 4:
            return C.PARTICIPLE
        if word.endswith("ly") and len(word) > 4:
            return C.ADVERB
        if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):
            return C.UNKNOWN_S
        return C.MATERIAL if word.endswith(ADJECTIVE_ENDINGS) and len(word) > 5 else C.NOUN


CLASSES = _Classes(lexicon())
_BASES = frozenset(word for word, found in CLASSES.items() if found is C.BASE) | {
    *("be", "have", "do", "cover", "board", "hit", "cut", "set", "spread", "split", "face", "pet", "box", "water")
}


def classify(words: Sequence[str]) -> list[WordClass]:
    """One class a word."""
    reading = _Reading(words)
    while reading.place < len(words):
        if words[reading.place] not in FIRST_OF_SEVERAL or not reading.take_compound():
            reading.take_word()
    return reading.found


class _Reading:
    """A caption while it is read: the classes found so far, and what its clause has had."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.found = [CLASSES[word] for word in words]
        self.raw = [*self.found, C.MARK, C.MARK]  # as the tables have it, for looking ahead
        self.place = 0
        self.before, self.after, self.word = C.MARK, C.MARK, ""
        self.finite = False  # whether the clause has its verb
        self.joined = False  # whether "and" came since the clause began
        self.relative = self.outside = False  # within "who …", and whether the clause around that has its verb
        self.begun = self.several = False  # whether its first noun came, and names several

    @property
    def previous(self) -> str:
        """The word before; only for rules that know there is one."""
        return self.words[self.place - 1]

    @property
    def second(self) -> WordClass:
        """The class of the word after the next, as the tables have it."""
        return self.raw[self.place + 2]

    def earlier(self, classes: frozenset[WordClass]) -> bool:
        """Whether the word before the previous one is of these classes."""
        return self.place > 1 and self.found[self.place - 2] in classes

    def take_compound(self) -> bool:
        """Classify "in front of" as one, if it begins here."""
        place, length = self.place, compound_length(self.words, self.place)
        follows = self.raw[place + length]
        if not length:
            return False
        if length == 2 and not (follows in PHRASE_START and (follows is not C.BASE or self.words[place + 1] != "to")):
            return False
        self.found[place : place + length] = [C.PREPOSITION] + [C.FIXED] * (length - 1)
        self.place += length
        self.before = C.PREPOSITION
        return True

    def take_word(self) -> None:
        place = self.place
        self.word, self.after = self.words[place], self.raw[place + 1]
        found = self.found[place]
        if found in RULES:
            found = RULES[found](self)
        if found is C.FINITE:
            self.finite = True
        if self.finite and self.relative:  # it has its verb; the clause around it may still want one
            self.finite, self.relative = self.outside, False
        elif not self.begun and found in NOUNS and self.after not in NOUNS:
            self.begun, self.several = True, found is C.PLURAL or self.word in tables.NOUN_COLLECTIVES
        self.found[place] = self.before = found
        self.place += 1

    def begin_clause(self) -> None:
        self.finite = self.several = self.begun = False


def does(noun: str) -> bool:
    """Whether what the noun names can act."""
    return singular(noun) in tables.ANIMATE


def counted(reading: _Reading) -> bool:
    """ "two tube rafts": after a number there is no end but a plural."""
    at = reading.place - 1
    while at >= 0 and reading.found[at] in (C.NOUN, C.ADJECTIVE):
        at -= 1
    return at >= 0 and reading.found[at] is C.NUMBER


def _noun(at: _Reading) -> WordClass:
    if at.before is C.TO_INFINITIVE:
        return C.INFINITIVE  # "to cover"
    names_verb = at.word in tables.BEFORE_ING and at.after in (C.ING, C.S_FORM) and at.second not in NOUNS
    if names_verb and at.before in (C.AUXILIARY, C.NOUN, C.PLURAL, C.DOING):
        return C.NAMES_VERB
    if at.before is C.PLURAL and not at.finite and at.after in (C.PREPOSITION, C.ADVERB, C.TO) and does(at.previous):
        return C.FINITE  # a verb no table holds: "two dogs tussle in the snow"
    return C.NOUN


def _determiner(at: _Reading) -> WordClass:
    alone = at.after not in NOMINAL and at.after not in SPECIFIERS and at.after is not C.ADVERB
    if (alone and at.word not in ARTICLES) or (at.word == "another" and at.after is C.S_FORM):
        return C.PRONOUN
    return C.DETERMINER


def _other(at: _Reading) -> WordClass:
    each = at.before is C.DETERMINER and at.previous == "each"
    return C.ADJECTIVE if at.after in NOMINAL and not each else C.PRONOUN


def _adjective(at: _Reading) -> WordClass:
    before, after = at.before, at.after
    if at.word in tables.COLOUR_WORDS and before in _BEFORE_WORN and stands_alone(at):
        return C.NOUN
    if after not in NOMINAL and after not in BREAKS and after is not C.ADVERB:
        if before in _BEFORE_BARE or (before is C.ADJECTIVE and at.earlier(SPECIFIERS)):
            return C.NOUN  # "in black", "the other"
    elif before is C.PREPOSITION and after in BREAKS and at.second not in DESCRIBING:
        return C.NOUN
    return C.ADJECTIVE


_BEFORE_WORN = frozenset({C.PREPOSITION, C.CONJUNCTION, C.DOING, C.FINITE})
_BEFORE_BARE = SPECIFIERS | {C.NUMBER, C.PREPOSITION}


def stands_alone(reading: _Reading) -> bool:
    """Whether a colour is all somebody wears: "in black and white jumps over", but not "in red riding gear"."""
    words, raw = reading.words, reading.raw
    at = reading.place - 1
    while at > 0 and (raw[at] is C.ADJECTIVE or raw[at] in BREAKS):
        at -= 1
    if words[at] not in ("in", "wearing", "wears"):
        return False
    at = reading.place + 1
    while raw[at] in BREAKS or (raw[at] is C.ADJECTIVE and words[at] in tables.COLOUR_WORDS):
        if raw[at] in BREAKS and raw[at + 1] is not C.ADJECTIVE:
            return True
        at += 1
    later = raw[at + 1] if at + 1 < len(raw) else C.MARK
    if raw[at] in (C.PAST, C.AUXILIARY):
        return True
    if raw[at] in (C.ING, C.PARTICIPLE):
        return later not in (C.NOUN, C.PLURAL, C.MATERIAL, C.ADJECTIVE, C.UNKNOWN_S)
    return raw[at] in (C.S_FORM, C.BASE) and later in SPECIFIERS | {C.PREPOSITION, C.ADVERB, C.TO}


def _material(at: _Reading) -> WordClass:
    if at.before is C.PREPOSITION and at.place > 1 and at.words[at.place - 2] == "made":
        return C.NOUN
    joined = at.after is C.CONJUNCTION and at.second in DESCRIBING
    return C.ADJECTIVE if at.before is C.AUXILIARY or joined or at.after in MAY_BE_NOUN else C.NOUN


def _preposition(at: _Reading) -> WordClass:
    described = at.after is C.PARTICIPLE and at.second in NOUNS
    if at.word in tables.PARTICLES and at.after not in PHRASE_START and not described:
        return C.ADVERB
    return C.PREPOSITION


def _number(at: _Reading) -> WordClass:
    if at.word == "one" and (at.before is C.DETERMINER or at.after is C.S_FORM):
        return C.PRONOUN
    alone = at.after not in NOMINAL and at.after not in SPECIFIERS
    return C.PRONOUN if alone and at.word not in ("only", "just", "about") else C.NUMBER


def _ing(at: _Reading) -> WordClass:
    """running: before a noun a name or a description, else what somebody does."""
    before, after, named = at.before, at.after, at.after in NAMES
    if before is C.ADVERB and at.earlier(SPECIFIERS) and named:  # "a fast running dog"
        return C.ADJECTIVE
    if before in SPECIFIERS or before is C.NUMBER or (before is C.ADJECTIVE and at.place > 1):
        if named or after in (C.ADJECTIVE, C.ING):
            return C.ADJECTIVE
        if before in SPECIFIERS:
            return C.NOUN
        if before is C.ADJECTIVE and at.earlier(_DESCRIBED):  # "a large gathering"
            return C.NOUN
        ends = after in (C.PREPOSITION, C.MARK, C.COMMA, C.CONJUNCTION)
        return C.NOUN if ends and before is C.ADJECTIVE and at.word in tables.NAMING_ING else C.DOING
    if before in (C.PREPOSITION, C.DOING, C.FINITE) and named and at.word in tables.NAMING_ING:
        return C.ADJECTIVE
    if before is C.NOUN and at.previous in tables.BEFORE_ING and at.word in tables.NAMING_ING and named:
        return C.NOUN
    return C.DOING


_DESCRIBED = SPECIFIERS | {C.ADJECTIVE, C.NUMBER}


def _is_verb_in_s(at: _Reading) -> bool:
    """jumps, waves: what one does, or things."""
    before, after = at.before, at.after
    if at.finite:
        return before in BREAKS and after in AFTER_VERB and (before is C.CONJUNCTION or after is not C.PREPOSITION)
    if before is C.NOUN:
        return not counted(at)
    if before is C.RELATIVE:
        return True
    if before is C.PLURAL:  # "a boy in shorts jumps", and the boys of careless writers
        return after in SPECIFIERS or (C.NOUN in at.found[: at.place - 1] and after not in MAY_BE_NOUN)
    if before is C.COMMA:
        return C.NOUN in at.found[: at.place] and after in AFTER_VERB
    if before in (C.ADVERB, C.PRONOUN):
        return after not in NOUNS
    return before is C.CONJUNCTION and after in SPECIFIERS


def _unknown_s(at: _Reading) -> WordClass:
    verb = at.before in (C.NOUN, C.RELATIVE) and not at.finite
    if verb and at.after not in SPECIFIERS and at.after not in (C.PRONOUN, C.NUMBER):
        verb = at.after in (C.PREPOSITION, C.TO, C.ADVERB) and does(at.previous)
    return C.FINITE if verb and not counted(at) else C.PLURAL


def _base(at: _Reading) -> WordClass:
    """run, play: after "to" and a modal, or what several do."""
    before, after = at.before, at.after
    if before is C.TO_INFINITIVE or (before is C.AUXILIARY and at.previous not in tables.BE):
        return C.INFINITIVE
    only_verb = at.word in tables.ONLY_VERBS
    if at.finite:
        return C.FINITE if before is C.CONJUNCTION and after in _AFTER_JOINED_VERB and only_verb else C.NOUN
    if (
        before is C.PLURAL
        or (before is C.PRONOUN and at.previous not in OBJECT_PRONOUNS)
        or (before is C.RELATIVE and at.earlier(_SEVERAL))
        or (before is C.NOUN and at.previous in tables.NOUN_COLLECTIVES)
    ):
        return C.FINITE
    if before in (C.NOUN, C.COMMA, C.ADVERB) and (at.several or at.joined) and only_verb:
        return C.FINITE if after in AFTER_VERB or after is C.ING else C.NOUN
    return C.NOUN


_AFTER_JOINED_VERB = SPECIFIERS | {C.PREPOSITION, C.ADVERB, C.MARK, C.COMMA}
_SEVERAL = frozenset({C.PLURAL, C.COMMA})


def _participle(at: _Reading) -> WordClass:
    """covered: after "is" and after a noun what is done to it, before a noun what it is like."""
    before, after = at.before, at.after
    if before is C.TO_INFINITIVE:
        return C.INFINITIVE
    if before is C.AUXILIARY:
        return C.DONE
    if after in MAY_BE_NOUN and before in _BEFORE_DESCRIPTION:
        return C.ADJECTIVE
    if before is C.NOUN and after in MAY_BE_NOUN and at.word in LIKE_SUFFIXES:  # "a snow covered hill"
        return C.ADJECTIVE
    if before in SPECIFIERS:
        return C.ADJECTIVE if after in BREAKS or after in (C.ING, C.PARTICIPLE) else C.NOUN
    if before in _MAY_DO and not at.finite and (after in SPECIFIERS or after in (C.PRONOUN, C.ADVERB)):
        return C.FINITE
    return C.DONE


_BEFORE_DESCRIPTION = SPECIFIERS | BREAKS | {
    *(C.NUMBER, C.ADJECTIVE, C.PREPOSITION, C.ADVERB, C.DOING, C.FINITE, C.DONE, C.MARK)
}  # fmt: skip
_MAY_DO = NOUNS | {C.PRONOUN, C.RELATIVE}


def _auxiliary(at: _Reading) -> WordClass:
    if at.word == "'s" and not (at.before in (C.PRONOUN, C.RELATIVE, C.THERE) or at.after in (C.ING, C.DETERMINER)):
        return C.POSSESSIVE
    if at.word == "having":
        return C.DOING
    if at.word in tables.HAVE and at.after in _OWNED:
        return C.FINITE
    if at.word in tables.MODALS and at.word[:2] == "do" and at.after not in (C.BASE, C.ADVERB):
        return C.FINITE
    at.finite = at.finite or at.word not in ("be", "been", "being")
    return C.AUXILIARY


_OWNED = (PHRASE_START - {C.ING, C.OTHER}) | {C.PREPOSITION, C.ADVERB}


def _relative(at: _Reading) -> WordClass:
    if at.word == "that":
        follows_noun = at.before in NOUNS or at.before is C.COMMA
        if not follows_noun or at.after in NOUNS or at.after is C.ADJECTIVE:
            return C.DETERMINER
    at.outside, at.relative = at.finite, True
    at.finite = at.joined = False
    at.several = at.before is C.PLURAL
    at.begun = True
    return C.RELATIVE


def _subordinator(at: _Reading) -> WordClass:
    if at.word == "as" and not clause_follows(at):
        return C.PREPOSITION
    if at.word == "so" and at.after in (C.ADJECTIVE, C.ADVERB):
        return C.ADVERB
    at.begin_clause()
    at.joined = False
    return C.SUBORDINATOR


def clause_follows(reading: _Reading) -> bool:
    """Whether a verb comes after "as" before the sentence turns elsewhere."""
    words, raw = reading.words, reading.raw
    for n in range(reading.place + 1, len(words)):
        found, before = raw[n], raw[n - 1]
        if found in (C.AUXILIARY, C.PAST):
            return True
        if found in (C.S_FORM, C.UNKNOWN_S) and before in (C.NOUN, C.PRONOUN, C.PLURAL):
            return True
        several = before in (C.PLURAL, C.PRONOUN) or (before is C.NOUN and words[n - 1] in tables.NOUN_COLLECTIVES)
        if found is C.BASE and several:
            return True
        if found in (C.SUBORDINATOR, C.RELATIVE, C.MARK):
            return False
    return False


def _owner(at: _Reading) -> WordClass:
    return C.PRONOUN if at.word == "her" and at.after not in NOMINAL else C.OWNER


def _to(at: _Reading) -> WordClass:
    if at.after is C.BASE:
        return C.TO_INFINITIVE
    if at.after in (C.NOUN, C.PARTICIPLE) and at.words[at.place + 1] in _BASES:
        return C.TO_INFINITIVE
    return C.PREPOSITION if at.after in PHRASE_START else C.ADVERB


def _break(at: _Reading) -> WordClass:
    at.joined = True
    if at.after in SPECIFIERS and at.finite:  # perhaps a new clause
        at.begin_clause()
    return at.found[at.place]


RULES: dict[WordClass, Callable[[_Reading], WordClass]] = {
    C.NOUN: _noun,
    C.DETERMINER: _determiner,
    C.OTHER: _other,
    C.ADJECTIVE: _adjective,
    C.MATERIAL: _material,
    C.PREPOSITION: _preposition,
    C.NUMBER: _number,
    C.ING: _ing,
    C.S_FORM: lambda at: C.FINITE if _is_verb_in_s(at) else C.PLURAL,
    C.UNKNOWN_S: _unknown_s,
    C.BASE: _base,
    C.PARTICIPLE: _participle,
    C.PAST: lambda at: C.NOUN if at.before in SPECIFIERS or at.before is C.ADJECTIVE else C.FINITE,
    C.AUXILIARY: _auxiliary,
    C.RELATIVE: _relative,
    C.SUBORDINATOR: _subordinator,
    C.OWNER: _owner,
    C.TO: _to,
    C.THERE: lambda at: C.THERE if at.after is C.AUXILIARY else C.ADVERB,
    C.CONJUNCTION: _break,
    C.COMMA: _break,
}
