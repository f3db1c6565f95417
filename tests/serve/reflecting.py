"""The application with a reflect whose language model answers by script."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from models.passthrough import Passthrough
from retrieval.recall.engine import RecallEngine
from retrieval.reflect.engine import ReflectEngine
from retrieval.reflect.stored import DatabaseReads
from serve.opening.translation import OpenedReranker
from tests.retrieval.llm.scripted import Scripted
from tests.serve.conftest import Live

BANK = "reflects"
MEMORIES = (
    {"key": "tea", "text": "Ann likes green tea and drinks three cups a day."},
    {
        "key": "move",
        "text": "Ann moved to Lisbon on 5 May 2024.",
        "occurred_start": "2024-05-05",
        "mentioned_at": "2024-06-01T10:00:00Z",
        "document_id": "letters",
    },
    {"key": "bob", "text": "Bob works at Siemens in Munich.", "tags": ["work"]},
    {
        "key": "seen",
        "text": "Ann is settled in Lisbon and feels at home there.",
        "type": "observation",
    },
)


class Known:
    """Mental models and directives of a bank."""

    def __init__(self, models: Any = (), directives: Any = (), left_out: Any = ()) -> None:
        self.models, self.directives, self.left_out = models, directives, left_out
        self.asked: list[Any] = []

    async def search(self, tenant: str, bank: str, query: str, scope: Any, limit: int) -> Any:
        self.asked.append(scope)
        return self.models[:limit]

    async def for_reflect(self, tenant: str, bank: str, *args: Any) -> Any:
        self.asked.append(args)
        return self.directives, self.left_out


@contextmanager
def scripted(
    live: Live, *answers: Any, known: Known | None = None, **settings: Any
) -> Iterator[Any]:
    """The application with a reflect whose language model answers by script."""
    services = live.services
    llm = Scripted(*answers)
    assert services.explainer is not None
    retriever = services.explainer.retriever
    recalls = RecallEngine(
        services.pool, retriever, OpenedReranker(Passthrough()), services.settings.recall
    )
    engine = ReflectEngine(
        DatabaseReads(services.pool),
        llm,
        recalls,
        recalls,
        dataclasses.replace(services.settings.reflect, **settings),
        models=known,
        directives=known,
    )
    live.api.state.services = dataclasses.replace(services, reflector=engine)
    try:
        yield llm
    finally:
        live.api.state.services = services
