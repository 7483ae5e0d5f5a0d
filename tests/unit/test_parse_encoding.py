from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_worker.parse.encoding import decode, looks_like_text

# Article 1 of the Universal Declaration of Human Rights, and a pangram or two.
_TEXTS = {
    "German": "Die Größe der Häuser überrascht viele Gäste, die für den Straßenbau spenden möchten.",
    "French": "Une très belle journée à la forêt, où l'été est déjà fini. Le garçon mange une pêche.",
    "Spanish": "El niño comió una manzana, y después señaló la solución más fácil. ¿Dónde está?",
    "Danish": "Rødgrød med fløde på øen er både sjov og træls; æbler smager også godt.",
    "Polish": "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Zażółć gęślą jaźń.",
    "Czech": "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Příliš žluťoučký kůň.",
    "Hungarian": "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Árvíztűrő tükörfúrógép.",
    "Turkish": "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Ağaçlar ışıl ışıl.",
    "Lithuanian": "Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis. Jiems suteiktas protas ir sąžinė.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
    "Hebrew": "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון.",
    "Arabic": "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا.",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "Japanese": "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。",
    "Chinese": "人人生而自由,在尊严和权利上一律平等。他们赋有理性和良心,并应以兄弟关系的精神相对待。",
    "Taiwanese": "人人生而自由,在尊嚴和權利上一律平等。他們賦有理性和良心,並應以兄弟關係的精神相對待。",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다.",
    "English": "It’s “quoted” — and that’s all there is to it… 20 €",
}
_CODECS = {
    "German": "cp1252 cp850 mac_roman", "French": "cp1252 cp850 mac_roman", "Spanish": "cp1252 cp850", "Danish": "cp1252",
    "Polish": "cp1250 iso8859_2 cp852", "Czech": "cp1250 iso8859_2 cp852", "Hungarian": "cp1250", "Turkish": "cp1254",
    "Lithuanian": "cp1257", "Russian": "cp1251 koi8_r cp866 iso8859_5", "Greek": "cp1253", "Hebrew": "cp1255", "Arabic": "cp1256",
    "Thai": "cp874", "Japanese": "cp932 euc_jp iso2022_jp", "Chinese": "gb18030", "Taiwanese": "big5", "Korean": "cp949",
    "English": "cp1252",
}  # fmt: skip


@pytest.mark.parametrize(("language", "codec"), [(name, codec) for name, codecs in _CODECS.items() for codec in codecs.split()])
def test_text_in_a_legacy_codec_is_read_as_it_was_written(language: str, codec: str) -> None:
    text = _TEXTS[language]
    decoded = decode(text.encode(codec))
    assert decoded.text == unicodedata.normalize("NFC", text)
    assert 0.4 < decoded.confidence < 1
    assert decoded.label == f"{decoded.codec} (confidence {decoded.confidence:.2f})"


def test_the_letters_that_tell_the_codec_may_stand_far_behind() -> None:
    text = "plain words in a line\n" * 10_000 + _TEXTS["French"]
    assert decode(text.encode("cp1252")).text == text


def test_what_the_bytes_say_themselves_is_certain() -> None:
    for data in (b"plain", "größer".encode(), "größer".encode("utf-16"), b"\xef\xbb\xbfplain"):
        assert decode(data).confidence == 1
    assert decode(b"plain").label == "utf-8"


def test_bytes_that_fit_nothing_stay_utf8_with_a_warning_and_little_confidence() -> None:
    decoded = decode(bytes(range(128, 256)) * 3)
    assert (decoded.codec, decoded.confidence < 0.3, decoded.replaced > 0) == ("utf-8", True, True)
    assert "were replaced" in decoded.warnings[0]


def test_one_bad_byte_in_utf8_costs_that_byte_and_no_more() -> None:
    data = ("Größe und Maße, naïve café. " * 40).encode()
    decoded = decode(data[:200] + b"\xff" + data[200:])
    assert decoded.codec == "utf-8"
    assert decoded.text.count("\ufffd") == 1
    assert decoded.warnings


@pytest.mark.parametrize("codec", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_and_marked_encodings_are_read(codec: str) -> None:
    text = "Line one\nLine two with an umlaut: ü\n" * 5
    assert decode(text.encode(codec)).text == text
    assert looks_like_text(text.encode(codec))


def test_utf16_that_begins_with_a_nul_is_no_utf32() -> None:
    decoded = decode("\0One line".encode("utf-16"))
    assert (decoded.codec, decoded.text) == ("utf-16", "One line")


def test_bytes_with_nul_are_no_text() -> None:
    assert not looks_like_text(b"\x00\x01\x02\x03binary\x00\xff" * 20)


@given(st.binary(max_size=400))
def test_any_bytes_give_clean_text(data: bytes) -> None:
    text = decode(data).text
    assert "\0" not in text
    text.encode("utf-8")
