"""What files are, and their text; hostile ones cost a sentence."""

import os
import tempfile
import time

import pytest

from retrieval.ingest.files.conversion import NotConverted, converted
from retrieval.ingest.files.detection import Unread, detect
from retrieval.ingest.files.text import NoText, decoded, page
from tests.retrieval.ingest.files_made import XML, docx, pdf, pptx, xlsx, zipped

GERMAN = "Grüße aus München: schöne Straßen, überall Bäume und Öfen."
JAPANESE = "こんにちは世界。今日は天気がいいですね。アンは東京へ引っ越しました。"


def kind(data: bytes) -> str:
    return detect(data[: 64 << 10], data[-64 << 10 :])


@pytest.mark.unit
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"Ann likes tea.", "text"),
        (b"# Kiln\n\n- warm\n", "text"),
        (b"name,city\nAnn,Lisbon\n", "text"),
        (b'{"a": 1}\n{"a": 2}\n', "text"),
        (b"a: 1\nb:\n  - 2\n", "text"),
        (b'<?xml version="1.0"?><a>Ann</a>', "text"),
        (b"def f():\n\treturn 1\n", "text"),
        (b"<!-- x --><!DOCTYPE HTML><p>Ann", "html"),
        (b"  <html><body>Ann", "html"),
        (JAPANESE.encode("shift_jis"), "text"),
        (GERMAN.encode("utf-16"), "text"),
        (GERMAN.encode("utf-16-be"), "text"),
        (b"MZ is how the letter begins.", "text"),
        (b"BMW built it, they say, long ago.", "text"),
        (b"x" * 65535 + "é".encode(), "text"),  # cut inside a character
        (pdf(), "pdf"),
        (docx(), "docx"),
    ],
)
def test_kinds(data: bytes, expected: str) -> None:
    assert kind(data) == expected


@pytest.mark.unit
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b" \n\0\n", "is empty"),
        (b"\x89PNG\r\n\x1a\n" + os.urandom(99), "image"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image"),
        (b"RIFF\x24\0\0\0WAVEfmt ", "recording"),
        (b"ID3\x03\0\0", "recording"),
        (b"\0\0\0\x18ftypmp42\0\0", "recording"),
        (b"\x1f\x8b\x08\0" + os.urandom(50), "archive"),
        (zipped({"a.txt": "Ann"}), "archive"),
        (zipped({"META-INF/MANIFEST.MF": "x"}), "archive"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 512, "old or a protected Office"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 60, "program"),
        (b"MZ\x90\0\x03\0\0\0", "program"),
        (b"SQLite format 3\0", "database"),
        (rb"{\rtf1\ansi Ann}", "RTF"),
        (bytes(range(256)) * 40, "no text"),
        (b"\x00\x01\x02\x03\xfe\xfd" * 500, "no text"),
    ],
)
def test_what_is_not_read_says_why(data: bytes, why: str) -> None:
    with pytest.raises(Unread, match=why):
        kind(data)


@pytest.mark.unit
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (GERMAN, "utf-8"),
        (GERMAN, "utf-8-sig"),
        (GERMAN, "latin-1"),
        (GERMAN, "utf-16"),
        (GERMAN, "utf-16-le"),
        (GERMAN, "utf-16-be"),
        (GERMAN, "utf-32"),
        (JAPANESE, "shift_jis"),
        (JAPANESE, "euc_jp"),
        ("Анна переехала в Лиссабон и работает в мастерской керамики.", "cp1251"),
        ("“Quotes” – and dashes… costs 5 €", "cp1252"),
    ],
)
def test_encodings(text: str, encoding: str) -> None:
    assert decoded(text.encode(encoding)) == text


@pytest.mark.unit
def test_declared_encodings_and_nul() -> None:
    html = f'<html><meta charset="iso-8859-2">{"Łódź żółć"}'.encode("iso-8859-2")
    assert "Łódź żółć" in decoded(html)
    assert decoded(b"An\0n likes tea." + b" It is so." * 9) == "Ann likes tea." + " It is so." * 9
    bomb = b'<html><meta charset="zip">Ann likes tea.'  # a codec that is no encoding
    assert decoded(bomb) == bomb.decode()
    with pytest.raises(NoText):
        decoded(bytes(range(256)) * 40)


@pytest.mark.unit
def test_a_page_says_what_a_reader_sees() -> None:
    html = """<!doctype html><head><title>Kiln</title><style>p {}</style>
    <script>if (a < b) { "<p>hidden</p>" }</script></head><body><h2>Plan</h2>
    <p>Ann &amp; Bo <b>moved</b> to&nbsp;Lisbon.</p><ul><li>one<li>two</ul>
    <table><tr><td>a</td><td>b</td></tr></table><br/><p>End"""
    said = page(html)
    assert said.splitlines()[:3] == ["Kiln", "", "## Plan"]
    assert "Ann & Bo moved to" in said
    assert "- one\n- two" in said
    assert "| a | b" in said
    assert "hidden" not in said
    deep = "<div>" * 50_000 + "Ann"
    assert page(deep) == "Ann"


async def convert(data: bytes, limit_s: float = 120.0, as_kind: str | None = None) -> str:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return await converted(file, as_kind or kind(data), limit_s)  # type: ignore[arg-type]


@pytest.mark.integration
async def test_texts_of_files() -> None:
    assert await convert(GERMAN.encode("latin-1")) == GERMAN
    assert await convert(b"<html><body><p>Ann <i>moved</i>.") == "Ann moved."
    for made in (docx(), pdf(), pptx(), xlsx()):
        said = await convert(made)
        assert "Ann" in said
        assert "Lisbon" in said


def _entity(target: str) -> str:
    return f'{XML}<!DOCTYPE d [<!ENTITY x SYSTEM "{target}">]>'


HOSTILE = {
    "a local file": (docx("&x;", _entity("file:///etc/passwd")), "document type definition"),
    "an address": (docx("&x;", _entity("http://127.0.0.1:1/")), "document type definition"),
    "laughs": (
        docx("&b;", f'{XML}<!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]>'),
        "document type definition",
    ),
    "in utf-16": (
        docx(more={"word/other.xml": _entity("file:///etc/passwd").encode("utf-16")}),
        "document type definition",
    ),
    "in another encoding": (
        docx(more={"word/other.xml": '<?xml version="1.0" encoding="UTF-7"?><a/>'}),
        "encoding",
    ),
    "no xml at all": (docx(more={"word/other.xml": b"\x4c\x6f\xa7\x94"}), "encoding"),
    "many parts": (docx(more={f"word/{i}": "" for i in range(10_001)}), "more than 10,000 parts"),
    "a bomb": (docx(more={"word/media/x": bytes(600 << 20)}), "unpacks to more than 512 MiB"),
    "cut off": (docx()[:-60], "damaged"),
    "overwritten": (docx().replace(b"word/document.xml", b"word/document.xm_", 1), "damaged"),
    "a pdf cut off": (pdf()[:200], "damaged|no text"),
    "no pdf": (b"%PDF-1.7\n" + bytes(range(256)) * 20, "damaged|no text"),
    "an empty pdf": (pdf(""), "holds no text"),
}


@pytest.mark.integration
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_files(name: str) -> None:
    data, why = HOSTILE[name]
    with pytest.raises(NotConverted, match=why) as caught:
        await convert(data)
    assert "root:" not in str(caught.value)


@pytest.mark.integration
async def test_a_conversion_has_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotConverted, match="50,000,000 characters"):
        await convert(b"a" * 50_000_001)
    began = time.monotonic()
    with pytest.raises(NotConverted, match="takes longer"):
        await convert(pdf(), limit_s=0.05)
    assert time.monotonic() - began < 5


_CONFINED = """
import json, os, socket, subprocess, sys
os.environ["SEEN"] = "1"
from retrieval.ingest.files import child
child._limited()
child._confined()
def fails(what):
    try:
        what()
    except OSError:
        return True
    return False
print(json.dumps({
    "socket": fails(lambda: socket.create_connection(("127.0.0.1", 1), 1)),
    "lookup": fails(lambda: socket.getaddrinfo("localhost", 80)),
    "passwd": fails(lambda: open("/etc/passwd")),
    "write": fails(lambda: open("/tmp/written-by-a-converter", "w")),
    "process": fails(lambda: subprocess.run(["true"])),
    "shell": fails(lambda: os.system("true")),
}))
"""


@pytest.mark.integration
def test_a_converter_reaches_nothing() -> None:
    import json
    import subprocess
    import sys

    done = subprocess.run(
        [sys.executable, "-c", _CONFINED], capture_output=True, check=True, text=True
    )
    assert set(json.loads(done.stdout).values()) == {True}


@pytest.mark.integration
async def test_a_converter_knows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    from retrieval.ingest.files import conversion

    monkeypatch.setenv("FOURFOLD_LLM_API_KEY", "sk-secret")
    assert "sk-secret" not in str(conversion.environment())
