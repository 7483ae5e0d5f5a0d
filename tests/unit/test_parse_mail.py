from __future__ import annotations

from email.message import EmailMessage

import pytest

from ingest_worker.chunk.chunk import chunk_document
from ingest_worker.parse.errors import Skipped
from ingest_worker.parse.outlook import unpack_rtf
from ingest_worker.parse.parse import parse
from shared.documents import ParsedDocument, Span
from shared.tokens import load_token_counter
from tests.making import cells, docx, msg, paragraph, xlsx, zipped


def _told(parsed: ParsedDocument) -> list[tuple[str | None, str]]:
    return [(element.span.attachment, element.text) for element in parsed.elements]


def _mail(text: str = "Dear Bob, the offer is attached.") -> EmailMessage:
    mail = EmailMessage()
    mail["From"] = "Ann Müller <ann@example.org>"
    mail["To"] = "bob@example.org"
    mail["Date"] = "Tue, 05 Mar 2024 09:30:00 +0100"
    mail["Subject"] = "The offer für Bob"
    if text:
        mail.set_content(text)
    return mail


def test_a_sentence_of_an_attachment_is_cited_by_its_name_and_place() -> None:
    mail = _mail()
    mail.add_attachment(
        xlsx({"Sales": cells(1, "a", "b") + cells(2, "north", 5)}), maintype="application", subtype="x", filename="q1.xlsx"
    )
    mail.add_attachment(
        docx(paragraph("We ask for 900 €.")), maintype="application", subtype="x", filename="Angebot für Bob.docx"
    )
    parsed = parse("mail.eml", mail.as_bytes())
    chunks = chunk_document(parsed, load_token_counter())
    (chunk,) = [chunk for chunk in chunks if "north" in chunk.text]
    assert chunk.span == Span(attachment="q1.xlsx", sheet="Sales", row_start=1, row_end=2)
    (chunk,) = [chunk for chunk in chunks if "900 €" in chunk.text]
    assert chunk.span == Span(attachment="Angebot für Bob.docx")
    assert chunks[0].text == (
        "# The offer für Bob\n\nFrom: Ann Müller <ann@example.org>\nTo: bob@example.org\nDate: Tue, 05 Mar 2024 09:30:00 +0100\n"
        "Subject: The offer für Bob\nAttachments: q1.xlsx, Angebot für Bob.docx\n\nDear Bob, the offer is attached."
    )
    assert (chunks[0].section, chunks[0].span, parsed.title) == (("The offer für Bob",), Span(), "The offer für Bob")


def test_of_two_forms_of_the_text_each_sentence_is_there_once() -> None:
    mail = _mail("Same words here.\n\nOnly plain says kiwi.\n\nSee https://example.org/very/long")
    mail.add_alternative(
        "<h1>Same</h1><p>Same words here. See <a href='https://example.org/very/long'>there</a></p>", subtype="html"
    )
    texts = [text for _, text in _told(parse("a.eml", mail.as_bytes()))]
    assert sum("Same words" in text for text in texts) == 1
    assert sum("kiwi" in text for text in texts) == 1
    assert not any("very/long" in text for text in texts)


def test_a_forwarded_mail_is_an_attachment_with_attachments_of_its_own() -> None:
    inner = _mail("inner words")
    inner.add_attachment(b"note words", maintype="text", subtype="plain", filename="note.txt")
    mail = _mail()
    mail.add_attachment(inner)
    told = _told(parse("a.eml", mail.as_bytes()))
    assert ("The offer für Bob.eml", "inner words") in told
    assert ("The offer für Bob.eml > note.txt", "note words") in told


def test_what_cannot_be_read_makes_the_mail_partial_and_pictures_do_not() -> None:
    mail = _mail()
    mail.add_attachment(b"PK\x03\x04broken", maintype="application", subtype="x", filename="a.docx")
    mail.add_attachment(b"\x89PNG\r\n\x1a\n", maintype="image", subtype="png", filename="logo.png")
    mail.add_attachment(b"\x00\x01" * 50, maintype="application", subtype="octet-stream", filename="x.bin")
    parsed = parse("a.eml", mail.as_bytes())
    assert [sentence.split(" ")[0] for sentence in parsed.unread] == ["a.docx"]
    assert [sentence.split(" ")[0].rstrip(":") for sentence in parsed.warnings] == ["logo.png", "x.bin"]


def test_mails_in_mails_without_end_end() -> None:
    mail = _mail("innermost")
    for _ in range(60):
        outer = _mail("words")
        outer.add_attachment(mail)
        mail = outer
    parsed = parse("a.eml", mail.as_bytes())
    assert parsed.unread
    assert not any("innermost" in text for _, text in _told(parsed))


def test_a_thousand_attachments_end_at_the_limit() -> None:
    mail = _mail()
    for number in range(300):
        mail.add_attachment(b"words", maintype="text", subtype="plain", filename=f"{number}.txt")
    parsed = parse("a.eml", mail.as_bytes())
    assert sum(name is not None for name, _ in _told(parsed)) == 200
    assert len(parsed.unread) == 100


def test_broken_headers_and_codecs_cost_nothing_but_themselves() -> None:
    raw = (
        b"From: =?utf-8?b?broken?= <a@b>\r\nSubject: =?no-such-codec?q?x?= caf\xe9\r\nDate: never\r\n"
        b"Content-Type: text/plain; charset=no-such\r\nContent-Transfer-Encoding: base64\r\n\r\nR3LDvMOfZQ==\r\n"
    )
    assert _told(parse("a.eml", raw))[-1] == (None, "Grüße")


def test_lines_of_a_flowing_text_are_joined() -> None:
    raw = b"From: a@b\nSubject: s\nContent-Type: text/plain; format=flowed\n\nOne sentence \ngoes on.\n-- \nAnn\n"
    assert _told(parse("a.eml", raw))[-1] == (None, "One sentence goes on.\n-- \nAnn")


def test_an_encrypted_mail_tells_its_headers_and_is_partial() -> None:
    raw = b"From: a@b\nSubject: s\nContent-Type: multipart/encrypted; boundary=x\n\n--x\nContent-Type: text/plain\n\nabc\n--x--\n"
    parsed = parse("a.eml", raw)
    assert parsed.unread == ("The mail's text is encrypted.",)
    assert parsed.elements


def test_a_file_that_is_no_mail_is_skipped() -> None:
    with pytest.raises(Skipped):
        parse("a.eml", b"\n\n \n")


def test_a_page_saved_as_mail_is_its_page() -> None:
    raw = (
        b"From: <Saved by Blink>\nSubject: x\nMIME-Version: 1.0\nContent-Type: multipart/related; boundary=b\n\n--b\n"
        b"Content-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n"
        b"<title>T</title><h1>Gr=C3=BC=C3=9Fe</h1><p>text</p>\n--b\n"
        b"Content-Type: text/css\n\np{}\n--b--\n"
    )
    parsed = parse("a.mhtml", raw)
    assert (_told(parsed), parsed.title) == ([(None, "Grüße"), (None, "text")], "T")


def test_mails_of_apple_and_without_a_name_are_known() -> None:
    raw = b"From: a@b\nTo: c@d\nSubject: s\n\nwords\n"
    assert _told(parse("1.emlx", b"42\n" + raw + b"<?xml?>"))[0] == (None, "s")
    assert _told(parse("cur/1709630000.M1P2.host:2,S", raw))[-1] == (None, "words")


def test_an_outlook_message_tells_headers_text_and_attachments() -> None:
    properties = {"0037": "Angebot", "1000": "Lieber Bob", "0C1A": "Ann", "5D01": "ann@example.org", "0E04": "Bob; Eve"}
    inner = {"0037": "Inner", "1000": "deep words"}
    sent = "Date: 2024-03-05 09:30 UTC"
    files = [("q1.xlsx", xlsx({"S": cells(1, "k", "v") + cells(2, "rent", 5)})), ("fw.msg", inner)]
    parsed = parse("a.msg", msg(properties, files))
    assert _told(parsed)[:3] == [
        (None, "Angebot"),
        (None, f"From: Ann <ann@example.org>\nTo: Bob; Eve\n{sent}\nSubject: Angebot\nAttachments: q1.xlsx, fw.msg"),
        (None, "Lieber Bob"),
    ]
    assert ("fw.msg", "deep words") in _told(parsed)
    (table,) = [element for element in parsed.elements if "rent" in element.text]
    assert table.span == Span(attachment="q1.xlsx", sheet="S", row_start=1, row_end=2)


def test_an_outlook_message_whose_text_is_html_or_rich_text_is_read() -> None:
    html = msg({"0037": "s", "1013": "<meta charset=utf-8><p>Grüße</p>".encode()})
    assert _told(parse("a.msg", html))[-1] == (None, "Grüße")
    # The example of MS-OXRTFCP, section 4.1.1.
    packed = bytes.fromhex("2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0")
    assert unpack_rtf(packed) == b"{\\rtf1\\ansi\\ansicpg1252\\pard hello world}\r\n"
    assert _told(parse("a.msg", msg({"0037": "s", "1009": packed})))[-1] == ("text.rtf", "hello world")


def test_an_archive_in_a_mail_is_named() -> None:
    mail = _mail()
    mail.add_attachment(zipped({"a.txt": "x"}), maintype="application", subtype="zip", filename="all.zip")
    parsed = parse("a.eml", mail.as_bytes())
    assert "all.zip was left out" in parsed.warnings[0]
    assert "Attachments: all.zip" in _told(parsed)[1][1]


@pytest.mark.parametrize("name", [b"a\0b", b"undefined", b"idna", b"unicode_escape", b"hex"])
def test_a_charset_that_is_none_costs_nothing_but_itself(name: bytes) -> None:
    head = b'From: a@b\nSubject: =?%b?Q?x?=\nContent-Type: text/plain; charset="%b"\n'
    head += b"Content-Disposition: attachment; filename*=%b''x.txt"
    page = b"<!doctype html><html><meta charset='%b'><p>k\xe4se \\u0041"
    assert parse("a.eml", head.replace(b"%b", name) + b"\n\nk\xe4se \\u0041\n").elements[-1].text == "käse \\u0041"
    assert parse("a.html", page.replace(b"%b", name)).elements[-1].text == "käse \\u0041"
