"""Encrypted OpenDocument files and workbooks of Excel 97-2003 open with a configured password, and say so when none fits.

The files are encrypted by tests/encrypting.py, which follows the specifications and shares no code with what opens them (but
the tables of XOR). Encrypted files of today's Office are in tests/integration/test_pipeline.py, PDFs in test_parse_pdf.py.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable

import pytest

from ingest_worker.parse.errors import Unreadable
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument
from tests.encrypting import odf_aes, odf_blowfish, odf_whole, xls_rc4, xls_rc4_cryptoapi, xls_xor
from tests.making import odf, xls, zipped

PASSWORD = "s3crét, too"
ODF = [odf_aes, odf_blowfish, odf_whole]
XLS = [xls_rc4, xls_rc4_cryptoapi, xls_xor]
TEXT = odf("text", "<text:h text:outline-level='1'>Vault</text:h><text:p>The code is 4711.</text:p>" * 50)
SHEET = odf(
    "spreadsheet",
    '<table:table table:name="Codes"><table:table-row><table:table-cell office:value-type="string"><text:p>4711</text:p>'
    "</table:table-cell></table:table-row></table:table>",
)
BOOK = xls([["door", "code"], *(["vault", float(number)] for number in range(300))])


def _changed(data: bytes, part: str, old: bytes, new: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        parts = {name: package.read(name) for name in package.namelist()}
    assert old in parts[part]
    return zipped({**parts, part: parts[part].replace(old, new)})


Encrypt = Callable[[bytes, str], bytes]


def _told(parsed: ParsedDocument) -> list[tuple[str, str]]:
    return [(element.kind.value, element.text) for element in parsed.elements]


def _refused(name: str, data: bytes, *passwords: str) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        parse(name, data, passwords=passwords)
    return caught.value


@pytest.mark.parametrize("encrypt", ODF)
@pytest.mark.parametrize(("name", "plain"), [("a.odt", TEXT), ("a.ods", SHEET)])
def test_an_encrypted_open_document_is_read_as_if_it_were_not(encrypt: Encrypt, name: str, plain: bytes) -> None:
    locked = encrypt(plain, PASSWORD)
    assert locked != plain
    assert parse(name, locked, passwords=("wrong", PASSWORD)) == parse(name, plain)


@pytest.mark.parametrize("encrypt", XLS)
def test_an_encrypted_old_workbook_is_read_as_if_it_were_not(encrypt: Encrypt) -> None:
    locked = encrypt(BOOK, "s3cret")
    # A password longer than fifteen letters fits no XOR, and must not keep the right one from being tried.
    assert parse("a.xls", locked, passwords=("wrong", "much longer than fifteen letters", "ü", "s3cret")) == parse("a.xls", BOOK)


@pytest.mark.parametrize(
    ("name", "locked"),
    [
        *((f"a.{ending}", encrypt(plain, PASSWORD)) for encrypt in ODF for ending, plain in (("odt", TEXT), ("ods", SHEET))),
        *(("a.xls", encrypt(BOOK, "s3cret")) for encrypt in XLS),
    ],
)
def test_without_the_right_password_it_fails_as_encrypted_and_says_what_to_do(name: str, locked: bytes) -> None:
    none, wrong = _refused(name, locked), _refused(name, locked, "wr0ng")
    assert none.code == wrong.code == "encrypted"
    assert "DOCWELL_DOCUMENT_PASSWORDS" in str(none)
    assert "none of the configured passwords" in str(wrong)
    assert "wr0ng" not in str(wrong)


def test_a_workbook_that_may_be_opened_but_not_changed_needs_no_password() -> None:
    assert _told(parse("a.xls", xls_rc4_cryptoapi(BOOK, "VelvetSweatshop"))) == _told(parse("a.xls", BOOK))


def test_parts_of_an_encrypted_document_are_read_too() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = f"<table:table-row>{cell.format('East')}</table:table-row>"
    chart = f'<c xmlns:table="t" xmlns:text="x"><table:table>{row}</table:table></c>'
    plain = odf(
        "text",
        '<text:p><draw:frame><draw:object xlink:href="./Object 1"/></draw:frame></text:p>',
        parts={"Object 1/content.xml": chart, "meta.xml": '<m xmlns:dc="d"><dc:title>The plan</dc:title></m>'},
    )
    parsed = parse("a.odt", odf_aes(plain, PASSWORD), passwords=(PASSWORD,))
    assert (parsed.title, _told(parsed)) == ("The plan", _told(parse("a.odt", plain)))


def test_pictures_stay_closed_and_cost_nothing() -> None:
    plain = odf("text", "<text:p>The code is 4711.</text:p>", parts={"Pictures/1.png": b"pixels " * 100})
    with zipfile.ZipFile(io.BytesIO(odf_aes(plain, PASSWORD))) as package:
        picture = package.read("Pictures/1.png")
    for locked in (odf_aes(plain, PASSWORD), _changed(odf_aes(plain, PASSWORD), "Pictures/1.png", picture, b"spoilt")):
        assert _told(parse("a.odt", locked, passwords=(PASSWORD,))) == [("text", "The code is 4711.")]


def test_a_bomb_is_none_for_being_encrypted() -> None:
    kind = "application/vnd.oasis.opendocument.text"
    bomb = zipped({"mimetype": kind, "content.xml": b" " * (65 * 1024**2)}, compression=zipfile.ZIP_STORED)
    refused = _refused("a.odt", odf_aes(bomb, PASSWORD), PASSWORD)
    assert (refused.code, "unpack" in str(refused)) == ("too_large", True)


def test_keys_that_would_take_an_hour_or_all_memory_are_refused_at_once() -> None:
    slow = _changed(odf_aes(TEXT, PASSWORD), "META-INF/manifest.xml", b'"1000"', b'"99999999999"')
    large = _changed(odf_whole(TEXT, PASSWORD), "META-INF/manifest.xml", b'memory="64"', b'memory="4194304"')
    assert "more rounds than any program" in str(_refused("a.odt", slow, PASSWORD))
    assert "4194304 KiB" in str(_refused("a.odt", large, PASSWORD))


def test_a_part_that_was_cut_makes_the_document_damaged_and_gives_no_text() -> None:
    plain = odf(
        "text", "<text:p>x</text:p>", parts={"styles.xml": "<s>" + "".join(f"<p>{n**9}</p>" for n in range(500)) + "</s>"}
    )
    with zipfile.ZipFile(io.BytesIO(odf_aes(plain, PASSWORD))) as package:
        end = package.read("styles.xml")[-64:]
    assert _refused("a.odt", _changed(odf_aes(plain, PASSWORD), "styles.xml", end, b""), PASSWORD).code == "damaged"


def test_a_cipher_that_nothing_opens_is_named() -> None:
    odd = _changed(odf_whole(TEXT, PASSWORD), "META-INF/manifest.xml", b"aes256-gcm", b"serpent")
    refused = _refused("a.odt", odd, PASSWORD)
    assert refused.code == "encrypted"
    assert "serpent" in str(refused)


def test_a_manifest_that_makes_no_sense_is_damage() -> None:
    members = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": "x"}
    entry = '<file-entry full-path="content.xml"><encryption-data><algorithm algorithm-name="a" initialisation-vector="{}"/>'
    entry += '<key-derivation salt="{}" iteration-count="{}" key-derivation-name="{}"/></encryption-data></file-entry>'
    for values, code in (
        (("ä", "", "1", "pbkdf2"), "damaged"),
        (("", "", "-1", "pbkdf2"), "damaged"),
        (("", "", "0", "pbkdf2"), "damaged"),
        (("", "", "1", "scrypt"), "encrypted"),
        (("", "", "1", "pbkdf2"), "encrypted"),
    ):
        manifest = f"<manifest>{entry.format(*values)}</manifest>"
        assert _refused("a.odt", zipped({**members, "META-INF/manifest.xml": manifest}), PASSWORD).code == code


def test_a_document_for_the_keys_of_people_says_so() -> None:
    manifest = '<manifest><file-entry full-path="content.xml"><encryption-data/></file-entry></manifest>'
    refused = _refused("a.odt", odf("text", "", parts={"META-INF/manifest.xml": manifest}), PASSWORD)
    assert refused.code == "encrypted"
    assert "people's own keys" in str(refused)
