"""Documents as blocks, and edits of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retrieval.mental import delta, document
from retrieval.mental.delta import Material, ShownFact
from retrieval.mental.document import Block, Document

pytestmark = pytest.mark.unit

TEXT = """Opening words.

## Tea

Ann likes *green* tea.
She drinks it at five.

- one
- two

### Pots

```
# no heading

x
```"""


def test_blocks_and_headings() -> None:
    found = document.parse(TEXT)
    assert [(s.heading, s.level) for s in found.sections] == [("", 2), ("Tea", 2), ("Pots", 3)]
    assert [b.text for b in found.sections[1].blocks] == [
        "Ann likes *green* tea.\nShe drinks it at five.",
        "- one\n- two",
    ]
    assert found.sections[2].blocks[0].text == "```\n# no heading\n\nx\n```"
    assert found.text == TEXT
    assert document.of(found.stored()) == found


def test_citations_of_characters() -> None:
    start = TEXT.index("Ann likes")
    found = document.parse(TEXT, [(start, start + 5, ["m1"]), (0, 3, ["m2"])], {"m1": "2024"})
    assert [b.cites for b in found.blocks()] == [("m2",), ("m1",), (), ()]
    assert [b.as_of for b in found.blocks()] == ["", "2024", "", ""]


lines = st.sampled_from(["# a", "## b ##", "text", "- x", "", "  ", "```", "~~~", "#no", "    y"])


@given(st.lists(lines, max_size=25))
def test_what_is_rendered_reads_the_same(parts: list[str]) -> None:
    once = document.parse("\n".join(parts))
    again = document.parse(once.text)
    assert [(s.heading, [b.text for b in s.blocks]) for s in again.sections] == [
        (s.heading, [b.text for b in s.blocks]) for s in once.sections
    ]
    ids = [s.id for s in once.sections] + [b.id for b in once.blocks()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("stored", [None, {}, {"sections": 5}, {"sections": [{}], "next_id": 1}])
def test_what_cannot_be_read(stored: Any) -> None:
    with pytest.raises(document.BadDocument):
        document.of(stored)


# Edits

BASE = document.parse(
    "## Tea\n\nAnn likes green tea.\n\nAnn drinks at 5.\n\n## Home\n\nAnn lives in Rome.",
)


def based(**cites: tuple[str, str]) -> Document:
    """BASE with (memory, time) for some blocks."""
    sections = tuple(
        document.Section(
            s.id,
            s.heading,
            tuple(
                Block(b.id, b.text, (cites[b.id][0],), cites[b.id][1]) if b.id in cites else b
                for b in s.blocks
            ),
            s.level,
        )
        for s in BASE.sections
    )
    return Document(sections, BASE.next_id)


IDS = {b.text: b.id for b in BASE.blocks()}
TEA, FIVE, ROME = (
    IDS[t] for t in ("Ann likes green tea.", "Ann drinks at 5.", "Ann lives in Rome.")
)
HOME = BASE.sections[1].id
FACTS = {
    "F1": ShownFact("F1", "m1", "Ann moved to Porto.", "2024-05-01T00:00:00+00:00"),
    "F2": ShownFact("F2", "m2", "Ann lived in Bern.", "2019-01-01T00:00:00+00:00"),
}
SHOWN = Material(FACTS, names=("Ann", "Rome", "Porto", "Bern", "Paris"))


def edited(
    edit: dict[str, Any], base: Document = BASE, material: Material = SHOWN
) -> delta.EditedDocument:
    return delta.apply(base, [edit], material)


def test_one_block_is_replaced() -> None:
    done = edited(
        {
            "op": "replace_block",
            "block_id": ROME,
            "blocks": ["Ann lives in Porto."],
            "facts": ["F1"],
        }
    )
    assert done.document.text == BASE.text.replace("Rome", "Porto")
    assert done.used == {"m1"}
    assert [b for b in done.document.blocks() if b.id in (TEA, FIVE)] == [
        b for b in BASE.blocks() if b.id in (TEA, FIVE)
    ]


@pytest.mark.parametrize(
    ("edit", "text"),
    [
        (
            {"op": "append_block", "section_id": HOME, "blocks": ["Porto now."], "facts": ["F1"]},
            f"{BASE.text}\n\nPorto now.",
        ),
        (
            {"op": "insert_block", "section_id": HOME, "blocks": ["Porto now."], "facts": "F1"},
            BASE.text.replace("Ann lives", "Porto now.\n\nAnn lives"),
        ),
        (
            {"op": "insert_block", "block_id": TEA, "blocks": ["Porto now."], "facts": ["[F1]"]},
            BASE.text.replace("Ann drinks", "Porto now.\n\nAnn drinks"),
        ),
        (
            {"op": "add_section", "heading": "## Now", "blocks": ["Porto."], "facts": ["F1"]},
            f"{BASE.text}\n\n## Now\n\nPorto.",
        ),
        (
            {"op": "rename_section", "section_id": HOME, "heading": "Where"},
            BASE.text.replace("## Home", "## Where"),
        ),
        (
            {"op": "remove_section", "section_id": HOME, "facts": ["F1"]},
            BASE.text.split("\n\n## Home")[0],
        ),
        (
            {"op": "replace_section_blocks", "section_id": HOME, "blocks": ["Porto.", "2024."],
             "facts": ["F1"]},
            BASE.text.replace("Ann lives in Rome.", "Porto.\n\n2024."),
        ),
        (
            {"op": "remove_block", "block_id": FIVE, "facts": ["F1"]},
            BASE.text.replace("\n\nAnn drinks at 5.", ""),
        ),
    ],
    ids=lambda value: value["op"] if isinstance(value, dict) else "",
)  # fmt: skip
def test_every_operation(edit: dict[str, Any], text: str) -> None:
    done = edited(edit)
    assert (done.document.text, done.skipped) == (text, ())


@pytest.mark.parametrize(
    "edit",
    [
        {"op": "erase"},
        {"op": "_block"},
        {"op": None},
        {"op": "replace_block", "block_id": "b99", "blocks": ["x"], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["Porto."], "facts": ["F9"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["Ann lives in Porto."]},
        {"op": "replace_block", "block_id": ROME, "blocks": [], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["# Porto"], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["Ann in Paris."], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["Porto since 1999."], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["Порту."], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["Porto [F1]."], "facts": ["F1"]},
        {"op": "replace_block", "block_id": ROME, "blocks": ["x" * 9000], "facts": ["F1"]},
        {"op": "remove_block", "block_id": ROME},
        {"op": "remove_section", "section_id": HOME},
        {"op": "append_block", "section_id": HOME, "blocks": ["Nothing behind this."]},
        {"op": "rename_section", "section_id": HOME, "heading": " "},
        {"op": "add_section", "heading": "", "blocks": ["Porto."], "facts": ["F1"]},
        "remove everything",
        None,
        5,
    ],
    ids=str,
)
def test_what_is_skipped(edit: Any) -> None:
    done = delta.apply(BASE, [edit], SHOWN)
    assert done.document == BASE
    assert (done.applied, done.used) == ((), frozenset())
    (skipped,) = done.skipped
    assert skipped["reason"]


def test_older_news_does_not_win() -> None:
    base = based(**{ROME: ("m0", "2024-01-01T00:00:00+00:00")})
    edit = {"op": "replace_block", "block_id": ROME, "blocks": ["Ann lived in Bern."]}
    assert edited({**edit, "facts": ["F2"]}, base).document == base
    assert edited({**edit, "facts": ["F1", "F2"]}, base).document != base
    assert edited({"op": "remove_block", "block_id": ROME, "facts": ["F2"]}, base).skipped


def test_what_is_gone_is_unsaid() -> None:
    base = based(**{TEA: ("m0", ""), ROME: ("m9", "")})
    left, mixed = delta.retract(base, frozenset({"m9"}))
    assert left.text == "## Tea\n\nAnn likes green tea.\n\nAnn drinks at 5."
    assert mixed == []
    both = document.Section("s1", "", (Block("b1", "Tea and rice.", ("m0", "m9")),))
    left, mixed = delta.retract(Document((both,), 5), frozenset({"m9"}))
    assert (left.text, mixed) == ("Tea and rice.", ["b1"])
    material = Material(known={"m0": "Ann likes tea."}, gone=frozenset({"m9"}), names=("Ann",))
    edit = {"op": "replace_block", "block_id": "b1", "blocks": ["Tea."]}
    done = edited(edit, Document((both,), 5), material)
    (block,) = done.document.blocks()
    assert (block.text, block.cites) == ("Tea.", ("m0",))


def test_nothing_is_taken_away_altogether() -> None:
    single = document.parse("Only this.")
    (block,) = single.blocks()
    for edit in (
        {"op": "remove_block", "block_id": block.id, "facts": ["F1"]},
        {"op": "remove_section", "section_id": single.sections[0].id, "facts": ["F1"]},
    ):
        assert edited(edit, single).document == single


anything = st.recursive(
    st.none()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from([TEA, ROME, HOME, "F1", "F2"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*("op", "block_id", "section_id", "blocks", "facts")]), inner
        )
    ),
    max_leaves=8,
)
hostile = st.fixed_dictionaries(
    {"op": st.sampled_from(delta.OPERATIONS)},
    optional=dict.fromkeys(
        ("block_id", "section_id", "heading", "blocks", "text", "facts"), anything
    ),
)


@given(st.lists(hostile | anything, max_size=6))
def test_whatever_is_proposed(edits: list[Any]) -> None:
    """Every edit is applied or skipped; what stays is letter by letter what it was, and nothing is
    said that rests on no fact."""
    done = delta.apply(BASE, edits, SHOWN)
    assert len(done.applied) + len(done.skipped) == len(edits)
    before = {b.id: b for b in BASE.blocks()}
    for block in done.document.blocks():
        if block.id in before:
            assert block == before[block.id]
        else:
            assert block.cites or any("replace" in str(one["op"]) for one in done.applied)
    assert done.used <= {"m1", "m2"}
    assert list(done.document.blocks())
