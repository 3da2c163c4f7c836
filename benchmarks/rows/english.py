"""Word problems in English, of the length and build of GSM8K's."""

import random

from benchmarks.rows.exercise import Exercise, pick

_STARTS = (
    "Al Bel Cor Da El Fen Gra Han Is Jo Kel Lu Mar Na Os Pe Quin Ro Sa Tam Ur Vi Wen Ya Zo".split()
)
_MIDDLES = ["", *"a e i o la ri no ma the vi da li ne ra so ti lo be".split()]
_ENDS = "n na ra s lia ria th ton sha d lle my nne rt ric ya bel do gar wyn".split()
_NAMES = [s + m + e for s in _STARTS for m in _MIDDLES for e in _ENDS]

STEMS = (
    "apple book pencil marble ticket cookie flower stamp shell candle button ribbon lantern bottle "
    "basket blanket brick carpet chair clock coin crayon cup curtain doll drum feather fish garden "
    "glove goose hammer hat helmet jar jacket kettle key kite ladder leaf lemon letter lock magnet "
    "map mask melon mirror muffin mug nail necklace needle notebook onion orange oyster paddle "
    "painting pan peach pear pearl pepper photo pie pillow pin pipe plate plum poster potato "
    "pumpkin puzzle quilt radio rope rug sandwich sausage scarf seed shirt shoe shovel skirt sock "
    "spoon statue sticker stone stool sweater table tent tile tomato towel toy tray tree trophy "
    "truck trumpet umbrella vase violin wagon wallet watch wheel whistle window wreath zipper"
).split()
_ADJECTIVES = (
    "red blue green small large wooden plastic silver golden old new broken striped heavy light "
    "fresh frozen painted leather cotton woollen round square cheap expensive rare spare antique "
    "hand-made second-hand polished rusty scented spicy sweet sour ripe empty half-full colourful "
    "plain fancy delicate sturdy portable folding glazed knitted embroidered carved inflatable"
).split()
_FORMS = (
    "box",
    "maker",
    "shop",
    "case",
    "work",
    "stand",
    "like",
    "ful",
    "proof",
    "holder",
    "-lover",
)
_COMPOUNDS = [stem + form for stem in STEMS for form in _FORMS]
_BRANDS = [a + b + c for a in _STARTS for b in ("", "nor", "wes", "mil") for c in STEMS]
_THINGS = [
    *(f"{s}s" for s in STEMS),
    *(f"{s}s" for s in _COMPOUNDS),
    *(f"{a} {s}s" for s in STEMS for a in _ADJECTIVES),
]
_PLACES = (
    "market school bakery library harbour workshop farm museum bookshop station theatre bazaar "
    "warehouse gym garage orchard hospital hotel playground campsite factory studio stadium zoo "
    "cafeteria laundry lighthouse mill nursery office pharmacy quarry restaurant sawmill vineyard"
).split()
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
_MONTHS = "January February March April May June July August September October November".split()
_VERBS = "buys collects sells packs orders finds makes borrows paints cleans counts repairs".split()
_REASONS = (
    "because the neighbours asked for them",
    "although the weather is terrible",
    "before anybody else arrives",
    "while a friend keeps the accounts",
    "hoping to save enough for a trip",
    "as part of a project that lasts all spring",
    "since the old supplier has closed",
    "without telling the rest of the family",
)


def _sum(left: int, sign: str, right: int) -> tuple[int, str]:
    """The result, and the sum with GSM8K's mark of a calculation."""
    made = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return made, f"{left}{sign}{right}=<<{left}{sign}{right}={made}>>{made}"


def exercise(draw: random.Random) -> Exercise:
    """A problem with two to four steps."""
    who, other = pick(draw, _NAMES), pick(draw, _NAMES)
    thing, place = pick(draw, _THINGS), pick(draw, _PLACES)
    day, month = draw.choice(_DAYS), draw.choice(_MONTHS)
    count, each, price = draw.randrange(2, 90), draw.randrange(2, 40), draw.randrange(2, 60)
    brand = pick(draw, _BRANDS).capitalize()
    question = [
        f"{who} {draw.choice(_VERBS)} {count} boxes of {thing} at the {place} on a {day}",
        f"in {month}, {draw.choice(_REASONS)}.",
        f"Each box from {brand} holds {each} {thing}, and every one of them is worth ${price}.",
    ]
    total, shown = _sum(count, "*", each)
    steps = [f"In all the boxes there are {shown} {thing}."]
    for _ in range(draw.randrange(0, 3)):
        some, sign = draw.randrange(1, 50), draw.choice("+-")
        sign = "+" if total <= some else sign
        verb = "brings" if sign == "+" else "takes away"
        question.append(f"Later {other} {verb} {some} of the {pick(draw, _ADJECTIVES)} ones.")
        total, shown = _sum(total, sign, some)
        steps.append(f"After {other} {verb} {some}, {who} has {shown} {thing}.")
    worth, shown = _sum(total, "*", price)
    question.append(f"How many dollars are the {thing} of {who} worth at the end?")
    last = f"At ${price} apiece they are worth ${shown} in total."
    bad = worth + draw.randrange(1, 99)
    shown = f"{total}*{price}=<<{total}*{price}={bad}>>{bad}"
    off = f"At ${price} apiece they are worth ${shown} in total"
    off += draw.choice((".", ", as everybody can see."))
    return Exercise(" ".join(question), (*steps, last), f"#### {worth}", off)
