"""Short forms of given names, and other spellings of Slavic ones: where else to look for a bearer.

They only widen the search; whether two names are one person is for the evidence to say.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import permutations

_FORMS = """
abigail abby gail
albert al bert
alexander alex al sasha xander
alexandra alex sandra sasha
andrew andy drew
anthony tony
barbara barb babs
benjamin ben benny
catherine cathy cate kate katie kit
charles charlie chuck
christine chris chrissy tina
christopher chris kit topher
daniel dan danny
david dave davy
deborah deb debbie
donald don donnie
dorothy dot dotty
edward ed eddie ned ted teddy
eleanor ellie nell nora
elizabeth liz lizzie beth betsy betty eliza lisa bess
emily em emmy
eugene gene
frances fran frannie
francis frank
frederick fred freddie
gerald gerry jerry
gregory greg
harold hal harry
henry hank harry
isabella bella izzy
jacob jake
james jim jimmy jamie
jeffrey jeff
jennifer jen jenny
jessica jess jessie
john jack johnny
jonathan jon jonny
joseph joe joey
joshua josh
judith judy
katherine kathy kate katie kat kit
kenneth ken kenny
lawrence larry
leonard len lenny leo
louis lou
margaret maggie meg peggy marge greta
matthew matt
melissa mel missy
michael mike mick mickey mikey
nathaniel nate nathan
nicholas nick nicky
pamela pam
patricia pat patty tricia
patrick pat paddy
peter pete
philip phil
rebecca becca becky
richard rick ricky rich dick
robert rob robbie bob bobby bert
ronald ron ronnie
samantha sam sammy
samuel sam sammy
stephen steve stevie
steven steve stevie
susan sue susie suzy
theodore ted teddy theo
thomas tom tommy
timothy tim timmy
victoria vicky tori
vincent vince vinny
walter walt wally
william will willie bill billy liam
zachary zach zack
"""


_SPELLINGS = """
alexei alexey alexej aleksei aleksey
andrei andrey andrej andriy
dmitri dmitry dmitriy dmitrij
nikolai nikolay nikolaj
sergei sergey sergej
vladimir wladimir
yevgeny evgeny evgeni
yuri yury yuriy juri
"""
"""Names of another script: each is any other of its line."""


def _index() -> Mapping[str, Sequence[str]]:
    others: dict[str, set[str]] = defaultdict(set)
    for line in _FORMS.split("\n"):
        full, *short = line.split() or [""]
        for form in short:
            others[form].add(full)
            others[full].add(form)
    for line in _SPELLINGS.split("\n"):
        for one, other in permutations(line.split(), 2):
            others[one].add(other)
    return {name: tuple(sorted(forms)) for name, forms in others.items()}


_OTHERS = _index()


def are_forms(a: str, b: str) -> bool:
    """Is one of two lower-cased given names a short form or another spelling of the other?"""
    return b in _OTHERS.get(a, ())


def variants(name: str) -> tuple[str, ...]:
    """The name under the other forms of its first word, lower-cased; none for most names."""
    first, space, rest = name.lower().partition(" ")
    return tuple(f"{form}{space}{rest}" for form in _OTHERS.get(first, ()))
