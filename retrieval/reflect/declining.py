"""Whether a text says that nothing is known, in the languages that answers come in."""

from __future__ import annotations

import unicodedata

import regex

_PHRASES = (
    # English
    r"\b(?:i|we) (?:do not|don'?t|did not|didn'?t) (?:really |currently "
    r"|actually )?(?:know|(?:have|find|see)"
    r" (?:any |enough |sufficient )?(?:\w+ ){0,2}(?:information|details|data|records?"
    r"|memor|knowledge|context"
    r"|mention|evidence))",
    r"(?:\b(?:i|we) (?:have|had|found|find|see)|\bthere (?:is|are|was|were)|\bthere's"
    r"|(?:memor\w+|records?|facts|bank|context) (?:\w+ ){0,3}(?:contains?|holds?|has|have|shows?))"
    r" (?:no|not any|not enough|insufficient|nothing)\b"
    r"(?: (?:\w+ ){0,3}(?:information|details|data|record|mention|memor|evidence|facts?"
    r"|indication|note"
    r"|about|on|regarding))?",
    r"^\W*no (?:\w+ ){0,2}(?:information|details|data|records?|mention|memories|evidence|facts)\b",
    r"\b(?:i|we) (?:cannot|can'?t|could not|couldn'?t|am unable to|am not able to|are unable to)"
    r" (?:\w+ )?(?:answer|determine|find|tell|say|confirm|provide|know)",
    r"(?:is|are|was|were) (?:not|un)\s?(?:mentioned|known|recorded|stated|specified|documented)\b",
    r"(?:memor\w+|facts?|records?|nothing)(?: \w+){0,4} (?:do(?:es)? not|don'?t|doesn'?t)"
    r" (?:mention|say|state|contain|specify|tell|cover|include|answer|support)",
    r"nothing (?:\w+ ){0,4}(?:is known|was found|supports|mentions|says|answers|about)",
    r"not (?:enough|sufficient) (?:information|evidence|context|data)",
    # German
    r"wei(?:ss|ß) (?:ich |es |das |darauf )*nicht|ist (?:mir )?nicht bekannt|nicht bekannt",
    r"(?:keine|keinerlei|nicht genug|nicht genugend|zu wenig)"
    r" (?:\w+ ){0,2}(?:information|angabe|hinweis|daten|erinnerung|erkenntnis|eintrag)",
    r"(?:kann|lasst sich|konnte) (?:\w+ ){0,6}nicht (?:\w+ )?(?:beantwort|sagen|feststell|finden)",
    # French
    r"ne (?:le |l')?sa(?:is|it|vons) pas|(?:aucune?|pas d'|pas de|pas assez d')"
    r" ?(?:\w+ ){0,2}(?:information|donnee|trace|mention|souvenir|indication)",
    r"(?:ne (?:peux|peut|permet\w*|puis)) (?:\w+ ){0,3}(?:pas )?(?:\w+ ){0,2}(?:repondre"
    r"|dire|savoir)",
    # Spanish, Portuguese, Italian
    r"no (?:lo )?se\b|no (?:tengo|hay|existe\w*|dispongo|encontre|se encontr\w+)"
    r" (?:\w+ ){0,3}(?:informacion|datos|registro|mencion|recuerdo|constancia)",
    r"no (?:puedo|es posible|se puede) (?:\w+ ){0,2}(?:responder|saber|decir|determinar)",
    r"nao (?:sei|tenho|ha|existe\w*|encontrei)(?: (?:\w+ ){0,3}(?:informac\w+|dados"
    r"|registro|mencao))?",
    r"non (?:lo )?so\b|non (?:ho|ci sono|c'e|risulta\w*) (?:\w+ ){0,3}(?:informazion|dati"
    r"|traccia|not)",
    # Dutch, Polish, Turkish
    r"weet (?:ik )?(?:het )?niet|geen (?:\w+ ){0,2}(?:informatie|gegevens|herinnering|vermelding)",
    r"nie wiem|brak (?:\w+ ){0,2}(?:informacji|danych)|nie mam (?:\w+ ){0,2}(?:informacji|danych)",
    r"bilmiyorum|bilgi (?:yok|bulunm|bulamad)|bilgim yok",
    # Russian, Ukrainian
    r"не знаю|не известно|неизвестно|нет (?:\w+ ){0,3}(?:информаци|данных|сведени|упомин)",
    r"(?:информаци|данны|сведени)\w* (?:\w+ ){0,4}(?:нет|отсутств|не найден)",
    r"не (?:могу|удалось|можу) (?:\w+ ){0,3}(?:ответить|найти|сказать|определить|відпові)",
    # Chinese, Japanese, Korean
    r"不知道|不清楚|無法(?:確定|回答|得知)|无法(?:确定|回答|得知)|(?:没有|沒有|暂无|找不到|缺乏|未找到)"
    r"[^。！？]{0,16}(?:信息|資訊|资讯|记录|紀錄|记忆|記憶|资料|資料|提及)",
    r"わかりません|分かりません|不明です|知りません|(?:情報|記録|記憶|言及)[^。]{0,12}(?:ありません|ない"
    r"|見つかりません)|お答えできません",
    r"모릅니다|모르겠습니다|알 수 없|(?:정보|기록|기억|언급)[^.]{0,12}(?:없|찾을 수 없)",
    # Arabic, Hebrew, Hindi
    r"لا (?:أعرف|اعرف|أعلم|اعلم)|لا (?:توجد|يوجد|تتوفر|أملك|املك) (?:\w+ ){0,2}(?:معلومات"
    r"|بيانات|سجل)",
    r"אינני יודע|לא יודע|אין (?:\w+ ){0,2}(?:מידע|נתונים)",
    r"नहीं (?:पता|जानत|मालूम)|(?:जानकारी|सूचना)[^।]{0,16}नहीं",
)
_DECLINES = regex.compile("|".join(f"(?:{one})" for one in _PHRASES))


_ACCENTS = regex.compile(r"[\u0300-\u036f]")


def declines(text: str) -> bool:
    """Whether a sentence says that something is not known or not recorded."""
    low = text.lower().replace("’", "'")
    plain = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", low)))
    return bool(_DECLINES.search(low) or _DECLINES.search(plain))
