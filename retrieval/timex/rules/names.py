"""Months, weekdays and seasons that are somebody's name: "Who is April dating?", "Theresa May".

Looked at before any rule runs: a word that stands where a name stands, and beside which nothing
makes it a time, is no time. In doubt a preposition, number or modifier decides for the time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from retrieval.timex.engine.grammar import OTHER, Context, Token, chars_of
from retrieval.timex.engine.recognition import everyday
from retrieval.timex.engine.tables import word_lists
from retrieval.timex.engine.text import WORDS, fold


def _kinds(names: str) -> frozenset[str]:
    return frozenset[str]().union(*map(chars_of, names.split()))


_MONTHS, _SEASONS = _kinds("MON"), _kinds("SEASON LONESEASON")
_NAMES = _MONTHS | _SEASONS | _kinds("DAY WDAY HOLIDAY")
_TIMELY_BEFORE = _kinds(
    "IN ON SINCE UNTIL FROM TO BETWEEN BEFORE AFTER MOD PAST COMING EARLY MID LATE NUM ORD YEAR "
    "EVERY STARTING LASTORD WITHIN ASOF ONWARD DASH SLASH LATERIN EARLIERIN PAFTER PBEFORE OF THE "
    "PRELATER"
)
# What makes even a short form that is a given name ("Jan") a month.
_SURELY_BEFORE = _kinds("IN SINCE UNTIL MOD EARLY MID LATE NUM ORD YEAR EVERY DASH SLASH BETWEEN")
_TIMELY_AFTER = _kinds(
    "NUM ORD YEAR MON MOD AGO LATER DASH SLASH TO UNTIL EARLY MID LATE PART LOC UMONTH"
)
_TOWARDS = _kinds("TO")
_NEAR, _FEASTS = _kinds("BEFORE AFTER SINCE"), _kinds("HOLIDAY")
_WEEKDAYS, _PARTS, _MODIFIERS = _kinds("DAY WDAY"), _kinds("PART"), _kinds("MOD")
_POSSESSIVE, _AND, _THE = _kinds("OF"), _kinds("AND OR"), _kinds("THE A THIS MY")
_DOT, _NUMBERS, _ORDINALS = _kinds("DOT"), _kinds("NUM ORD YEAR"), _kinds("ORD")
_ARTICLES = _kinds("A")
_CONNECTORS = _kinds("TO UNTIL DASH SLASH")
_GOES_ON = _kinds(
    "NUM ORD YEAR MON WEEKDAY SEASON LONESEASON HOLIDAY MOD EARLY MID LATE THE NOW REL DATE MD TO "
    "ON IN OF UNTIL FROM APOSTROPHE YEAROFF MONTHOFF"
)
_SHORT = frozenset({"jan"})
"""Short forms that are given names: a month only where a preposition or number says so."""

_ENDS = _kinds("STOP DOT CLOSE COLON")
_PERSONAL = (
    "(?:是谁|是哪里人|住在|住哪|的(?:电话|手机|邮箱|生日|妻子|老婆|丈夫|老公|妈妈|爸爸|父亲|母亲|儿子|女儿|"
    "爱好|公司|老板|微信|地址|女朋友|男朋友))"
)
"""What is said and asked of people, in Chinese."""

_TITLED = re.compile(
    fold(
        "さん|ちゃん|くん|君|様|先生|女士|小姐|同学"
        "| ?씨(?![가-힣]{2})|님|양(?= )|군(?= )|이(?:네|의|가|는|를|한테|랑)(?![가-힣])"
        "| नाम (?=का|की|के)| जी(?!\\w)| (?:hanım|bey)\\b"
        # 周一鸣: a surname that begins like a weekday, and what is asked of people
        "|[\u4e00-\u9fff](?<![早晚上下中夜午到至那这的会班课谁有是])" + _PERSONAL
    )
)
"""What stands behind a name, in languages that put it there."""

_SMALL = frozenset({"es", "fr", "it", "pt", "nl", "sv", "pl", "ru"})
"""Languages that write months and weekdays small: with a capital inside a sentence it is a name."""

_INFLECTED = frozenset({"pl", "ru"})
"""Languages that say by an ending whose something is."""


@dataclass(frozen=True, slots=True)
class _Clues:
    given: frozenset[str]
    verbs: frozenset[str]
    persons: frozenset[str]
    kin: frozenset[str]
    dated: frozenset[str]
    titles: frozenset[str]
    honorifics: frozenset[str] = frozenset()
    of: frozenset[str] = frozenset()
    family: frozenset[str] = frozenset()
    naming: frozenset[str] = frozenset()


@cache
def _clues() -> Mapping[str, _Clues]:
    return {
        language: _Clues(**{key: frozenset(fold(words).split()) for key, words in lists.items()})
        for language, lists in word_lists("names").items()
    }


def names(context: Context, folded: str, tokens: list[Token]) -> frozenset[int]:
    """Where the words start that could be times, and are somebody's name."""
    if not any(token.kind in _NAMES for token in tokens):
        return frozenset()
    known = frozenset(map(fold, context.settings.names))
    called = frozenset(
        token.start
        for token in tokens
        if known and token.kind in _NAMES and folded[token.start : token.end] in known
    )
    called |= frozenset(
        token.start
        for token in tokens
        if token.kind in _NAMES and _TITLED.match(folded, token.end) is not None
    )
    if context.language == "zh":
        called |= frozenset(
            token.start
            for token in tokens
            if token.kind in _MONTHS and _is_chinese_name(folded, token)
        )
    clues = _clues().get(context.language)
    if clues is None:
        return called & may_be_names(tokens)
    look = _Look(context, folded, tokens, clues)
    return frozenset(
        token.start for at, token in enumerate(tokens) if token.kind in _NAMES and look.is_name(at)
    ) | (called & may_be_names(tokens))


_OWNED = re.compile(_PERSONAL)
_RELATED = re.compile(
    "的(?:妻子|老婆|丈夫|老公|妈妈|爸爸|父亲|母亲|儿子|女儿|哥哥|弟弟|姐姐|妹妹|女朋友|男朋友|女友|男友|猫|狗)"
)
_SURNAMES = frozenset(
    "王李张刘陈杨黄赵吴徐孙马朱胡郭林罗郑梁谢宋唐许韩冯邓曹彭肖田董袁潘蒋蔡杜叶苏魏吕丁沈姚卢姜崔谭陆汪范"
    "廖贾邹孟熊秦邱尹薛闫雷侯陶黎贺顾郝龚邵钱戴莫汤"
)


def _is_chinese_name(folded: str, token: Token) -> bool:
    """七月的妈妈: whose relative it is; 陈九月: behind a surname, and asked about as people are."""
    if _RELATED.match(folded, token.end) is not None:
        return True
    led = token.start > 0 and folded[token.start - 1] in _SURNAMES
    return led and _OWNED.match(folded, token.end) is not None


def may_be_names(tokens: list[Token]) -> frozenset[int]:
    """Where words start that are times only if nobody is called so: nothing beside them tells."""
    return frozenset(
        token.start
        for at, token in enumerate(tokens)
        if token.kind in _NAMES
        and _kind_beside(tokens, at, -1) not in _TIMELY_BEFORE
        and _kind_beside(tokens, at, 1) not in _TIMELY_AFTER
    )


def _kind_beside(tokens: list[Token], at: int, step: int) -> str:
    """The kind of the next token on one side; behind the dot of a short form or an ordinal, that
    of a number."""
    kinds = [
        tokens[place].kind if 0 <= place < len(tokens) else ""
        for place in (at + step, at + 2 * step)
    ]
    if kinds[0] in _DOT and kinds[1] in _NUMBERS:
        return kinds[1]
    if step > 0 and kinds[0] in _ARTICLES:
        return OTHER  # Dutch "Heeft Mei een broer?": no first of May
    if step > 0 and kinds[0] in _CONNECTORS and kinds[1] not in _GOES_ON:
        return OTHER  # Spanish "Julio a mi hermana", "Mei-Ling": no range
    return kinds[1] if kinds[0] in _THE and kinds[1] in _ORDINALS else kinds[0]


def without(tokens: list[Token], places: Collection[int]) -> list[Token]:
    """The tokens; those that start at these places say nothing of time."""
    if not places:
        return tokens
    return [
        Token(OTHER, None, token.start, token.end) if token.start in places else token
        for token in tokens
    ]


class _Look:
    """What stands around one word of a text."""

    def __init__(self, context: Context, folded: str, tokens: list[Token], clues: _Clues) -> None:
        self.context, self.folded, self.tokens, self.clues = context, folded, tokens, clues
        places = [m.start() for m in WORDS.finditer(folded)]
        capitals = sum(map(context.is_capital, places))
        self.cased = len(places) < 3 or capitals < 0.85 * len(places)
        """Whether capitals say anything: in a headline they do not."""

    def token(self, at: int) -> Token | None:
        return self.tokens[at] if 0 <= at < len(self.tokens) else None

    def word(self, at: int) -> str:
        token = self.token(at)
        return "" if token is None else self.folded[token.start : token.end]

    def kind(self, at: int) -> str:
        token = self.token(at)
        return "" if token is None else token.kind

    def opens(self, at: int) -> bool:
        """Whether the sentence begins here."""
        return at == 0 or self.kind(at - 1) in _ENDS

    def ends(self, at: int) -> bool:
        """Whether the sentence ends before this place."""
        return at >= len(self.tokens) or self.kind(at) in _ENDS

    def capital(self, at: int) -> bool:
        token = self.token(at)
        return token is not None and self.cased and self.context.is_capital(token.start)

    def proper(self, at: int) -> bool:
        """A word with a capital that is neither everyday nor a time: a name, or part of one."""
        return (
            self.kind(at) == OTHER
            and self.capital(at)
            and self.word(at) not in everyday(self.context.language)
            and len(self.word(at)) > 1
        )

    def is_name(self, at: int) -> bool:
        word = self.word(at)
        before, after = (_kind_beside(self.tokens, at, step) for step in (-1, 1))
        given = word in self.clues.given
        month = given and self.tokens[at].kind in _MONTHS
        if self._in_a_title(at) or self._is_possession(at) or self._is_addressed(at):
            return True
        if self._is_said_to_be_called(at):
            return True
        if self.context.language == "hi":
            return given and self._is_hindi_name(at, before)
        if self.context.language == "ar":
            return given and self.word(at - 1) in self.clues.kin and after not in _TIMELY_AFTER
        if word == "mars" and not self.capital(at):
            return False  # the month, where the planet has a capital
        if self.kind(at) in _MONTHS and self._is_first_name(at):
            return True
        if self._is_first_name(at - 1) or self._is_a_family(at):
            return True
        if " " in word or after in _TIMELY_AFTER:
            return before not in _TIMELY_BEFORE and self._has_surname(at)
        if month and after not in _CONNECTORS and self._belongs(at, before):
            return True
        small = given and self.context.language in _SMALL
        if month and self.word(at - 1) in self.clues.persons:
            return self.word(at + 1) not in self.clues.dated
        if before in _TIMELY_BEFORE:
            if small and before in _TOWARDS and self._is_object(at):
                return True
            if before in _POSSESSIVE and self.context.language in _SMALL:
                owned = self.proper(at - 2) or self.word(at - 2) in self.clues.persons
                owned = owned and not self.opens(at - 2)
                return self.capital(at) and (owned or self._has_surname(at))
            if before in _SURELY_BEFORE or not month:
                return False
            if word in _SHORT and before not in _POSSESSIVE | _THE | _NEAR and self._ends_there(at):
                return True  # "a letter for Jan"
            return self._told_of(at) or (before not in _NEAR and self._has_surname(at))
        return (
            (word in _SHORT and month)
            or self._has_surname(at)
            or self._has_first_name(at)
            or self._is_possessor(at)
            or self._is_in_a_clause(at)
            or (small and self.capital(at) and not self.opens(at))
            or self._has_a_title(at)
            or (given and (month or self._asks_who(at)) and self._is_person(at))
        )

    def _in_a_title(self, at: int) -> bool:
        """ "The song Blue Monday", "the Sunday Times", "Monday Night Football"."""
        if not self.capital(at):
            return False
        first = at
        while first > 1 and at - first < 3 and self.proper(first - 1):
            first -= 1
        if self.word(first - 1) in self.clues.titles:
            return True
        if self.context.language != "en" or self.tokens[at].kind not in _WEEKDAYS:
            return False
        part = self.kind(at + 1) in _PARTS and self.capital(at + 1)
        if part:
            return self.proper(at + 2) and self._beside(at + 1, at + 2)
        article = self.kind(at - 1) in _THE and self.kind(at - 1) not in _MODIFIERS
        return article and self.proper(at + 1) and self._beside(at, at + 1)

    def _ends_there(self, at: int) -> bool:
        """Whether the sentence ends behind a short form, and its dot ends not only that."""
        return self.ends(at + 1) and self.kind(at + 2) not in _TIMELY_AFTER

    def _told_of(self, at: int) -> bool:
        """ "Before April joined Acme": a clause, whose subject it is."""
        return (
            self.kind(at - 1) in _NEAR
            and self.kind(at + 1) == OTHER
            and self.word(at + 1) not in everyday(self.context.language) | self.clues.dated
        )

    def _has_surname(self, at: int) -> bool:
        if not (self.capital(at) and self.proper(at + 1) and self._beside(at, at + 1)):
            return False
        if self.context.language == "de":
            return self.word(at) in self.clues.given and self.kind(at - 1) == OTHER
        return self.tokens[at].kind in _MONTHS or not self.opens(at)

    def _has_first_name(self, at: int) -> bool:
        if not (self.capital(at) and self.proper(at - 1) and self._beside(at - 1, at)):
            return False
        if self.context.language == "de" or self.opens(at - 1):
            return False
        if self.word(at + 1) in self.clues.dated:
            return False
        return self.tokens[at].kind in _MONTHS or self.word(at - 2) in self.clues.verbs

    def _beside(self, first: int, second: int) -> bool:
        return self.tokens[second].start - self.tokens[first].end <= 1

    def _has_a_title(self, at: int) -> bool:
        """Polish "pani Środa": behind what stands before a person's name."""
        small = self.context.language in _SMALL and self.tokens[at].kind not in _FEASTS
        return small and self.capital(at) and self.word(at - 1) in self.clues.persons

    def _is_first_name(self, at: int) -> bool:
        """ "Jan Mai", "Julio Mayo": a first name before a surname that is a month, too."""
        surnames = _MONTHS | (_WEEKDAYS if self.context.language in _SMALL else frozenset())
        if self.kind(at + 1) not in surnames or not self.capital(at):
            return False
        word, german = self.word(at), self.context.language == "de"
        if word not in _SHORT and (german or word not in self.clues.given):
            return False
        apart = not self._beside(at, at + 1) or not self.capital(at + 1)
        return not apart and _kind_beside(self.tokens, at + 1, 1) not in _TIMELY_AFTER

    def _is_addressed(self, at: int) -> bool:
        """ "Mr. Sunday", "Frau Mai": behind what stands before a surname."""
        back = at - 2 if self.kind(at - 1) in _DOT else at - 1
        after = _kind_beside(self.tokens, at, 1)
        return self.word(back) in self.clues.honorifics and after not in _NUMBERS

    def _is_said_to_be_called(self, at: int) -> bool:
        """ "Die Katze heißt Montag", "Pies wabi się Piątek"."""
        reflexive = self.word(at - 1) in ("sie", "si", "se")
        verb = self.word(at - 2 if reflexive else at - 1)
        return verb in self.clues.naming and self.capital(at) and self.ends(at + 1)

    def _is_object(self, at: int) -> bool:
        """Spanish "¿Quién llamó a Julio?": a person, where no time goes before it."""
        ranged = self.kind(at - 2) in _GOES_ON - _kinds("TO ON IN OF THE")
        return self.capital(at) and self.context.language == "es" and not ranged

    def _is_hindi_name(self, at: int, before: str) -> bool:
        """ "रवि की कार": a short form of a weekday, without what makes it one."""
        link, then = self.word(at + 1), self.kind(at + 2)
        return (
            before not in _TIMELY_BEFORE
            and link not in self.clues.dated
            and self.kind(at + 1) not in _TIMELY_AFTER
            and not (link in self.clues.kin and then in _PARTS)
        )

    def _is_possession(self, at: int) -> bool:
        """ "What is Robinson's Friday about?", but not "How was Anna's Friday?"."""
        owned = self.word(at - 1) == "'s" and self.proper(at - 2) and self.capital(at)
        given = self.word(at) in self.clues.given and self.tokens[at].kind in _WEEKDAYS
        return (
            owned
            and given
            and self.word(0) != "how"
            and self.kind(at + 1) in _ENDS | {OTHER}
            and (self.word(at + 1) not in self.clues.dated)
        )

    def _is_possessor(self, at: int) -> bool:
        """ "April's sister", but not "April's sales"; Turkish "Eylül'ün annesi"."""
        if self.context.language == "tr":
            return self.word(at + 2).startswith(tuple(self.clues.kin))  # endings tell the case
        return self.word(at + 1) == "'s" and self.word(at + 2) in self.clues.kin

    def _belongs(self, at: int, before: str) -> bool:
        """What only a person has, and whose it is: "the name of April's cat", "der Hund von
        August"."""
        if not self.capital(at):
            return False
        if self.context.language in _INFLECTED:
            return self.word(at - 1) in self.clues.kin
        linked = before in _POSSESSIVE or self.word(at - 1) in self.clues.of
        if self.context.language == "en":
            return linked and self._is_possessor(at)
        return linked and self.word(at - 2) in self.clues.kin

    def _is_a_family(self, at: int) -> bool:
        """ "The March sisters"."""
        led = self.kind(at - 1) in _THE and self.kind(at - 1) not in _MODIFIERS
        month = self.tokens[at].kind in _MONTHS
        family = self.capital(at) and self.word(at + 1) in self.clues.family
        return led and month and family and self.word(at + 2) not in self.clues.dated

    def _is_in_a_clause(self, at: int) -> bool:
        """ "If April picks up the kids": a clause, whose subject it is."""
        led = self.word(at - 1) in ("if", "that", "because", "whether", "when", "while")
        after = self.word(at + 1)
        return (
            led
            and self.context.language == "en"
            and self.capital(at)
            and self.word(at) in self.clues.given
            and self.kind(at + 1) == OTHER
            and after not in self.clues.dated
            and (after not in everyday("en") or after in self.clues.verbs)
        )

    def _asks_who(self, at: int) -> bool:
        return self.capital(at) and self.word(at - 2) in ("who", "whom") and self.ends(at + 1)

    def _is_person(self, at: int) -> bool:
        """The subject of a verb, the object of what is done to people, or one of two names."""
        before, after = self.word(at - 1), self.word(at + 1)
        follows = self.kind(at + 1) == OTHER and after not in self.clues.dated
        if self.context.language == "tr":
            return self.opens(at) and after in self.clues.verbs
        if before in self.clues.verbs:
            asks = self.context.language != "en" or self.word(at - 2) in ("who", "where", "whom")
            if follows or (self.ends(at + 1) and asks) or self.kind(at + 1) in _THE:
                return True
        if self.opens(at) and follows:
            return after not in self.clues.verbs or self.context.language != "en"
        joined = self.kind(at - 1) in _AND and self.proper(at - 2)
        return joined or (self.kind(at + 1) in _AND and self.proper(at + 2))
