"""The Snowball stemmer "english": words and the stems that the original gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.language.stem import stem

STEMS = """
consigned:consign consistency:consist consolation:consol conspiracies:conspiraci knavish:knavish knocking:knock
knightly:knight kneeled:kneel running:run runs:run runner:runner hopping:hop hoping:hope hops:hop ties:tie cries:cri
dies:die gas:gas this:this gaps:gap kiwis:kiwi agreed:agre feed:feed luxuriated:luxuri happy:happi by:by say:say
toys:toy playing:play skies:sky dying:die news:news inning:inning outing:outing generously:generous communal:communal
communism:communism arsenal:arsenal rationally:ration relational:relat conditional:condit digitizer:digit
vietnamization:vietnam operator:oper feudalism:feudal hopefulness:hope sensibility:sensibl analogously:analog
hopeful:hope goodness:good formative:format formalize:formal electricity:electr adoption:adopt replacement:replac
adjustment:adjust bowdlerize:bowdler rate:rate roll:roll controlling:control bed:bed shed:shed embed:emb
's:'s someone's:someon boys':boy youth:youth yellow:yellow sky:sky a:a
"""


@pytest.mark.parametrize("pair", STEMS.split())
def test_a_word_has_the_stem_of_the_original(pair: str) -> None:
    word, _, expected = pair.partition(":")
    assert stem(word) == expected


@given(st.text(alphabet="abcdefghilmnoprstuvyz'", max_size=12))
def test_a_stem_is_no_longer_than_its_word_and_in_lower_case(word: str) -> None:
    found = stem(word)
    assert len(found) <= len(word) + 1
    assert found == found.lower()
