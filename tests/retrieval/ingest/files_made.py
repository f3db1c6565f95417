"""Files for tests, made here: office documents and PDFs, whole and hostile."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from types import MappingProxyType

TYPES = "http://schemas.openxmlformats.org/package/2006/content-types"
RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
XML = '<?xml version="1.0" encoding="UTF-8"?>'


def zipped(parts: dict[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return made.getvalue()


def docx(
    text: str = "Ann moved to Lisbon.",
    head: str = XML,
    more: Mapping[str, str | bytes] = MappingProxyType({}),
) -> bytes:
    """A document of one paragraph; `head` stands in front of its root element."""
    return zipped(
        {
            "[Content_Types].xml": f'{XML}<Types xmlns="{TYPES}"><Default Extension="rels"'
            ' ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            '<Default Extension="xml" ContentType="application/xml"/></Types>',
            "_rels/.rels": f'{XML}<Relationships xmlns="{RELATIONS}"><Relationship Id="rId1"'
            f' Type="{OFFICE}/officeDocument" Target="word/document.xml"/></Relationships>',
            "word/document.xml": f'{head}<w:document xmlns:w="{WORD}"><w:body><w:p><w:r><w:t>{text}'
            "</w:t></w:r></w:p></w:body></w:document>",
            **more,
        }
    )


def xlsx() -> bytes:
    import openpyxl

    book = openpyxl.Workbook()
    for row in (["name", "city"], ["Ann", "Lisbon"]):
        book.active.append(row)
    made = io.BytesIO()
    book.save(made)
    return made.getvalue()


def pptx() -> bytes:
    import pptx as library

    show = library.Presentation()
    show.slides.add_slide(show.slide_layouts[0]).shapes.title.text = "Ann moved to Lisbon"
    made = io.BytesIO()
    show.save(made)
    return made.getvalue()


def pdf(text: str = "Ann moved to Lisbon.") -> bytes:
    drawn = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(drawn), drawn),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return made + b"xref\n0 %d\n0000000000 65535 f \n%strailer << /Size %d /Root 1 0 R >>\n" % (
        len(objects) + 1, table, len(objects) + 1,
    ) + b"startxref\n%d\n%%%%EOF" % len(made)  # fmt: skip
