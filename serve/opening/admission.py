"""Who may run and who waits, as the settings and the tenants' own limits want it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from retrieval.store import limits as tenant_limits
from retrieval.store.database.pool import Pool
from serve.admission.controller import AdmissionController, AdmissionLimits, LimitShare
from serve.opening.counting import Counting
from serve.opening.hot import HotSettings
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
    settings: Settings,
    pool: Pool,
    share: Callable[[], LimitShare] = LimitShare,
    hot: HotSettings | None = None,
    counting: Counting | None = None,
) -> AdmissionController:
    """Admission of recalls; a tenant's own limits win over those of the settings."""
    limits = _recall_limits(settings, pool, hot)
    return _sized("recall", settings, limits, share, hot, counting)


def _sized(
    name: str,
    settings: Settings,
    limits: Callable[[str], Awaitable[AdmissionLimits]],
    share: Callable[[], LimitShare],
    hot: HotSettings | None,
    counting: Counting | None,
) -> AdmissionController:
    """A controller that at any time has the size that the settings say."""
    most, line = f"{name}_max_concurrent", f"{name}_queue_max"
    counting = counting or Counting()
    controller = AdmissionController(
        _value(settings, hot, most),
        _value(settings, hot, line),
        limits=limits,
        share=share,
        refused=counting.refused(name),
        visited=counting.visited(name),
    )
    if hot is not None:
        hot.tell(
            lambda: controller.resize(_value(settings, hot, most), _value(settings, hot, line))
        )
    return controller


def _value(settings: Settings, hot: HotSettings | None, name: str) -> Any:
    """What a setting is at the moment."""
    started = getattr(settings.limits, name, None)
    if started is None:
        started = getattr(settings.recall, name)
    return started if hot is None else hot.value(name, started)


def _recall_limits(
    settings: Settings, pool: Pool, hot: HotSettings | None
) -> Callable[[str], Awaitable[AdmissionLimits]]:
    async def limits(tenant: str) -> AdmissionLimits:
        own = await tenant_limits.of_tenant(pool, tenant)
        return AdmissionLimits(
            _first(own.recalls_at_once, _value(settings, hot, "tenant_max_concurrent")),
            _first(own.recalls_per_s, _value(settings, hot, "tenant_requests_per_s")),
            _first(own.recall_burst, _value(settings, hot, "tenant_burst")),
        )

    return limits


def write_admission(
    settings: Settings,
    pool: Pool,
    share: Callable[[], LimitShare] = LimitShare,
    hot: HotSettings | None = None,
    counting: Counting | None = None,
) -> AdmissionController:
    """Admission of writes; only tenants with limits of their own have any."""

    async def limits(tenant: str) -> AdmissionLimits:
        own = await tenant_limits.of_tenant(pool, tenant)
        return AdmissionLimits(
            own.writes_at_once or 0,
            own.writes_per_s or 0.0,
            _first(own.write_burst, _value(settings, hot, "tenant_burst")),
        )

    return _sized("write", settings, limits, share, hot, counting)


def reflect_admission(
    settings: Settings,
    pool: Pool,
    share: Callable[[], LimitShare] = LimitShare,
    hot: HotSettings | None = None,
) -> AdmissionController:
    """Admission of reflects; a tenant's limits are those of its recalls."""
    most, line = settings.reflect.reflect_max_concurrent, settings.limits.recall_queue_max
    limits = _recall_limits(settings, pool, hot)
    return AdmissionController(most, line, wait_max_s=REFLECT_WAIT_S, limits=limits, share=share)


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


def read_admission(
    settings: Settings,
    pool: Pool,
    share: Callable[[], LimitShare] = LimitShare,
    hot: HotSettings | None = None,
    counting: Counting | None = None,
) -> AdmissionController:
    """Admission of lists, statistics and single reads; only tenants with limits of their own have
    any, beside bounds and turns."""

    async def limits(tenant: str) -> AdmissionLimits:
        own = await tenant_limits.of_tenant(pool, tenant)
        return AdmissionLimits(
            own.reads_at_once or 0,
            own.reads_per_s or 0.0,
            _first(own.read_burst, _value(settings, hot, "tenant_burst")),
        )

    return _sized("read", settings, limits, share, hot, counting)


def _first(own: N | None, common: N) -> N:
    return common if own is None else own
