"""Which letters make a codec believable: the commonest of each script, and the letters beside a–z of each Latin language."""

from __future__ import annotations

from typing import Final

_KANA: Final = "".join(chr(code) for code in range(0x3041, 0x30FF))
# The commonest ideographs of newspapers, the thirty or hundred that make a third of a text.
_KANJI: Final = (
    "日本国人年大十二会一中事自社者出三同時政行月民者見生東分手学方前力地場業定部代対関要回内立開合新理高長通用主小田間体気"
    "上下本文語書名全市約的物動機心食入金山川水火木土先外電話車通知情報処理設定使用説明機能製品検索画面"
)
_HANZI: Final = (
    "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年发后作里用道行所然家种事成方"
    "多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心她本前开但因只从想实"
)
_HANZI_TRADITIONAL: Final = (
    "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年發後作裡用道行所然家種事成方"
    "多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心她本前開但因只從想實"
)
_HANGUL: Final = (
    "이다는을의에가하고지도사기로를리은한어나서자인대시정그일아수보라해게여있으들것부전제장무했습니까과와만원구요"
    "안되면내려진상모더년등며성많같또때소비실선공동물세오방관국화학교생활문회주식발행말바미받개연계명든간태날터유우민용신"
)
_CYRILLIC: Final = "оеаинтсрвлкмдпуяыьбзОЕАИНТСРВЛКМДПУі"

SCRIPTS: Final[dict[str, frozenset[str]]] = {
    codec: frozenset(letters)
    for codec, letters in {
        "cp932": _KANA + _KANJI,
        "euc_jp": _KANA + _KANJI,
        "gb18030": _HANZI,
        "big5": _HANZI_TRADITIONAL,
        "cp949": _HANGUL,
        "cp1251": _CYRILLIC,
        "koi8_r": _CYRILLIC,
        "cp866": _CYRILLIC,
        "iso8859_5": _CYRILLIC,
        "cp1253": "αοιετσνηυρπκλμςάίόέήύώ",
        "cp1255": "יוהלאתרבשמנדחעקםןכפ",
        "cp1256": "اليمنوترةبعدسفقكه",
        "cp874": "านรอกเงมยลวดทสตะปบหคแพชข่้ัิ",
    }.items()
}
"""Codecs of other scripts than Latin, with the commonest letters of their script. Of equals the first wins."""

_WESTERN: Final = {
    "German": "äöüß",
    "French": "àâæçèéêëîïôœùûüÿ",
    "Spanish": "áéíñóúü",
    "Portuguese": "àáâãçéêíóôõúü",
    "Italian": "àèéìíîòóùú",
    "Nordic": "åäöæøéü",
    "Icelandic": "áæéíðóöúýþ",
    "Dutch": "áéëïíóöúüèê",
    "Catalan": "àçèéíïòóúü",
}
_CENTRAL: Final = {
    "Polish": "ąćęłńóśźż",
    "Czech and Slovak": "áäčďéěíĺľňóôŕřšťúůýž",
    "Hungarian": "áéíóöőúüű",
    "Romanian": "ăâîşţșț",
    "Croatian and Slovene": "čćđšž",
    "German": "äöüß",
}
_TURKISH: Final = {"Turkish": "çğıöşüâîû"}
_BALTIC: Final = {"Lithuanian": "ąčęėįšųūž", "Latvian": "āčēģīķļņšūž", "Estonian": "äõöüšž"}

LATIN: Final[dict[str, dict[str, frozenset[str]]]] = {
    codec: {name: frozenset(letters + letters.upper()) for name, letters in languages.items()}
    for codec, languages in {
        "cp1252": _WESTERN,
        "latin-1": _WESTERN,
        "cp1250": _CENTRAL,
        "iso8859_2": _CENTRAL,
        "cp1254": _TURKISH,
        "cp1257": _BALTIC,
        "cp850": _WESTERN,
        "cp852": _CENTRAL,
        "mac_roman": _WESTERN,
    }.items()
}
"""Codecs of Latin letters, with the letters beside a–z of each language that is written in them. Of equals the first wins."""
RARE: Final = {"mac_roman": 0.2, "cp850": 0.1, "cp852": 0.1}
"""What a codec has to be better by, because few files are written in it any more."""
