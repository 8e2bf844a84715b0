"""Word tables: adjectives by kind, the closed classes and verbs by which the rule parser reads a caption, base forms.

The adjectives are the attributes a region detector learns, chosen by reading the words that stand before the last noun
of Flickr30k Entities phrases (Flickr8k's training photos), most frequent first. Words that tell nothing a photo shows
("nearby", "same", "beautiful") were left out. The other tables were read off the words of Flickr8k's training captions.
What is nothing else is a noun.
"""

from __future__ import annotations

from enum import Enum
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import cast


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


IRREGULAR_PLURALS = {
    "men": "man", "women": "woman", "children": "child", "people": "person", "peoples": "person", "persons": "person",
    "couple": "person", "couples": "person", "clothing": "clothes",
    "feet": "foot", "teeth": "tooth", "geese": "goose", "mice": "mouse", "oxen": "ox", "leaves": "leaf",
    "wolves": "wolf", "knives": "knife", "scarves": "scarf", "headscarves": "headscarf", "loaves": "loaf",
    "shelves": "shelf", "calves": "calf", "hooves": "hoof", "halves": "half", "wives": "wife", "shoes": "shoe",
    "horseshoes": "horseshoe", "snowshoes": "snowshoe", "canoes": "canoe", "toes": "toe", "hoes": "hoe",
    "cookies": "cookie", "movies": "movie", "hoodies": "hoodie", "floaties": "floatie", "rookies": "rookie",
    "zombies": "zombie", "collies": "collie", "goalies": "goalie", "birdies": "birdie", "veggies": "veggie",
    "buses": "bus", "busses": "bus", "gases": "gas", "huskies": "husky", "axes": "axe", "ties": "tie", "pies": "pie",
    "skis": "ski", "horses": "horse", "houses": "house", "noses": "nose", "roses": "rose", "vases": "vase",
    "hoses": "hose", "nurses": "nurse", "purses": "purse", "bases": "base", "cases": "case", "suitcases": "suitcase",
    "blouses": "blouse", "bruises": "bruise", "greenhouses": "greenhouse", "briefcases": "briefcase",
    "lenses": "lens", "aches": "ache", "caches": "cache", "pitches": "pitch", "policemen": "policeman",
    "firemen": "fireman", "waves": "wave", "gloves": "glove", "sleeves": "sleeve", "caves": "cave", "olives": "olive",
    "sleds": "sled", "seadoos": "seadoo", "mustaches": "mustache", "moustaches": "mustache", "headaches": "headache",
    "tee-shirt": "t-shirt", "tshirt": "t-shirt", "tshirts": "t-shirt", "t-shirts": "t-shirt", "grey": "gray",
    "cell-phone": "cellphone", "sun-glasses": "sunglasses", "ladie": "lady", "fireworks": "firework",
}  # fmt: skip
ONE_FORM = word_table(  # the same for one and many, never singular, or an -s that is no plural
    """
    glasses sunglasses goggles jeans pants shorts trousers scissors stairs clothes headphones overalls pajamas tights
    binoculars trunks bleachers canvas lens gas christmas rapids woods series species stilts khakis leggings suspenders
    sweatpants earphones earbuds remains rollerblades dreadlocks pigtails chopsticks underpants texas
    """
)


class WordClass(str, Enum):
    """What a word is; as text, one letter."""

    __hash__ = str.__hash__  # quicker than that of an enumeration: classes are looked up for every word of a caption

    # As the tables have it
    DETERMINER = "d"
    OWNER = "v"  # his
    NUMBER = "q"
    ADJECTIVE = "a"
    MATERIAL = "m"  # adjective, or material noun: wood
    NOUN = "n"
    PLURAL = "N"
    PRONOUN = "p"
    ING = "g"
    PARTICIPLE = "e"
    PAST = "f"
    S_FORM = "s"  # verb in -s, or plural noun
    UNKNOWN_S = "S"  # in -s, and in no table
    BASE = "b"  # verb, or noun
    AUXILIARY = "x"
    OTHER = "o"
    PREPOSITION = "i"
    CONJUNCTION = "c"  # and, or
    SUBORDINATOR = "u"  # while, as
    RELATIVE = "w"  # who, that
    ADVERB = "r"
    TO = "t"
    THERE = "h"
    POSSESSIVE = "k"  # 's
    COMMA = ","
    MARK = "."  # any other mark
    # Once its neighbours are known
    FINITE = "V"
    DOING = "G"
    DONE = "E"
    INFINITIVE = "I"
    FIXED = "F"  # goes on with the preposition before it: "in *front of*"
    NAMES_VERB = "K"  # "*rock* climbing"
    TO_INFINITIVE = "T"


# The members by name: Python 3.11 looks a member of an enumeration up through a descriptor, ten times as long.
C = cast("type[WordClass]", SimpleNamespace(**WordClass.__members__))

DETERMINERS = word_table("a an the this these those some any no every each another")
OWNERS = word_table("his her its their my your our whose")
NUMBERS = word_table(
    """
    one two three four five six seven eight nine ten eleven twelve twenty several many few both all dozen half
    multiple numerous various more most only just about
    """
)
PRONOUNS = word_table(
    """
    he him she it they them we us you i me himself herself itself themselves someone something somebody anyone
    anything everyone everybody everything nothing nobody none what others ones theirs hers
    """
)
PREPOSITIONS = word_table(
    """
    in on with at from by for of near under over behind beside above below between through into onto across along
    against around inside outside within without atop beneath underneath among amongst amidst amid beyond during toward
    towards past upon like up down off out throughout alongside before after until about despite besides aboard via than
    nearby opposite per since
    """
)
# A preposition where a noun phrase follows, an adverb where none does ("climbs up a hill", "looks up").
PARTICLES = word_table(
    """
    up down off out over around through in on by along across inside outside past behind below above nearby before after
    about under within aboard opposite underneath near
    """
)
_COMPOUNDS = """
in front of, on top of, next to, close to, left of, right of, to the left of, to the right of, on the left of,
on the right of, on the left side of, on the right side of, out of, because of, away from, nearer than,
farther away than, further away than, inside of, outside of, in between, up against, off of, on to, in to, along with,
together with, up to, down to, over to, due to, ahead of, instead of, in back of, in the middle of, in the midst of,
by means of, such as, along side, along side of, across from, far from, out from, down from, adjacent to, from behind,
from under, from above
"""
COMPOUND_PREPOSITIONS = tuple(" ".join(phrase.split()) for phrase in _COMPOUNDS.split(","))  # each is one relation
SUBORDINATORS = word_table("while as because when where although though if so whilst whereas once")
RELATIVES = word_table("that which who whom")
CONJUNCTIONS = word_table("and or but & nor plus")
BE = word_table("is are was were be been being am 's 're")
HAVE = word_table("has have had having")
MODALS = word_table("can could will would may might must shall should do does did ca wo")
ADVERBS = word_table(
    """
    not n't very too quite also together away back outdoors indoors forward forwards backwards sideways overhead
    upside apart ahead there here then now again still almost already away barefoot hard fast
    downhill uphill upwards downwards upward downward alone else ever even once twice home not-so underwater offshore
    happily quickly slowly aside asleep awake intently well abroad upstairs downstairs round anyway yet instead maybe
    perhaps never always often airborne inline
    """
)
NOUNS_IN_ING = word_table(
    """
    building clothing ring king string something nothing anything everything evening morning wedding ceiling railing
    thing earring sling spring wing painting outcropping awning lightning pudding siding sibling stocking dumpling
    lettering scaffolding outing duckling gosling sapling sterling darling flooring paneling decking piping rigging
    """
)
# -ing words that make a noun's name: "swimming trunks", "in hiking boots"; elsewhere they are what somebody does.
NAMING_ING = word_table(
    """
    swimming bathing wading hiking riding running fishing parking shopping dining living sleeping skating racing
    climbing diving boxing wrestling walking rocking cutting washing drinking training playing camping skiing
    snowboarding surfing baking cooking dressing waiting bowling cheerleading shooting diving dancing wrapping knitting
    jogging biking cycling kayaking rowing skateboarding writing drawing roping steering hunting rolling folding
    """
)
BEFORE_ING = word_table(  # "is rock climbing", "an ice skating rink"
    """
    ice rock roller mountain bull motorcycle motocross snow skate in-line inline bmx hay water sword wind kite jet para
    bungee cliff scuba sky horseback white-water whitewater break belly tap street wake dirt bike hula hang trick
    """
)
WORN = word_table(  # what "in" and "with" say of the person before them
    """
    shirt jacket dress hat pants shorts jeans coat sweater suit uniform helmet cap clothes clothing outfit costume
    glasses sunglasses vest top skirt swimsuit bikini wetsuit hoodie t-shirt tie boot shoe glove goggles trunks gear
    attire robe gown apron jersey sweatshirt blouse scarf bandanna backpack collar leash hair beard mohawk ponytail
    bathing-suit pajamas overalls parka mask headband tights leotard sunhat headscarf mustache tattoo
    """
)
NOUN_COLLECTIVES = word_table(
    "group couple crowd team family pair band bunch crew class trio audience herd flock pack lot"
)
STATES_OF_THINGS = word_table(  # -ing words that are said of the thing just named, not of who does something
    "overlooking surrounding containing showing featuring saying leading lining covering growing displaying reading"
)
PERCEIVERS = word_table("we you i one")  # "we see a dog" speaks of the dog
ANIMATE = word_table(
    """
    man woman boy girl child kid person people baby toddler lady guy player dog puppy cat kitten horse bird duck cow
    couple group family crowd team soldier police policeman officer worker skier snowboarder skateboarder biker
    bicyclist cyclist surfer climber hiker runner swimmer skater rider driver dancer singer musician performer artist
    athlete cheerleader fan spectator friend mother father mom dad son daughter brother sister parent teenager adult
    youth male female bride groom fisherman fireman firefighter vendor chef cook waiter student teacher clown greyhound
    retriever poodle terrier shepherd labrador lab collie bulldog dalmatian husky hound pup animal sheep goat bull
    monkey bear elephant fish goose swan seagull pigeon deer rabbit squirrel camel tiger lion racer wrestler boxer
    golfer pitcher batter catcher goalie referee cowboy infant youngster gentleman pedestrian motorcyclist skydiver
    diver kayaker wakeboarder snowmobiler gymnast jogger onlooker tourist passenger robot android pony member lad
    human boxer pitbull dachshund corgi beagle chihuahua brunette blond redhead teen toddler twin teammate opponent
    """
)

VERB_STEMS = """
run play stand jump sit hold walk ride look climb smile carry swim do pose watch race take chase lay perform hang try
talk make fly eat go swing dance leap slide fight splash skateboard get drink wait catch overlook ski bathe lean pull
laugh fish throw lie surf read shop come fall bite park set hike skate kick drive use hug push blow shake smoke dive
stick sleep snowboard stare wrestle cross point kiss attempt face wave chew wade show rest paint roll dig grind shoot
paddle give lick float hit reach balance sing move put compete prepare land write spin pass cover bark kneel enjoy
crash rollerblade turn touch kayak help train sniff surround work bike practice fetch row jog bounce pick follow gather
leave pet march retrieve speak break crouch tackle scale relax raise raft listen bend spray toss camp feed pour sled cry
draw lead wakeboard flip start grab board travel trot cast shovel advertise glide approach descend live fold say growl
cook crawl open pretend hide box fence pitch sport clean sell light cut share interact ask stretch bound cheer fire yell
drop juggle emerge burn ascend create embrace include lift check beg begin cycle sail color operate line bear herd speed
peek buck yawn steer carve bat dangle shine suck contain squat participate drag tug soak soar bowl block challenge
observe teach drill tumble step spar gnaw flow canoe water ride head reflect dribble rub melt hand clap squirt twist
strike pop dunk meet display guide celebrate examine grin wrap attack navigate rush gallop aim assist place snow rappel
dine lounge defend socialize admire struggle poke smell bare twirl howl scream scratch fill converse collide guard chat
hover pounce inspect wash cling sign seem appear wear want keep let see hear feel stay stop cool see shove trail travel
handle attend await sweep hurdle sprint slip exit enter arrive join play-fight wipe pack pile lunge plunge pedal pause
perch pursue chase protrude gaze glare frolic romp stroll stomp flap fasten hop hurl huddle hunt lasso launch lick
lounge maneuver mount mow nap nibble nuzzle peer photograph pry push-up rake recline scoot score scramble search sew
shade shave ship shout sip sketch skid skip slap sled slice snap snarl sneak snorkel spot squeeze squint stack steal
strain stroke strum study tear tend test tie tow track trudge type vault visit wag wander wear weave wheel whisper
wield wind yank zip adjust apply arrange assemble bring build buy call care change chop close collect consist
construct cuddle cruise curl decorate demonstrate depart direct discuss drift duck end engage entertain exchange
exercise explore extend feature find finish fix flash flex focus form freeze frown gesture grasp greet grow haul
instruct investigate kneel learn lecture load lock make mark measure milk model nurse offer own peel perform plant play
plow pray present press produce prop pump punch put question rappel receive record release remove repair rescue rise
roam rock roast rope sand scale scrub seat serve set shear sharpen shuffle sidewalk sleigh sprawl spread sprinkle squish
stir sunbathe support swat sway swerve swing teeter toast tour trick trim try tube tuck turn unload view wait walk warm
waterski weld whip win wonder work worship wrap dress surround suspend outstretch seat attach drench bundle position
"""
# Past forms that only a verb has, and participles; of the rest, past and participle look alike (-ed).
PASTS = word_table(
    """
    ran sat stood rode threw caught wore held swam sang flew fell went came got took made did drove blew shook bit ate
    drank began gave wrote spoke broke froze sprang led fed slid swung hung spun stuck struck lay leapt leaped knelt
    built bought brought taught fought sought left lost met sent shot slept told thought won dug saw leaned looked
    """
)
PARTICIPLES = word_table(
    """
    attached bitten blown bound broken brought built carried caught chosen clad covered cut done drawn dressed
    driven eaten fallen fed filled found frozen given gone grown held hit hung known lain led left lit made ridden
    seated seen sent set sewn shaken shot shown split spread stolen strewn struck stuck sunk surrounded swept
    taken thrown tied topped torn worn woven written
    """
)
ONLY_VERBS = word_table(  # base forms that are seldom nouns, whatever stands before them
    """
    sit hold wear carry eat lie throw go come get make take give bring put pose perform watch follow chase sing swim
    wade kneel lean look stand walk run play jump leap climb smile laugh gather wait try enjoy listen talk ride hike
    rest pull push fly dance jog wrestle fight compete converse relax prepare
    """
)


def forms(stem: str) -> tuple[list[str], list[str], list[str]]:
    """The -s, -ing and -ed forms of a verb; where a last consonant may be doubled, both spellings."""
    if stem[-1] == "y" and stem[-2] not in "aeiou":
        return [stem[:-1] + "ies"], [stem + "ing"], [stem[:-1] + "ied"]
    third = stem + ("es" if stem.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")
    if stem.endswith("ie"):
        return [third], [stem[:-2] + "ying"], [stem + "d"]
    if stem[-1] == "e" and not stem.endswith(("ee", "oe", "ye")):
        return [third], [stem[:-1] + "ing"], [stem + "d"]
    roots = [stem, stem + stem[-1]] if stem[-1] not in "aeiouwxy" and stem[-2:-1] in "aeiou" else [stem]
    return [third], [r + "ing" for r in roots], [r + "ed" for r in roots]


def lexicon() -> dict[str, WordClass]:
    """Every word of the tables with its class; later tables win."""
    table: dict[str, WordClass] = {}
    for stem in VERB_STEMS.split():
        third, present, past = forms(stem)
        table[stem] = C.BASE
        table.update(dict.fromkeys(third, C.S_FORM) | dict.fromkeys(present, C.ING) | dict.fromkeys(past, C.PARTICIPLE))
    table.update(dict.fromkeys(PASTS, C.PAST) | dict.fromkeys(PARTICIPLES, C.PARTICIPLE))
    adjectives = ADJECTIVES | {w for w, other in SPELLINGS.items() if other in ADJECTIVES} | MORE_ADJECTIVES
    for word in adjectives:
        doing = word.endswith("ing")
        table[word] = C.ING if doing else C.PARTICIPLE if table.get(word) is C.PARTICIPLE else C.ADJECTIVE
    table.update(dict.fromkeys(BEFORE_NOUN_ONLY - COLOUR_WORDS, C.MATERIAL))
    for words, kind in (
        (IRREGULAR_PLURALS.keys() | ONE_FORM, C.PLURAL), (NOUNS_IN_ING, C.NOUN), (ADVERBS, C.ADVERB),
        (PREPOSITIONS, C.PREPOSITION), (NUMBERS, C.NUMBER), (PRONOUNS, C.PRONOUN), (DETERMINERS, C.DETERMINER),
        (OWNERS, C.OWNER), (SUBORDINATORS, C.SUBORDINATOR), (RELATIVES, C.RELATIVE), (CONJUNCTIONS, C.CONJUNCTION),
        (BE | HAVE | MODALS, C.AUXILIARY), ({"to"}, C.TO), ({"there"}, C.THERE), ({","}, C.COMMA),
        (NOT_WHAT_THEY_SEEM, C.NOUN),
    ):  # fmt: skip
        table.update(dict.fromkeys(words, kind))
    table.update({
        "cloth": C.MATERIAL, "family": C.NOUN, "butterfly": C.NOUN, "lily": C.NOUN, "couple": C.NOUN,
        "couples": C.PLURAL, "grey": C.ADJECTIVE, "blond": C.MATERIAL, "blonde": C.MATERIAL, "waves": C.S_FORM,
        "ties": C.S_FORM, "other": C.OTHER,
    })  # fmt: skip
    return table


MORE_ADJECTIVES = word_table(
    """
    crimson emerald cyan rosy ivory matte woven medium-sized cloth cute beautiful pretty lovely nice funny strange
    professional local various other same different opposite opposing fellow own left right main major special unusual
    clothed gray-colored red-and-white black-and-white hot cold warm cool fresh raw good bad great
    competitive outdoor indoor nearby far close next last first second third fourth final early late upper lower
    middle inner outer top bottom back side similar playful curious interesting amused serious focused concerned
    handicapped disabled deaf blind sick drunk weird scary ready able unable similarly identical elaborate simple
    attractive handsome gorgeous sexy ugly senior junior foreign ethnic arabic mexican hawaiian golden-brown afro
    """
)
NOT_WHAT_THEY_SEEM = word_table(  # nouns that the tables above take for something else
    """
    back front top bottom side middle hand water face park line board box bike bear fence snow ship ring block rock boat
    bowl bat path sand fire light track game sign wheel rope tube canoe camp pet model nurse guard tree home color
    colour cover stick point mark head duck number plant milk tie pack record end bench trick tour fan dress sport
    sports skis skateboard snowboard sidewalk sleigh train cast bound clothes
    """
)


@lru_cache(maxsize=1 << 14)
def singular(noun: str) -> str:
    """dogs → dog, children → child, glasses → glasses."""
    if noun in IRREGULAR_PLURALS:
        return IRREGULAR_PLURALS[noun]
    if noun in ONE_FORM or len(noun) < 4 or not noun.endswith("s") or noun.endswith(("ss", "us", "is", "'s")):
        return noun
    if noun.endswith("men"):
        return noun[:-2] + "an"
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("sses", "shes", "ches", "xes", "zzes", "oes")):
        return noun[:-2]
    return noun[:-1]


IRREGULAR_VERBS = (  # base form: past, participle
    {"begin": "began begun", "bite": "bit bitten", "blow": "blew blown", "break": "broke broken", "bind": "bound"}
    | {"bring": "brought", "build": "built", "buy": "bought", "catch": "caught", "choose": "chose chosen"}
    | {"come": "came", "dig": "dug", "do": "did done does", "draw": "drew drawn", "drink": "drank drunk"}
    | {"drive": "drove driven", "eat": "ate eaten", "fall": "fell fallen", "feed": "fed", "fight": "fought"}
    | {"find": "found", "fly": "flew flown", "freeze": "froze frozen", "get": "got gotten", "give": "gave given"}
    | {"go": "went gone goes", "grow": "grew grown", "hang": "hung", "hold": "held", "know": "knew known"}
    | {"kneel": "knelt", "lead": "led", "leap": "leapt", "leave": "left", "lie": "lay lain laying", "light": "lit"}
    | {"lose": "lost", "make": "made", "meet": "met", "ride": "rode ridden", "run": "ran", "say": "said"}
    | {"see": "saw seen", "seek": "sought", "send": "sent", "sew": "sewn", "shake": "shook shaken", "shoot": "shot"}
    | {"show": "shown", "sing": "sang sung", "sink": "sank sunk", "sit": "sat", "sleep": "slept", "slide": "slid"}
    | {"speak": "spoke spoken", "spin": "spun", "spring": "sprang sprung", "stand": "stood", "steal": "stole stolen"}
    | {"stick": "stuck", "strike": "struck", "sweep": "swept", "swim": "swam swum", "swing": "swung"}
    | {"take": "took taken", "teach": "taught", "tear": "tore torn", "tell": "told", "think": "thought"}
    | {"throw": "threw thrown", "wear": "wore worn", "weave": "wove woven", "win": "won", "write": "wrote written"}
)


def lemma(word: str, tag: str) -> str:
    """The base form of a word, by its part of speech (NOUN, VERB …) as parses give it."""
    if tag in ("NOUN", "PROPN"):
        return singular(word)
    if tag in ("VERB", "AUX"):
        return base_form(word)
    return SPELLINGS.get(word, word)


def base_form(word: str) -> str:
    """Of a verb; of a word that is no known form of one, the word."""
    return _bases().get(word, word)


@cache
def _bases() -> dict[str, str]:
    table: dict[str, str] = {}
    for base in sorted(VERB_STEMS.split(), key=len):
        for form in (form for kind in forms(base) for form in kind):
            table.setdefault(form, base)
    table.update({form: base for base, found in IRREGULAR_VERBS.items() for form in found.split()})
    return table | dict.fromkeys(BE, "be") | dict.fromkeys(HAVE, "have")
