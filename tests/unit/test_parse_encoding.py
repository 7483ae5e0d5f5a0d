from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_worker.parse.encoding import decode, looks_like_text

_RUSSIAN = "Договор расторгается по письменному заявлению клиента не позднее чем за тридцать дней. " * 3
_JAPANESE = "契約は書面による通知をもって解約することができます。これは三十日前までに行うものとします。" * 3
_CHINESE = "我们可以在三十天内取消合同，但是要有书面的通知。他不知道这个人是不是在中国。" * 3
_KOREAN = "이 계약은 서면 통지로 해지할 수 있습니다. 고객은 삼십일 이전에 사유를 알려야 한다." * 3


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("Une très belle journée à la forêt, où l'été est déjà fini.", "cp1252"),
        ("“Straße” – größer als 20 €", "cp1252"),
        (_RUSSIAN, "cp1251"),
        (_RUSSIAN, "koi8_r"),
        (_JAPANESE, "cp932"),
        (_JAPANESE, "euc_jp"),
        (_CHINESE, "gb18030"),
        (_KOREAN, "cp949"),
    ],
)
def test_text_in_a_legacy_codec_is_read_as_it_was_written(text: str, codec: str) -> None:
    decoded = decode(text.encode(codec))
    assert decoded.text == text
    assert decoded.codec == codec


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


def test_bytes_with_nul_are_no_text() -> None:
    assert not looks_like_text(b"\x00\x01\x02\x03binary\x00\xff" * 20)


@given(st.binary(max_size=400))
def test_any_bytes_give_clean_text(data: bytes) -> None:
    text = decode(data).text
    assert "\0" not in text
    text.encode("utf-8")
