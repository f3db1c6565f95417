"""A few dozen short texts of many kinds, on which value ranges of a model are measured.

What matters is variety: prose, questions, chat, code, numbers, several scripts. On other texts
(Wikipedia paragraphs, dialogues) the ranges found here do as well as ranges found on those.
"""

from __future__ import annotations

from models.local.kernels.pack import Pack, pack
from models.local.text import TextEncoder

QUERIES = (
    "Where does Anna work now?",
    "what did the doctor say about my knee last week",
    "ok thanks!! see you tmrw :)",
    "Wann fährt der Zug nach München ab?",
)
DOCUMENTS = (
    "Anna moved from Leipzig to Porto in March 2021 to work as a nurse at the children's hospital.",
    "Revenue fell by 4.2 percent in the third quarter, mostly because of higher freight costs.",
    'def parse(line): return [int(part) for part in line.split(",") if part]',
    "I'm vegetarian, but I do eat fish once in a while, especially at my parents' on the coast.",
    "Der Zug nach München fährt heute wegen einer Störung erst um 17:45 Uhr ab.",
    "The enzyme binds two calcium ions (Ca2+); EDTA inhibits it at concentrations above 5 mM.",
    "The doctor told her to rest the knee for two weeks and to take ibuprofen if it hurts.",
    "La réunion avec l'équipe de Marie est reportée au 12 juin à 9 h 30.",
    "In 1905 Einstein published four papers; the second explained Brownian motion.",
    "She never liked the red sofa, so they sold it and bought two armchairs instead.",
    "Error 503: upstream connect failure at https://example.com/v2/items?id=7, next try in 30 s.",
    "¿Dónde compraste los zapatos azules que llevabas en la boda de Carlos?",
    "The band released its third album in 2014 and toured Japan, Brazil and South Africa.",
    "Heat the oven to 180 degrees, mix flour, sugar and butter, and bake for forty minutes.",
    "Who owns the blue bicycle in the garage?",
    "The user prefers short answers, metric units and dark mode; never call before ten.",
    "Москва является столицей России и крупнейшим городом страны.",
    "The contract ends on 31 December unless a party objects in writing three months before.",
    "彼は毎朝六時に起きて、公園を走ります。",
    "lol no way, he really said that? at the wedding??",
)


def pairs(encoder: TextEncoder) -> Pack:
    """Every query with every document: some three thousand tokens."""
    return pack([pair for query in QUERIES for pair in encoder.pairs(query, DOCUMENTS)])
