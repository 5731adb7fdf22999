"""Hostile PDF files: trees that never end, objects that refer to themselves, bombs, lies."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable
from functools import partial

from small_documents import WORDS, pdf, pdf_page, stream

Make = Callable[[], bytes]


def hostile_pdfs(url: str, file: str) -> dict[str, Make]:
    """By their names; `url` and `file` are addresses that no reader may open."""
    return {**_trees(), **_streams(), **_tables(), **_actions(url.encode(), file.encode())}


def _page_with(*more: bytes, content: bytes = b"", page: bytes = b"") -> bytes:
    """One page, whose further objects begin at 6."""
    return pdf([*pdf_page(content, page=page), *more])


def _replaced(**objects: bytes) -> bytes:
    """One page, of which objects are replaced: `o2` is that with the number 2."""
    made = pdf_page()
    for name, content in objects.items():
        made[int(name[1:]) - 1] = content
    return pdf(made)


def _trees() -> dict[str, Make]:
    leaf = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R >>"
    chain = [b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % n for n in range(7, 5_000)]
    wide = b"<< /Type /Pages /Kids [%s] /Count 200000 >>" % (b"3 0 R " * 200_000)
    fan = [b"<< /Type /Pages /Kids [%s] /Count 1000000000 >>" % (b"%d 0 R " % n * 10)
           for n in range(7, 17)]  # fmt: skip
    pages = [b"<< /Type /Catalog /Pages 2 0 R >>",
             b"<< /Type /Pages /Kids [%s] /Count 20000 >>"
             % b" ".join(b"%d 0 R" % n for n in range(4, 20_004)),
             stream(b"BT ET"), *[leaf.replace(b"4 0 R", b"3 0 R")] * 20_000]  # fmt: skip
    return {
        "loop.pdf": lambda: _replaced(o2=b"<< /Type /Pages /Kids [2 0 R] /Count 1 >>"),
        "loopcount.pdf": lambda: _replaced(
            o2=b"<< /Type /Pages /Kids [2 0 R 3 0 R 2 0 R] /Count 2147483647 >>"
        ),
        "count.pdf": lambda: _replaced(o2=b"<< /Type /Pages /Kids [3 0 R] /Count 2147483647 >>"),
        "negative.pdf": lambda: _replaced(o2=b"<< /Type /Pages /Kids [3 0 R] /Count -5 >>"),
        "chain.pdf": lambda: pdf(
            [*_replaced_list(o2=b"<< /Type /Pages /Kids [6 0 R] /Count 1 >>"), *chain, leaf]
        ),
        "wide.pdf": lambda: _replaced(o2=wide),
        "fan.pdf": lambda: pdf(
            [*_replaced_list(o2=b"<< /Type /Pages /Kids [6 0 R] /Count 1000000000 >>"), *fan, leaf]
        ),
        "pages.pdf": lambda: pdf(pages),
        "self.pdf": lambda: _replaced(o2=b"2 0 R", o3=b"3 0 R"),
        "cycle.pdf": lambda: _replaced(o2=b"3 0 R", o3=b"4 0 R", o4=b"2 0 R"),
        "nokids.pdf": lambda: _replaced(o2=b"<< /Type /Pages /Kids [] /Count 0 >>"),
        "nopages.pdf": lambda: _replaced(o1=b"<< /Type /Catalog >>"),
        "numbers.pdf": lambda: _replaced(
            o3=b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 1e39 -1e39] /Rotate 37 "
            b"/UserUnit 99999999 /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>"
        ),
        "nesting.pdf": lambda: _page_with(b"[" * 200_000 + b"]" * 200_000),
        "dictionaries.pdf": lambda: _replaced(o5=b"<< /A " * 100_000 + b">>" * 100_000),
        "outlines.pdf": lambda: pdf(
            [*pdf_page(more=b"/Outlines 6 0 R"),
             b"<< /First 7 0 R /Last 7 0 R /Count 1 >>",
             b"<< /Title (x) /Parent 6 0 R /Next 7 0 R /First 7 0 R >>"]
        ),
        "labels.pdf": lambda: pdf(
            [*pdf_page(more=b"/PageLabels 6 0 R /Names << /Dests 6 0 R >>"),
             b"<< /Kids [6 0 R 6 0 R] /Nums [0 << /S /r /St 2147483647 >>] >>"]
        ),
        "structure.pdf": lambda: pdf(
            [*pdf_page(more=b"/MarkInfo << /Marked true >> /StructTreeRoot 6 0 R"),
             b"<< /Type /StructTreeRoot /K 7 0 R >>",
             b"<< /Type /StructElem /S /P /P 7 0 R /K [7 0 R 7 0 R] >>"]
        ),
    }  # fmt: skip


def _replaced_list(**objects: bytes) -> list[bytes]:
    made = pdf_page()
    for name, content in objects.items():
        made[int(name[1:]) - 1] = content
    return made


def _zeros(megabytes: int) -> bytes:
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(b" " * 1_000_000) for _ in range(megabytes))
    return packed + packer.flush()


def _streams() -> dict[str, Make]:
    flate = b"/Filter /FlateDecode"
    text = b"BT /F 12 Tf 72 700 Td (%s) Tj ET\n" % WORDS.encode()
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 600 700] /Resources << /XObject << /X 6 0 R >> >>"
    drawn = b"/XObject << /X 6 0 R >>"
    ten = zlib.compress(text)
    for _ in range(9):
        ten = zlib.compress(ten)
    cmap = b"1 beginbfrange\n<0000> <FFFF> <0041>\nendbfrange\n" * 20_000
    font = b"<< /Type /Font /Subtype /Type0 /BaseFont /X /Encoding /Identity-H /ToUnicode 6 0 R /DescendantFonts [5 0 R] >>"
    glyph = stream(b"/X Do BT /F 12 Tf (a) Tj ET")
    return {
        "bomb.pdf": lambda: _replaced(o4=stream(_zeros(800), flate)),
        "tenfilters.pdf": lambda: _replaced(
            o4=stream(ten, b"/Filter [" + b"/FlateDecode " * 10 + b"]")
        ),
        "manyfilters.pdf": lambda: _replaced(
            o4=stream(text, b"/Filter [" + b"/ASCIIHexDecode " * 100_000 + b"]")
        ),
        "predictor.pdf": lambda: _replaced(
            o4=stream(zlib.compress(text), flate + b" /DecodeParms << /Predictor 15 /Columns "
                      b"2147483647 /Colors 99 /BitsPerComponent 64 >>")
        ),
        "lzw.pdf": lambda: _replaced(o4=stream(bytes(range(256)) * 4000, b"/Filter /LZWDecode")),
        "saves.pdf": lambda: _page_with(content=b"q " * 1_000_000 + text),
        "operators.pdf": lambda: _page_with(content=text * 100_000),
        "overprint.pdf": lambda: _page_with(
            content=b"BT /F 12 Tf 72 700 Td " + b"(%s) Tj 0 0 Td " % WORDS.encode() * 20_000 + b"ET"
        ),
        "paths.pdf": lambda: _page_with(content=b"0 0 m " + b"1 1 l 5 9 l " * 500_000 + b"S"),
        "rules.pdf": lambda: _page_with(
            content=b"".join(b"%d 0 m %d 700 l S\n" % (n % 600, n % 600) for n in range(100_000))
        ),
        "letters.pdf": lambda: _page_with(
            content=b"BT /F 1 Tf " + b"".join(
                b"1 0 0 1 %d %d Tm (x) Tj\n" % (n * 7 % 600, n * 13 % 780) for n in range(100_000)
            ) + b"ET"
        ),
        "hugefont.pdf": lambda: _page_with(content=text.replace(b"12 Tf", b"1e30 Tf")),
        "matrix.pdf": lambda: _page_with(
            content=b"0 0 0 0 0 0 cm 1e38 0 0 1e38 1e38 1e38 cm " + text
        ),
        "unended.pdf": lambda: _page_with(content=b"BT /F 12 Tf (" + b"(" * 1_000_000),
        "form.pdf": lambda: _page_with(stream(b"/X Do " * 50 + text, form), content=b"/X Do",
                                       page=drawn),
        "forms.pdf": lambda: _page_with(
            *(stream(b"/X Do " * 10,
                     form.replace(b"/X 6 0 R", b"/X %d 0 R" % (n + 7))) for n in range(15)),
            stream(text), content=b"/X Do", page=drawn),
        "type3.pdf": lambda: pdf(
            [*_replaced_list(
                o5=b"<< /Type /Font /Subtype /Type3 /FontBBox [0 0 1 1] /FontMatrix [1 0 0 1 0 0] "
                b"/CharProcs << /a 6 0 R >> /Encoding << /Differences [97 /a] >> /FirstChar 97 "
                b"/LastChar 97 /Widths [1] /Resources << /Font << /F 5 0 R >> >> >>"), glyph]
        ),
        "cmap.pdf": lambda: pdf([*_replaced_list(o5=font), stream(cmap)]),
        "cmapself.pdf": lambda: pdf(
            [*_replaced_list(o5=font), stream(b"/X usecmap", b"/UseCMap 6 0 R")]
        ),
        "length.pdf": lambda: _replaced(o4=b"<< /Length 4 0 R >>\nstream\n%s\nendstream" % text),
        "lengthlie.pdf": lambda: _replaced(
            o4=b"<< /Length 99999999999 >>\nstream\n%s\nendstream" % text
        ),
        "image.pdf": lambda: _page_with(
            stream(b"\xff", b"/Type /XObject /Subtype /Image /Width 2000000 /Height 2000000 "
                   b"/BitsPerComponent 8 /ColorSpace /DeviceRGB"), content=b"/X Do", page=drawn
        ),
        "contents.pdf": lambda: _replaced(
            o3=b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents ["
            + b"4 0 R " * 100_000 + b"] /Resources << /Font << /F 5 0 R >> >> >>"
        ),
        "noise.pdf": lambda: _page_with(content=bytes(range(256)) * 20_000),
    }  # fmt: skip


def _tables() -> dict[str, Make]:
    """The table of objects: lies, loops, compressed ones."""
    plain = pdf(pdf_page())
    start = plain.rindex(b"xref\n0")
    loop = plain.replace(b"/Root", b"/Prev %d /Root" % start)
    packed = pdf(
        [
            *pdf_page(),
            stream(b"7 0 " + b"<< /A 7 0 R >>", b"/Type /ObjStm /N 1 /First 4 /Extends 6 0 R"),
        ]
    )
    wide = stream(
        bytes(100), b"/Type /XRef /Size 99999999 /W [8 8 8] /Index [0 2147483647] /Root 1 0 R"
    )
    return {
        "prev.pdf": lambda: loop,
        "start.pdf": lambda: plain.replace(b"startxref\n", b"startxref\n9"),
        "nostart.pdf": lambda: plain[:start],
        "size.pdf": lambda: plain.replace(b"/Size 6", b"/Size 2147483647"),
        "entries.pdf": lambda: plain.replace(b"xref\n0 6", b"xref\n0 2000000000"),
        "offsets.pdf": lambda: plain.replace(b"00000 n", b"00000 f"),
        "objectstream.pdf": lambda: packed,
        "crossstream.pdf": lambda: (
            plain[:start] + b"9 0 obj\n" + wide + b"\nendobj\nstartxref\n%d\n%%%%EOF" % start
        ),
        "header.pdf": lambda: b"%PDF-1.7\n",
        "late.pdf": lambda: b"x" * 1000 + b"\n" + plain,
        "toolate.pdf": lambda: b"\0" * 5000 + plain,
        "twice.pdf": lambda: plain + plain,
        "comments.pdf": lambda: b"%PDF-1.4\n" + b"%" * 5_000_000,
        "objects.pdf": lambda: b"%PDF-1.4\n" + b"1 0 obj\n<<>>\nendobj\n" * 100_000,
        "recovery.pdf": lambda: b"%PDF-1.4\n" + b"0 obj " * 1_000_000,
        "name.pdf": lambda: _replaced(o5=b"<< /%s /Font >>" % (b"N" * 5_000_000)),
    }


def _actions(url: bytes, file: bytes) -> dict[str, Make]:
    """What a viewer would do when it opens the file, and encryption."""
    web = b"<< /S /URI /URI (%s) >>" % url
    files: dict[str, Make] = {
        f"{name}.pdf": partial(_acting, action)
        for name, action in {
            "script": b"<< /S /JavaScript /JS (app.launchURL('%s'); while(1){}) >>" % url,
            "launch": b"<< /S /Launch /F (%s) /Win << /F (cmd.exe) >> >>" % file,
            "uri": web,
            "submit": b"<< /S /SubmitForm /F << /FS /URL /F (%s) >> >>" % url,
            "goto": b"<< /S /GoToR /F (%s) /D [0 /Fit] >>" % file,
            "next": b"<< /S /URI /URI (%s) /Next 6 0 R >>" % url,
        }.items()
    }
    return {
        **files,
        "reference.pdf": lambda: _replaced(
            o4=b"<< /Length 0 /F << /FS /URL /F (%s) >> >>\nstream\n\nendstream" % url
        ),
        "referencefile.pdf": lambda: _replaced(
            o4=b"<< /Length 0 /F (%s) >>\nstream\n\nendstream" % file
        ),
        "xfa.pdf": lambda: pdf(
            [*pdf_page(more=b"/AcroForm << /XFA 6 0 R /Fields [6 0 R] >>"),
             stream(b'<!DOCTYPE x [<!ENTITY e SYSTEM "%s">]><x>&e;</x>' % file,
                    b"/Kids [6 0 R] /T (x)")]
        ),
        "userpassword.pdf": partial(_encrypted, "secret"),
        "ownerpassword.pdf": partial(_encrypted, ""),
        "crypt.pdf": lambda: pdf(
            pdf_page(), trailer=b"/Encrypt << /Filter /Standard /V 99 /R 99 /O () /U () /P 0 >>"
        ),
        "cryptself.pdf": lambda: pdf(pdf_page(), trailer=b"/Encrypt 6 0 R /ID [() ()]"),
    }  # fmt: skip


def _acting(action: bytes) -> bytes:
    return pdf([*pdf_page(more=b"/OpenAction 6 0 R /AA << /WC 6 0 R >>"), action])


def _encrypted(password: str) -> bytes:
    """A PDF that needs a password to be opened, or, with "", to be changed."""
    from reportlab.lib.pdfencrypt import StandardEncryption
    from reportlab.pdfgen.canvas import Canvas

    made = io.BytesIO()
    lock = StandardEncryption(password, ownerPassword="owner", strength=128)
    canvas = Canvas(made, encrypt=lock, invariant=True)
    canvas.drawString(72, 700, WORDS)
    canvas.save()
    return made.getvalue()
