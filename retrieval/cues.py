"""What a question asks for beyond its words: causes, or how things are now."""

from __future__ import annotations

import re

_WHY = re.compile(
    r"\b(why|how come|what (?:caused|causes|led to|made)|reasons?\b.{0,20}\bfor|because of what"
    r"|warum|weshalb|wieso|pourquoi|por qué|por que|perché|waarom|varför"
    r"|почему|зачем|neden|niçin)\b"
    r"|为什么|为何|為什麼|なぜ|どうして|왜|क्यों|لماذا",
    re.IGNORECASE,
)
_NOW = re.compile(
    r"\b(now|currently|current|right now|at the moment|at present|presently|nowadays|these days"
    r"|still|jetzt|derzeit|aktuell|momentan|maintenant|actuellement|ahora|actualmente|adesso"
    r"|attualmente|agora|atualmente|nu|tegenwoordig|сейчас|теперь|şimdi|şu an)\b"
    r"|现在|目前|現在|今は|지금|현재|अभी|الآن|حاليا",
    re.IGNORECASE,
)


def asks_why(question: str) -> bool:
    """The question wants causes: links towards them count for more."""
    return _WHY.search(question) is not None


def asks_about_now(question: str) -> bool:
    """The question wants the present state: what is over by now counts for less."""
    return _NOW.search(question) is not None
