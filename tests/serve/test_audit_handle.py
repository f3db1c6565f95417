"""An entry of the audit log goes over the handle of a stage, and into the log with the change."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pytest

from retrieval.errors import InvalidInput
from retrieval.lifecycle.audit.recorder import noting
from retrieval.store.audit import AuditEntry
from retrieval.store.database.pool import read
from serve.cluster.deployments import IngestReplica
from serve.cluster.remote import Handle
from serve.cluster.remote_writer import RemoteWriter
from tests.serve.conftest import Live
from tests.serve.stages import Response

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="session")]


class Ingest:
    """The handle of a stage whose replica has this writer; what is sent is pickled on the way, as
    Ray does. `more`: what a later program sends beside."""

    def __init__(self, writer: Any, **more: Any) -> None:
        self._replica = SimpleNamespace(writer=writer, _running=0)
        self._more = more

    def options(self, session_id: str) -> Ingest:
        return self

    @property
    def do(self) -> Any:
        async def answer(*args: Any, noted: Mapping[str, Any] | None = None) -> Any:
            sent = None if noted is None else {**noted, **self._more}
            held = pickle.loads(pickle.dumps((args, sent)))
            do: Any = IngestReplica.do
            return await do(self._replica, *held[0], noted=held[1])

        return SimpleNamespace(remote=lambda *args, **named: Response(answer(*args, **named)))

    def running_replicas_populated(self) -> bool:
        return True

    @property
    def _router(self) -> Any:
        known = SimpleNamespace(curr_replicas={0: None})
        return SimpleNamespace(_asyncio_router=SimpleNamespace(request_router=known))


async def entries(live: Live, bank: str) -> list[Any]:
    return await read(
        live.services.pool,
        lambda c: c.fetch("select id, action, metadata from audit_logs where bank_id = $1", bank),
    )


@pytest.mark.parametrize("more", [{}, {"region": "north"}])
async def test_it_is_committed_with_the_change(live: Live, more: dict[str, Any]) -> None:
    bank = uuid4().hex
    entry = AuditEntry(
        "default", bank, "retain", "http", datetime.now(UTC), metadata={"key_id": "k"}
    )
    writer = RemoteWriter(cast(Handle, Ingest(live.services.writer, **more)))
    with noting(entry):
        done = await writer.import_memories("default", bank, [{"text": "Ann rows."}])
    assert done["imported"] == 1
    (row,) = await entries(live, bank)
    assert (row["id"], row["action"], row["metadata"]) == (entry.id, "retain", {"key_id": "k"})


async def test_what_was_refused_leaves_none(live: Live) -> None:
    bank = uuid4().hex
    entry = AuditEntry("default", bank, "retain", "http", datetime.now(UTC))
    writer = RemoteWriter(cast(Handle, Ingest(live.services.writer)))
    with noting(entry), pytest.raises(InvalidInput):
        await writer.import_memories("default", bank, [{"text": 5}])
    assert await entries(live, bank) == []
