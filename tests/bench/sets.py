"""Evaluation sets in one frozen shape: banks of memories to import, and questions to ask them.

The data lies outside the repository (`folder`), as some of it is for evaluation only. A memory is
an item of the import route (`key`, `text`, `context`, `occurred_start`, ... ); a question names
the keys of the memories that answer it.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from retrieval.ingest.entities.naming import names
from tests.support.system import Memory


@dataclass(frozen=True, slots=True)
class Question:
    """`gold` maps a key to its gain (> 0). With `by_document` the keys are document ids: the data
    only says in which document the answer stands. `now` is when it was asked, if the data says."""

    text: str
    gold: Mapping[str, float]
    category: str
    now: datetime | None = None
    by_document: bool = False


@dataclass(frozen=True, slots=True)
class Bank:
    name: str
    memories: tuple[Memory, ...]
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class EvaluationSet:
    name: str
    banks: tuple[Bank, ...]

    @property
    def memories(self) -> int:
        return sum(len(bank.memories) for bank in self.banks)

    @property
    def questions(self) -> int:
        return sum(len(bank.questions) for bank in self.banks)


class DataMissing(Exception):
    """The evaluation data is not on this machine; the message says where it was looked for."""


def folder() -> Path:
    """Where the evaluation data lies: FOURFOLD_SHARED, or `shared` beside the repository or
    beside the folder that it lies in."""
    given = os.environ.get("FOURFOLD_SHARED")
    root = Path(__file__).resolve().parents[2]
    places = [Path(given)] if given else [root.parent / "shared", root.parent.parent / "shared"]
    for place in places:
        if (place / "data").is_dir():
            return place
    raise DataMissing(f"no evaluation data in {' or '.join(str(p) for p in places)}")


def load(name: str) -> EvaluationSet:
    """The set of that name; ValueError where there is none, DataMissing where its data is not."""
    try:
        loader = LOADERS[name]
    except KeyError:
        raise ValueError(f"unknown set {name!r}: use one of {', '.join(LOADERS)}") from None
    return EvaluationSet(name, tuple(loader(folder() / "data")))


def _locomo(data: Path) -> Iterator[Bank]:
    """Two-person conversations: one memory a turn, a session is a document, the speakers are the
    entities. Questions without evidence are left out."""
    for row in _rows(data / "locomo/locomo.jsonl.gz"):
        memories = tuple(
            {
                "key": turn["id"],
                "text": f"{turn['speaker']}: {turn['text']}",
                "occurred_start": _instant(turn["date_time"]),
                "mentioned_at": _instant(turn["date_time"]),
                "entities": [turn["speaker"]],
                "document_id": f"session-{turn['session']}",
            }
            for turn in row["memories"]
        )
        questions = tuple(
            Question(q["question"], dict.fromkeys(q["evidence"], 1.0), q["category"])
            for q in row["questions"]
            if q["evidence"]
        )
        yield Bank(row["bank"], memories, questions)


def _longmemeval(data: Path) -> Iterator[Bank]:
    """Chats with an assistant: one memory a turn, a session is a document. The original questions
    mark the turns that answer them; the added ones only the session."""
    for row in _rows(data / "longmemeval/longmemeval_subset.jsonl.gz"):
        memories: list[Memory] = []
        answers: dict[str, list[str]] = {}
        for session in row["sessions"]:
            for place, turn in enumerate(session["turns"]):
                key = f"{session['id']}:{place}"
                when = _instant(session["date_time"])
                memories.append(
                    {
                        "key": key,
                        "text": f"{turn['role']}: {turn['content']}",
                        "type": "world" if turn["role"] == "user" else "experience",
                        "occurred_start": when,
                        "mentioned_at": when,
                        "document_id": session["id"],
                    }
                )
                if turn.get("has_answer"):
                    answers.setdefault(session["id"], []).append(key)
        asked = datetime.fromisoformat(row["question_date"]).replace(tzinfo=UTC)
        questions = []
        for q in row["questions"]:
            turns = [key for session in q["answer_session_ids"] for key in answers.get(session, ())]
            exact = q["original"] and bool(turns)
            gold = dict.fromkeys(turns if exact else q["answer_session_ids"], 1.0)
            questions.append(
                Question(q["question"], gold, q["question_type"], asked, by_document=not exact)
            )
        yield Bank(row["bank"], tuple(memories), tuple(questions))


def _musique(data: Path) -> Iterator[Bank]:
    """Multi-hop questions over paragraphs, with the entities that a language model found."""
    corpus = _rows(data / "multihop/musique_corpus.jsonl.gz")
    memories = tuple(_paragraph(row, [row["title"], *row["llm_entities"]]) for row in corpus)
    questions = tuple(
        Question(q["question"], dict.fromkeys(q["supporting"], 1.0), f"{q['hops']}-hop")
        for q in _rows(data / "multihop/musique_questions.jsonl.gz")
    )
    yield Bank("musique", memories, questions)


def _hotpotqa(data: Path) -> Iterator[Bank]:
    """Multi-hop questions over paragraphs; the entities are capitalised names, found by rule."""
    corpus = _rows(data / "multihop/hotpotqa_corpus.jsonl.gz")
    memories = tuple(_paragraph(row, [row["title"], *names(row["text"])]) for row in corpus)
    questions = tuple(
        Question(q["question"], dict.fromkeys(q["supporting"], 1.0), q["type"])
        for q in _rows(data / "multihop/hotpotqa_questions.jsonl.gz")
    )
    yield Bank("hotpotqa", memories, questions)


def _paragraph(row: Mapping[str, Any], entities: Iterable[str]) -> Memory:
    return {
        "key": row["id"],
        "text": f"{row['title']}: {row['text']}",
        "entities": list(dict.fromkeys(entities)),
    }


def _collection(name: str) -> Callable[[Path], Iterator[Bank]]:
    """A classic test collection: title and text of a document as one memory. Empty documents
    and their judgements are left out."""

    def load_collection(data: Path) -> Iterator[Bank]:
        place = data / "ir" / name
        memories = tuple(
            {"key": row["_id"], "text": text}
            for row in _rows(place / "corpus.jsonl.gz")
            if (text := f"{row['title']}. {row['text']}".strip(" ."))
        )
        known = {memory["key"] for memory in memories}
        judged: dict[str, dict[str, float]] = {}
        for line in (place / "qrels.tsv").read_text().splitlines()[1:]:
            query, document, score = line.split("\t")
            if float(score) > 0 and document in known:
                judged.setdefault(query, {})[document] = float(score)
        questions = tuple(
            Question(row["text"], judged[row["_id"]], "all")
            for row in _rows(place / "queries.jsonl")
            if row["_id"] in judged
        )
        yield Bank(name, memories, questions)

    return load_collection


def _plain(
    name: str, bank: Callable[[str], bool] | None = None
) -> Callable[[Path], Iterator[Bank]]:
    """A set in the plain format: memories and questions that name their bank. `bank` picks some of
    its banks by name."""

    def load_plain(data: Path) -> Iterator[Bank]:
        memories: dict[str, list[Memory]] = {}
        questions: dict[str, list[Question]] = {}
        for row in _rows(data / name / "memories.jsonl.gz"):
            memories.setdefault(row.pop("bank"), []).append(row)
        for row in _rows(data / name / "questions.jsonl"):
            asked = row.get("asked_at")
            questions.setdefault(row["bank"], []).append(
                Question(
                    row["question"],
                    dict.fromkeys(row["evidence"], 1.0),
                    row["category"],
                    None if asked is None else datetime.fromisoformat(asked),
                )
            )
        for one, rows in memories.items():
            if bank is None or bank(one):
                yield Bank(one, tuple(rows), tuple(questions.get(one, ())))

    return load_plain


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        raise DataMissing(f"no file {path}")
    raw = path.read_bytes()
    lines = gzip.decompress(raw) if path.suffix == ".gz" else raw
    yield from (json.loads(line) for line in lines.split(b"\n") if line)


def _instant(text: str) -> str:
    """An ISO time without a zone, taken as UTC."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).isoformat()


LOADERS: Mapping[str, Callable[[Path], Iterator[Bank]]] = {
    "locomo": _locomo,
    "longmemeval": _longmemeval,
    "musique": _musique,
    "hotpotqa": _hotpotqa,
    "scifact": _collection("scifact"),
    "cranfield": _collection("cranfield"),
    "cisi": _collection("cisi"),
    "qmsum": _plain("qmsum"),
    "madial-en": _plain("madial", lambda bank: bank == "madial-en"),
    "madial-zh": _plain("madial", lambda bank: bank == "madial-zh"),
    "morehop": _plain("morehop"),
    "entailment": _plain("entailment"),
    "timeqa": _plain("timeqa"),
    "chronoqa": _plain("chronoqa"),
    "xquad-en": _plain("xquad", lambda bank: bank == "xquad-en"),
    "xquad": _plain("xquad", lambda bank: bank != "xquad-en"),
    "jsquad": _plain("jsquad"),
}
