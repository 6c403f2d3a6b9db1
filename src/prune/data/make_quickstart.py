"""Makes the prompts of the quickstart: ``python -m prune.data.make_quickstart > FILE``.

One task: a sentence that describes a product, from a list of facts; drawn from the hand-written pieces below.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .canonical import spell

COUNT, SEED = 360, 0
TASK = "Write one short sentence that describes this product to a customer."


@dataclass(frozen=True)
class Kind:
    """One kind of product and what may be said about it."""

    name: str
    category: str
    prices: tuple[int, int]  #: euros, lowest and highest
    colours: Sequence[str]
    features: Sequence[str]


def _kind(name: str, category: str, prices: tuple[int, int], colours: str, features: str) -> Kind:
    return Kind(name, category, prices, _pieces(colours), _pieces(features))


def _pieces(text: str) -> list[str]:
    return text.split(", ")


KINDS = (
    _kind(
        "desk lamp", "home", (19, 79), "white, black, brushed steel, sage green",
        "three brightness levels, USB charging port, folding arm, warm and cold light, touch switch, "
        "heavy metal base, sleep timer",
    ),
    _kind(
        "hiking backpack", "outdoor", (49, 160), "green, dark blue, grey, orange",
        "rain cover, two bottle pockets, padded straps, laptop sleeve, ventilated back, 30 litre volume,"
        " light aluminium frame",
    ),
    _kind(
        "coffee machine", "kitchen", (39, 240), "black, silver, cream, red",
        "24 hour timer, glass jug, automatic switch-off, removable water tank, milk frother, permanent "
        "filter, quiet grinder",
    ),
    _kind(
        "wool blanket", "home", (45, 140), "grey, mustard yellow, navy, natural white",
        "machine washable, reversible pattern, fringed edges, 130 by 200 cm, soft lambswool, woven in a "
        "small mill, linen gift bag",
    ),
    _kind(
        "wireless headphones", "electronics", (35, 280), "matt black, white, rose, midnight blue",
        "30 hours of battery life, noise cancelling, folding design, soft ear cushions, built-in "
        "microphone, fast charging, carrying case",
    ),
    _kind(
        "city bicycle", "sports", (320, 980), "cherry red, black, mint, pearl white",
        "seven gears, front basket, LED lights, steel frame, puncture-proof tyres, comfortable saddle, "
        "rear luggage rack",
    ),
    _kind(
        "running shoes", "sports", (55, 170), "blue and white, black, neon yellow, coral",
        "breathable mesh, reflective heel, cushioned sole, recycled laces, wide fit, only 240 grams, "
        "removable insole",
    ),
    _kind(
        "electric kettle", "kitchen", (22, 95), "stainless steel, white, black, pale blue",
        "1.7 litre volume, boils in three minutes, keeps water warm, limescale filter, cordless base, "
        "cool-touch handle, water level window",
    ),
    _kind(
        "camping tent", "outdoor", (89, 420), "forest green, sand, orange, light grey",
        "room for three people, waterproof floor, set up in ten minutes, two entrances, mosquito net, "
        "aluminium poles, small pack size",
    ),
    _kind(
        "office chair", "office", (99, 450), "black, grey, dark green, beige",
        "adjustable armrests, lumbar support, breathable back, quiet castors, height from 45 to 58 cm, "
        "tilting seat, padded headrest",
    ),
    _kind(
        "garden hose", "garden", (18, 75), "green, yellow, black, grey",
        "25 metres long, frost-proof, kink-free, brass connectors, spray gun with six settings, wall "
        "mount, drinking-water safe",
    ),
    _kind(
        "children's puzzle", "toys", (9, 35), "bright colours, pastel colours, natural wood, blue and green",
        "48 large pieces, animals of the forest, made of beech wood, for ages four and up, sturdy "
        "storage box, printed with plant-based ink, poster of the picture",
    ),
    _kind(
        "chef's knife", "kitchen", (29, 190), "walnut handle, black handle, olive wood handle, steel handle",
        "20 cm blade, forged in one piece, stays sharp for long, well balanced, full tang, blade guard, "
        "stainless carbon steel",
    ),
    _kind(
        "smart watch", "electronics", (69, 320), "black, silver, rose gold, dark green",
        "heart rate monitor, water-resistant to 50 metres, seven days of battery life, GPS, sleep "
        "tracking, exchangeable strap, bright display",
    ),
    _kind(
        "yoga mat", "sports", (19, 85), "purple, teal, charcoal, sand",
        "6 mm thick, non-slip surface, made of natural rubber, carrying strap, easy to clean, 183 by 61 "
        "cm, free of latex",
    ),
    _kind(
        "bookshelf", "home", (59, 390), "oak, white, walnut, black",
        "five shelves, solid wood, hidden wall bracket, assembled in 20 minutes, 180 cm high, adjustable"
        " shelf height, rounded corners",
    ),
    _kind(
        "travel mug", "kitchen", (14, 42), "black, sky blue, cream, copper",
        "keeps drinks hot for six hours, leak-proof lid, 400 ml volume, double steel wall, fits most cup"
        " holders, dishwasher safe, rubber base",
    ),
    _kind(
        "bluetooth speaker", "electronics", (25, 190), "black, red, turquoise, grey",
        "waterproof, twelve hours of battery life, deep bass, pairs with a second speaker, carrying "
        "loop, floats on water, USB-C charging",
    ),
    _kind(
        "hand cream", "beauty", (6, 28), "white tube, glass jar, green tin, pink tube",
        "almond oil, absorbs quickly, no perfume, for dry skin, made without animal testing, 75 ml, "
        "vitamin E",
    ),
    _kind(
        "dog bed", "pets", (24, 120), "brown, grey, navy, beige",
        "washable cover, memory foam, non-slip bottom, raised edge, for dogs up to 25 kg, "
        "water-repellent fabric, removable cushion",
    ),
)  # fmt: skip
MAKERS = _pieces(
    "Alder, Brightwell, Corvo, Dunmore, Eastbay, Fennwick, Greyling, Harlow, Isarno, Juniper, Kestrel, "
    "Lindqvist, Maplecroft, Nordby, Ostara, Pinehall, Quillon, Rowanberry, Solvang, Tamsin"
)
FOR = _pieces(
    "students, families, beginners, people who travel a lot, small flats, everyday use, weekend trips, "
    "gifts, busy parents, people who work from home"
)
PLACES = _pieces("Portugal, Denmark, Italy, Poland, Ireland, Spain, Finland, Austria")


def lines(count: int = COUNT, seed: int = SEED) -> Iterator[str]:
    """The lines of the prompts file, each with its line end; no two are equal."""
    chance, seen = random.Random(seed), set[str]()
    while len(seen) < count:
        kind = chance.choice(KINDS)
        prompt = _prompt(kind, chance)
        if prompt not in seen:
            seen.add(prompt)
            yield spell({"id": len(seen), "category": kind.category, "prompt": prompt}) + "\n"


def _prompt(kind: Kind, chance: random.Random) -> str:
    facts = [
        f"Product: {chance.choice(MAKERS)} {kind.name}",
        f"Colour: {chance.choice(kind.colours)}",
        f"Features: {', '.join(chance.sample(kind.features, chance.choice((4, 4, 5))))}",
        f"Made for: {chance.choice(FOR)}",
        f"Made in: {chance.choice(PLACES)}",
        f"Warranty: {chance.randint(2, 6)} years",
        f"Price: {chance.randint(*kind.prices)} euros",
    ]
    return "\n".join([TASK, "", *facts])


if __name__ == "__main__":
    import sys

    sys.stdout.writelines(lines())
