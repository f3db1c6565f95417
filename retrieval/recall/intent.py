"""What a question asks for beyond its words: causes, how things are now, or all that happened.

Of a long text the first MAX_CHARACTERS are read: a question is short, and what asks is in it.
"""

from __future__ import annotations

import re

MAX_CHARACTERS = 4_000

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
    r"|现在|目前|現在|今[はのも]|今でも|지금|현재|अभी|الآن|حاليا",
    re.IGNORECASE,
)
# Where those words say nothing of the present: "now that he is gone", "until now", "still life",
# a word that only opens a sentence ("Now, what did he say?"), and a past that is asked about ("was
# she still there?").
_NOT_NOW = re.compile(
    r"\bnow (?:that|and (?:then|again))\b"
    r"|^\s*(?:(?:so|and|but|well|okay|ok|right),? )?now,? "
    r"(?=(?:who|what|when|where|which|why|how|tell|let|did|was|were)\b)"
    r"|\b(?:until|till|up to|before|from|by|just|every|for) now\b"
    r"|\bstill (?:lifes?|images?|photos?|frames?|water|wines?|another|more|born)\b"
    r"|\b(?:sit|sat|stand|stood|hold|held|keep|kept|lie|lay|better|worse) still\b"
    r"|\b(?:was|were|wasn't|weren't|did|didn't|had|used to)\b[^.?!]{0,60}?\bstill\b"
    r"|\bcurrent (?:accounts?|of|flows?)\b"
    r"|\b(?:alternating|direct|electric|electrical|ocean|river|rip|leakage) current\b"
    r"|\bjetzt,? (?:wo|da|nachdem)\b|\b(?:bis|ab|von) jetzt\b|\bmaintenant qu(?:e\b|')"
    r"|\b(?:jusqu'à|d[eè]s) maintenant\b|\bahora que\b|\b(?:hasta|desde) ahora\b"
    r"|\b(?:ora|adesso) che\b|\bfino (?:a adesso|ad ora)\b|\bagora que\b|\baté agora\b"
    r"|\bnu (?:dat|när|att)\b|\b(?:tot|fram till|hittills) nu\b|\b(?:до сих пор|теперь,? когда)\b",
    re.IGNORECASE,
)
# Somebody tells of themselves: what they say is so now is no question about it.
_TELLS = re.compile(
    r"\b(?:i|i['’]m|i['’]ve|i['’]d|i['’]ll|we|we['’]re|we['’]ve|ich|wir|je|j['’]\w+|nous|yo|nosotros|io|noi|eu"
    r"|nós|ik|wij|jag|vi|я|мы|ben|biz)\b",
    re.IGNORECASE,
)
_STATED = (".", "!", "。", "！", "…")
_SENTENCE = re.compile(r"[^.!?\n;。！？]{1,1000}[.!?\n;。！？]?")
_ASKING = re.compile(
    r"\s*(?:[¿]|(?:and |but |so |or )?(?:who|whom|whose|what|when|where|which|why|how|is|are|am|do"
    r"|does|did|has|have|can|could|will|would|should|tell|show|list|find|remind|wer|wen|wem|was|wann"
    r"|wo|wie|warum|welche\w{0,2}|qui|que|quoi|quand|où|comment|quel\w{0,3}|est-ce|quién|qué|cuándo"
    r"|dónde|cómo|cuál|chi|cosa|quando|dove|come|quale|quem|onde|como|qual|wat|wanneer|waar|hoe|vem|vad"
    r"|när|var|hur|кто|что|когда|где|как|kim|nerede|nasıl)\b)",
    re.IGNORECASE,
)
_HAPPENED = re.compile(
    r"\b(what(?:'s| is| was| has been| else)? (?:happen\w*|occurr\w*|going on|went on|new|up)\b"
    r"|what (?:did|have|has|had) .{1,60}? (?:do|done|been doing|been up to|get up to)\b"
    r"(?! (?:with|about|to|for)\b)"
    r"|what (?:was|were|am|is|are) \w+(?: \w+){0,2} (?:doing|up to)\b"
    r"|was (?:ist|war|hat sich|geschah|passierte)\b.{0,40}?\b(?:passiert|geschehen|los|ereignet)\b"
    r"|was (?:hat|habe|haben|hast|hatte|hatten) .{1,60}? (?:gemacht|getan|unternommen)\b"
    r"|qu'est-ce qui s'est passé|que s'est-il passé|qu'(?:a|ont|avons|ai) .{0,60}?\bfait\b"
    r"|qué (?:pasó|ha pasado|ocurrió|sucedió|hizo|hicieron|hicimos|hice)\b"
    r"|(?:cosa|che cosa) (?:è successo|è accaduto|ha fatto|hanno fatto|abbiamo fatto|ho fatto)\b"
    r"|o que (?:aconteceu|houve|fez|fizeram|fizemos)\b|o que .{1,60}? (?:fez|fizeram)\b"
    r"|wat is er (?:.{0,40}? )?gebeurd\b|wat gebeurde\b"
    r"|wat (?:heeft|hebben|heb) .{1,60}? gedaan\b|wat (?:deed|deden) \w+"
    r"|vad (?:hände|har hänt|gjorde|har .{1,60}? gjort)\b"
    r"|ne (?:oldu|yaptı\w*|yaptık|yaptım))"
    r"|что (?:случилось|произошло|делал\w*|сделал\w*|было)|что .{1,60}? (?:делал|сделал)\w*"
    r"|发生了?(?:什么|啥)|做了?(?:什么|啥)|何が(?:あった|起きた|起こった)|何を(?:した|しました|していた)"
    r"|무슨 일이|무엇을 (?:했|하였)|뭐 ?(?:했|하였)|क्या (?:हुआ|किया)|ماذا (?:حدث|حصل|فعل|جرى)",
    re.IGNORECASE,
)


def asks_why(question: str) -> bool:
    """The question wants causes: links towards them count for more."""
    return _WHY.search(question[:MAX_CHARACTERS]) is not None


_PAST = re.compile(
    r"\b(did|was|were|wasn't|weren't|didn't|had|used to|ever|before|earlier|previous\w*|former\w*"
    r"|once|past|history|originally|back then|ago|last|old|war|waren|früher|ehemals|vorher|damals"
    r"|hatte|lebte|avant|autrefois|ancien\w*|était|étaient|avait|antes|anterior\w*|era|eran|había"
    r"|prima|aveva|antigamente|tinha|eerder|vroeger|woonde|tidigare|förut|раньше|был[аио]?|прежде"
    r"|önce|eskiden)\b|以前|之前|曾|过去|過去|昔|かつて|ていた|でした|ました|예전|이전|पहले|था|थी|थे|كان|سابق",
    re.IGNORECASE,
)


def asks_about_the_past(question: str) -> bool:
    """The question may want what is over by now."""
    return _PAST.search(question[:MAX_CHARACTERS]) is not None


def asks_about_now(question: str) -> bool:
    """The question wants the present state: what is over by now counts for less.

    Of a text that also states something ("I work at Acme now. Where did I work before?") only what
    asks is read; of one that only states ("I have a dog now", "He is still away."), nothing.
    """
    asked = _NOT_NOW.sub(" ", _asking(question[:MAX_CHARACTERS]))
    return _NOW.search(asked) is not None


def _asking(text: str) -> str:
    """The sentences of a text that ask; where none does, those that are only words to look for
    ("her job now")."""
    sentences = _SENTENCE.findall(text)
    asking = [s for s in sentences if s.endswith(("?", "？")) or _ASKING.match(s)]
    return " ".join(asking or (s for s in sentences if not _states(s)))


def _states(sentence: str) -> bool:
    return sentence.rstrip().endswith(_STATED) or _TELLS.search(sentence) is not None


def asks_what_happened(question: str) -> bool:
    """The question wants whatever happened, or whatever somebody did: its words name no content,
    so its time and the people in it decide."""
    return _HAPPENED.search(question[:MAX_CHARACTERS]) is not None
