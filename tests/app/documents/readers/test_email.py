"""Messages and mailboxes as they are read."""

from __future__ import annotations

import time
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path

import pytest

from app.documents.source import ExtractionError, ExtractionFault
from app.domain.documents import DocumentKind, PageUnit
from text_files import HOSTILE, MOST_SECONDS, Read, reader, warned

HEADERS = (
    "From: Ann <ann@example.org>\nTo: bob@example.org\nDate: Fri, 27 Nov 2026 10:00:00 +0000\n"
)


@pytest.fixture
def mail(tmp_path: Path) -> Read:
    return reader(tmp_path, "email")


def _made(subject: str = "Tides") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Änne <anne@example.org>"
    message["To"] = "bob@example.org"
    message["Date"] = "Fri, 27 Nov 2026 10:00:00 +0000"
    message["Subject"] = subject
    return message


TOP = (
    "From: Änne <anne@example.org>\nTo: bob@example.org\nDate: Fri, 27 Nov 2026 10:00:00 +0000\n"
    "Subject: Tides"
)


def test_a_plain_message(mail: Read) -> None:
    message = _made("Überfällig – 明日")
    message.set_content("Grüße,\n\nÄnne\n")
    document = mail(message.as_bytes(policy=SMTP), "a.eml")
    assert document.kind is DocumentKind.EMAIL
    assert document.unit is PageUnit.NONE
    assert document.title == "Überfällig – 明日"
    assert document.text == TOP.replace("Tides", "Überfällig – 明日") + "\n\nGrüße,\n\nÄnne"


@pytest.mark.parametrize("encoding", ["7bit", "8bit", "quoted-printable", "base64"])
@pytest.mark.parametrize("charset", ["utf-8", "iso-8859-1"])
def test_transfer_encodings(mail: Read, encoding: str, charset: str) -> None:
    message = _made()
    text = "Plain words\n" if encoding == "7bit" else "Größe = 5 €\n".replace("€", "EUR")
    message.set_content(text, charset=charset, cte=encoding)
    assert mail(message.as_bytes(policy=SMTP)).text == f"{TOP}\n\n{text.strip()}"


def test_plain_text_is_preferred_to_html(mail: Read) -> None:
    message = _made()
    plain = "The tide comes in at nine and goes out at three."
    message.set_content(plain)
    message.add_alternative(f"<p><b>{plain}</b></p>", subtype="html")
    assert mail(message.as_bytes()).text == f"{TOP}\n\n{plain}"


def test_html_is_read_where_plain_text_only_points_to_it(mail: Read) -> None:
    message = _made()
    message.set_content("Please use HTML.")
    message.add_alternative(
        "<p>All of what I have to say about tides is in this part of the message, "
        "which is long.</p><ul><li>one<li>two</ul>",
        subtype="html",
    )
    text = mail(message.as_bytes()).text
    assert text.endswith("which is long.\n\n- one\n- two")
    assert "Please" not in text


def test_a_message_with_html_only(mail: Read) -> None:
    message = _made()
    message.set_content("<h1>News</h1><table><tr><th>a<th>b<tr><td>1<td>2</table>", subtype="html")
    assert (
        mail(message.as_bytes()).text == f"{TOP}\n\n# News\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
    )


def test_attachments_are_listed_and_not_unpacked(mail: Read) -> None:
    message = _made()
    message.set_content("See the files.")
    message.add_attachment(
        b"x" * 12_345, maintype="application", subtype="pdf", filename="größe 明日.pdf"
    )
    message.add_attachment("secret text", filename="notes.txt")
    message.add_attachment(
        b"t" * 40, maintype="application", subtype="ms-tnef", filename="winmail.dat"
    )
    assert mail(message.as_bytes()).text == (
        f"{TOP}\n\nSee the files.\n\nAttachments:\n- größe 明日.pdf (12.3 kB)\n"
        "- notes.txt (12 bytes)\n- winmail.dat (40 bytes, attachments in Outlook's own format)"
    )


def test_a_message_within_a_message(mail: Read) -> None:
    inner = _made("Inner")
    inner.set_content("Inner text.")
    message = _made()
    message.set_content("Forwarded:")
    message.add_attachment(inner)
    inner_top = TOP.replace("Tides", "Inner")
    assert mail(message.as_bytes()).text == (
        f"{TOP}\n\nForwarded:\n\n---\n\n{inner_top}\n\nInner text."
    )


def test_a_signed_message_is_its_text(mail: Read) -> None:
    signed = (
        'Subject: S\nContent-Type: multipart/signed; protocol="application/pgp-signature";'
        ' boundary="b"\n\n--b\nContent-Type: text/plain\n\nSigned words.\n--b\n'
        "Content-Type: application/pgp-signature; name=signature.asc\n\n-----BEGIN PGP\n--b--\n"
    )
    assert mail(HEADERS + signed).text.endswith(
        "Subject: S\n\nSigned words.\n\nAttachments:\n- signature.asc (14 bytes)"
    )


@pytest.mark.parametrize(
    "kind",
    [
        'multipart/encrypted; protocol="application/pgp-encrypted"; boundary="b"',
        "application/pkcs7-mime; smime-type=enveloped-data; name=smime.p7m",
    ],
)
def test_an_encrypted_message_is_protected(mail: Read, kind: str) -> None:
    body = "--b\nContent-Type: application/pgp-encrypted\n\nVersion: 1\n--b--\n"
    with pytest.raises(ExtractionError) as raised:
        mail(f"{HEADERS}Content-Type: {kind}\n\n{body}")
    assert raised.value.fault is ExtractionFault.PROTECTED


MISSHAPEN = {
    "folded words": (
        "Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n =?utf-8?q?_aus_K=C3=B6ln?=\n\nx",
        "Subject: Grüße aus Köln\n\nx",
    ),
    "words that are no encoding": (
        "Subject: =?nosuch?q?a=20b?= =?utf-8?b?!!!?= =?x\n\nx",
        "Subject: a b =?x\n\nx",
    ),
    "letters not encoded": ("Subject: Größe\n\nx", "Subject: Größe\n\nx"),
    "no end of parts": (
        "Content-Type: multipart/mixed; boundary=b\n\n--b\n\none\n--b\nContent-Type: text/plain\n\ntwo",
        "one\n\ntwo",
    ),
    "no boundary": ("Content-Type: multipart/mixed\n\ntext", "Attachments:\n- multipart/mixed (4 bytes)"),
    "unknown charset": ("Content-Type: text/plain; charset=x-none\n\nGrüße", "Grüße"),
    "wrong charset": ("Content-Type: text/plain; charset=ascii\n\nGrüße aus Köln", "Grüße aus Köln"),
    "broken base64": (
        "Content-Transfer-Encoding: base64\n\nSGVs\nbG8g!!d29ybGQ",
        "Hello world",
    ),
    "broken quoted-printable": ("Content-Transfer-Encoding: quoted-printable\n\n=C3=BC =ZZ", "ü =ZZ"),
    "flowed": (
        'Content-Type: text/plain; format=flowed\n\nA long \nline.\n\n> quoted \n> text\n-- \nme',
        "A long line.\n\n> quoted \n> text\n-- \nme",
    ),
    "carriage returns": ("Subject: s\r\rone\rtwo", "Subject: s\n\none\ntwo"),
    "calendar": (
        "Content-Type: text/calendar\n\nBEGIN:VCALENDAR\nSUMMARY:Tides\n",
        "BEGIN:VCALENDAR\nSUMMARY:Tides",
    ),
    "name in pieces": (
        "Content-Type: application/pdf\nContent-Disposition: attachment;\n"
        " filename*0*=utf-8''gr%C3%BC;\n filename*1*=n.pdf\n\nx",
        "Attachments:\n- grün.pdf (1 bytes)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSHAPEN)
def test_messages_that_are_not_well_formed(mail: Read, name: str) -> None:
    content, expected = MISSHAPEN[name]
    assert mail(content, "a.eml").text == expected


MAILBOX = (
    "From ann@example.org Fri Nov 27 10:00:00 2026\nSubject: One\n\nFirst.\n>From here on.\n\n"
    "From the sea, with love.\n\n"
    "From bob@example.org Fri Nov 27 11:00:00 2026\nSubject: Two\n\nSecond.\n"
)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_a_mailbox_has_a_page_for_each_message(mail: Read, ends: str) -> None:
    document = mail(MAILBOX.replace("\n", ends), "inbox.mbox")
    assert document.unit is PageUnit.MESSAGE
    assert [(page.label, page.text) for page in document.pages] == [
        ("1", "Subject: One\n\nFirst.\nFrom here on.\n\nFrom the sea, with love."),
        ("2", "Subject: Two\n\nSecond."),
    ]


def test_an_empty_message_is_said(mail: Read) -> None:
    assert warned(mail(HEADERS + "\n")) == ["empty"]
    assert warned(mail("")) == ["empty"]


@pytest.mark.parametrize("size", HOSTILE)
@pytest.mark.parametrize(
    ("before", "piece"),
    [
        ("Content-Type: multipart/mixed; boundary=b\n\n", "--b\n\nx\n"),
        ("Content-Type: multipart/mixed; boundary=b\n\n", "--b\n" * 3),
        ("", "Content-Type: multipart/mixed; boundary=b\n\n--b\n"),
        ("", "Content-Type: message/rfc822\n\n"),
        ("Content-Type: text/plain; format=flowed\n\n", "x \n"),
        ("Subject: ", "=?a?q?"),
        ("Content-Type: a; ", '";'),
        ("Content-Disposition: attachment; ", "filename*0=a;"),
        ("To: ", "a,\n "),
        ("", "\n"),
        ("", "a: b\n"),
        ("From a 10:00\n\n", "\n\nFrom a 10:00"),
        ("From a 10:00\n\n", "\n\nFrom a " + "b" * 50),
    ],
)
def test_hostile_messages_take_time_that_grows_with_them(
    mail: Read, before: str, piece: str, size: int
) -> None:
    begins = time.process_time()
    mail(before + piece * (size // len(piece)))
    assert time.process_time() - begins < MOST_SECONDS
