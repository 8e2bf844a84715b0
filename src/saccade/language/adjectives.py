"""Words that say what a thing is like, by kind: the attributes a region detector learns, kept as small tables.

Chosen by reading the words that stand before the last noun of Flickr30k Entities phrases (Flickr8k's training photos),
most frequent first. Words that tell nothing a photo shows ("nearby", "same", "beautiful") were left out.
"""

from __future__ import annotations


def word_table(text: str) -> frozenset[str]:
    return frozenset(text.split())


COLOURS = """
black white red blue green yellow orange brown pink purple gray tan beige silver gold golden maroon turquoise teal
aqua khaki navy cream violet lavender magenta burgundy peach lime olive rust bronze copper reddish brownish yellowish
whitish blond brunette redheaded dark light bright pale neon colorful multicolored rainbow fluorescent
"""

SIZES = """
small little tiny miniature mini short low shallow narrow thin skinny slim lean slender large big huge giant enormous
massive gigantic tall high long deep wide thick broad heavy vast oversized medium steep
"""

AGES = """
young old older elderly younger teenage middle-aged newborn adult teen preteen aged ancient vintage antique modern new
"""

PEOPLE = """
male female bald balding bearded shirtless topless barefoot bare pregnant muscular tattooed curly-haired long-haired
short-haired dark-haired blond-haired red-haired brown-haired black-haired white-haired gray-haired curly braided shaved
pierced helmeted masked hooded uniformed costumed smiling laughing crying happy sad excited angry sleeping tired injured
bandaged blindfolded bespectacled mustached dreadlocked kneeling shirted
"""

UNSAID = """
asian african african-american indian japanese chinese oriental caucasian hispanic latino arab middle-eastern
native-american european american german french british irish scottish australian dark-skinned light-skinned homeless
naked nude fat chubby overweight
"""  # known, so that they are not taken for things; but no detector is taught to call people that

MATERIALS = """
wooden brick plastic metal stone leather rubber concrete cement denim straw wicker glass paper cardboard steel iron
wire marble cotton wool woolen knit knitted velvet lace silk satin tile tiled cobblestone gravel bamboo foam fur
flannel sequined beaded wood metallic chain-link hardwood log clay ceramic canvas mesh vinyl nylon aluminum fabric
thatched
"""

PATTERNS = """
striped plaid spotted checkered checked floral flowered flowery patterned polka-dot camouflage camo tie-dyed printed
painted decorated ornate reflective transparent clear see-through shiny patchwork tri-colored brindle speckled dotted
graffitied carpeted paved numbered embroidered feathered plain decorative
"""

STATES = """
wet dry dirty muddy dusty sandy snowy snow-covered snowcapped icy frozen grassy rocky leafy leafless wooded forested
mountainous hilly mossy cloudy foggy sunny rainy stormy calm choppy rough murky crowded busy empty full open closed
broken cracked rusty worn tattered torn ragged overturned fallen dead lush barren bumpy jagged curved sloped flat
round circular square rectangular arched pointy spiky spiked fuzzy fluffy furry shaggy hairy woolly scruffy floppy
stuffed inflatable inflated deflated folding fenced fenced-in enclosed gated covered lit lighted illuminated burning
flaming crashing breaking running jumping swimming standing sitting seated lying flying floating splashing falling
leaping leashed muzzled collared saddled parked moving spinning melting blurry blurred motorized electric mechanical
wheeled three-wheeled padded framed potted hanging rolling setting outstretched folded bent raised upturned tangled
cooked sliced baked airborne soft smooth tight loose sleeveless long-sleeved short-sleeved button-down formal fancy
protective athletic traditional military religious skimpy matching homemade toy fake artificial outdoor indoor rural
urban public residential tropical industrial underwater curvy winding elevated reclining lone single stray wild
flowering blooming bushy messy makeshift shaped soapy foamy bubbly watery overgrown lined tree-lined hind
front rear barking bucking galloping racing oncoming distant grazing crouching bouncing abandoned
"""

BEFORE_NOUN_ONLY = word_table(  # nouns too: an attribute before a noun, a thing of its own at the end
    """
    orange light gold silver rainbow cream glass paper wood brick stone metal concrete cement straw wire steel iron
    marble tile gravel fur canvas log toy adult teen male female blond brunette rust bronze copper peach lime olive
    wool lace silk foam mesh fabric cardboard clay plastic leather cobblestone rubber denim wicker hardwood bamboo
    velvet square latino asian
    """
)

SPELLINGS = {
    "grey": "gray", "blonde": "blond", "colourful": "colorful", "coloured": "colored", "multi-colored": "multicolored",
    "multicolor": "multicolored", "multi-coloured": "multicolored", "multicoloured": "multicolored",
    "elder": "elderly", "blonde-haired": "blond-haired", "red-headed": "red-haired", "redhead": "redheaded",
    "grey-haired": "gray-haired", "snow-capped": "snowcapped", "snow-covered": "snowy", "tricolored": "tri-colored",
    "tricolor": "tri-colored", "stripy": "striped", "stripped": "striped", "checkerboard": "checkered",
    "bigger": "big", "biggest": "big", "larger": "large", "largest": "large", "smaller": "small", "smallest": "small",
    "taller": "tall", "longer": "long", "shorter": "short", "darker": "dark", "lighter": "light", "balck": "black",
    "camo": "camouflage", "knitted": "knit", "aluminium": "aluminum",
    "bare-chested": "shirtless", "barechested": "shirtless", "shirt-less": "shirtless",
    "golden": "gold", "youn": "young", "whte": "white", "yello": "yellow", "littler": "little", "checked": "checkered",
    "polka-dotted": "polka-dot", "muddied": "muddy", "flowery": "floral", "flowered": "floral", "tiled": "tile",
    "sleeved": "long-sleeved", "woolen": "wool", "graffited": "graffitied", "grafitti": "graffitied",
}  # fmt: skip

COLOUR_WORDS = word_table(COLOURS)
SHADES = word_table("dark light bright pale neon")  # of a colour, where one follows: "light blue" is blue
ADJECTIVES = word_table(" ".join([COLOURS, SIZES, AGES, PEOPLE, MATERIALS, PATTERNS, STATES, UNSAID]))
UNSAID_WORDS = word_table(UNSAID)
