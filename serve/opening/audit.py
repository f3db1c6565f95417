"""The audit log as the settings want it."""

from __future__ import annotations

from contextlib import AsyncExitStack

from retrieval.lifecycle.audit.recorder import AuditSettings, Recorder
from retrieval.store.database.pool import Pool
from serve.settings import Settings


def open_recorder(settings: Settings, pool: Pool, stack: AsyncExitStack) -> Recorder:
    """What notes requests, until the stack ends."""
    own = settings.audit
    recorder = Recorder(
        pool,
        AuditSettings(
            own.audit_log_enabled,
            frozenset(own.audit_log_actions),
            own.audit_log_bodies,
            own.audit_log_addresses,
        ),
    )
    recorder.start()
    stack.push_async_callback(recorder.close)
    return recorder
