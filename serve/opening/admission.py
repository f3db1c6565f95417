"""Who may run and who waits, as the settings and the tenants' own limits want it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from retrieval.store import limits as tenant_limits
from retrieval.store.database.pool import Pool
from serve.admission.controller import AdmissionController, AdmissionLimits, LimitShare
from serve.opening.llm import LanguageModels
from serve.settings import Settings

N = TypeVar("N", int, float)

REFLECT_WAIT_S = 30.0
"""Longest wait in the line of reflects, each of which takes seconds."""
WAITING_PER_CALL = 4
"""Retains by a language model that a process has open, for each call that it may make at once."""
RETAIN_WAIT_S = 30.0
"""How long such a retain waits for a place at most."""


def recall_admission(
    settings: Settings, pool: Pool, share: Callable[[], LimitShare] = LimitShare
) -> AdmissionController:
    """Admission of recalls; a tenant's own limits win over those of the settings."""
    most, line = settings.recall.recall_max_concurrent, settings.limits.recall_queue_max
    return AdmissionController(most, line, limits=_recall_limits(settings, pool), share=share)


def _recall_limits(settings: Settings, pool: Pool) -> Callable[[str], Awaitable[AdmissionLimits]]:
    common = settings.limits

    async def limits(tenant: str) -> AdmissionLimits:
        own = await tenant_limits.of_tenant(pool, tenant)
        return AdmissionLimits(
            _first(own.recalls_at_once, common.tenant_max_concurrent),
            _first(own.recalls_per_s, common.tenant_requests_per_s),
            _first(own.recall_burst, common.tenant_burst),
        )

    return limits


def write_admission(
    settings: Settings, pool: Pool, share: Callable[[], LimitShare] = LimitShare
) -> AdmissionController:
    """Admission of writes; only tenants with limits of their own have any."""

    async def limits(tenant: str) -> AdmissionLimits:
        own = await tenant_limits.of_tenant(pool, tenant)
        return AdmissionLimits(
            own.writes_at_once or 0,
            own.writes_per_s or 0.0,
            _first(own.write_burst, settings.limits.tenant_burst),
        )

    most, line = settings.limits.write_max_concurrent, settings.limits.write_queue_max
    return AdmissionController(most, line, limits=limits, share=share)


def reflect_admission(
    settings: Settings, pool: Pool, share: Callable[[], LimitShare] = LimitShare
) -> AdmissionController:
    """Admission of reflects; a tenant's limits are those of its recalls."""
    most, line = settings.reflect.reflect_max_concurrent, settings.limits.recall_queue_max
    return AdmissionController(
        most, line, wait_max_s=REFLECT_WAIT_S, limits=_recall_limits(settings, pool), share=share
    )


def retain_admission(
    settings: Settings,
    pool: Pool,
    llm: LanguageModels,
    share: Callable[[], LimitShare] = LimitShare,
) -> AdmissionController:
    """Admission of retains that wait for a language model, apart from writes that do not: most of
    their time they wait for a turn at its account, which is fair by itself, so that many may; and a
    quarter of the places is left to tenants with nothing running."""

    async def limits(tenant: str) -> AdmissionLimits:
        own = await tenant_limits.of_tenant(pool, tenant)
        return AdmissionLimits(own.writes_at_once or 0)

    most = WAITING_PER_CALL * max(llm.retains_at_once, settings.limits.write_max_concurrent)
    return AdmissionController(
        most,
        settings.limits.write_queue_max,
        wait_max_s=RETAIN_WAIT_S,
        kept=most // 4,
        limits=limits,
        share=share,
    )


def read_admission(settings: Settings) -> AdmissionController:
    """Admission of lists, statistics and single reads: bounds and turns, no rates."""
    common = settings.limits
    return AdmissionController(common.read_max_concurrent, common.read_queue_max)


def _first(own: N | None, common: N) -> N:
    return common if own is None else own
