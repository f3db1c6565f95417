"""Banks: list, profile, config, end."""

from __future__ import annotations

from datetime import UTC, datetime

from starlette.exceptions import HTTPException
from starlette.responses import Response

from retrieval.store import banks, stats, timeseries
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader, Services, looking
from serve.http.wire.banks import BackgroundBody, BankBody, ConfigBody, DispositionBody
from serve.http.wire.pages import Offset, PageSize

router = Router(tags=["banks"])


@router.get("/v1/default/banks", operation_id="list_banks")
async def list_banks(
    tenant: Reader,
    services: Given,
    q: str | None = None,
    limit: PageSize = 100,
    offset: Offset = 0,
) -> Response:
    """The tenant's banks, latest write first."""
    return json_response(
        await banks.list_banks(services.pool, tenant, q=q, limit=limit, offset=offset)
    )


@router.put(BANK, operation_id="create_or_update_bank")
async def put_bank(bank_id: str, body: BankBody, tenant: Changer, services: Given) -> Response:
    """Makes a bank, or changes what is given of it."""
    return json_response(await banks.put(services.pool, tenant, bank_id, body.changes))


@router.patch(BANK, operation_id="update_bank")
async def patch_bank(bank_id: str, body: BankBody, tenant: Changer, services: Given) -> Response:
    """Changes what is given of a bank that exists."""
    return json_response(await banks.patch(services.pool, tenant, bank_id, body.changes))


@router.delete(BANK, operation_id="delete_bank")
async def delete_bank(bank_id: str, tenant: Changer, services: Given) -> Response:
    """Ends a bank and all that it holds."""
    return json_response(await banks.delete(services.pool, tenant, bank_id, note=services.note))


@router.get(f"{BANK}/profile", operation_id="get_bank_profile", deprecated=True)
async def profile(bank_id: str, tenant: Reader, services: Given) -> Response:
    return json_response(await banks.profile(services.pool, tenant, bank_id))


@router.put(f"{BANK}/profile", operation_id="update_bank_disposition", deprecated=True)
async def put_profile(
    bank_id: str, body: DispositionBody, tenant: Changer, services: Given
) -> Response:
    change = {"disposition": body.disposition.model_dump()}
    return json_response(await banks.put(services.pool, tenant, bank_id, change))


@router.post(f"{BANK}/background", operation_id="add_bank_background", deprecated=True)
async def background(
    bank_id: str, body: BackgroundBody, tenant: Changer, services: Given
) -> Response:
    found = await banks.put(services.pool, tenant, bank_id, {"background": body.content})
    return json_response({"mission": found["mission"], "background": found["background"]})


def _config_open(services: Services) -> None:
    if not services.settings.server.enable_bank_config_api:
        raise HTTPException(404, "the bank config API is switched off")


@router.get(f"{BANK}/config", operation_id="get_bank_config")
async def config(bank_id: str, tenant: Reader, services: Given) -> Response:
    """A bank's settings, resolved, and its own overrides."""
    _config_open(services)
    settings = services.settings
    return json_response(await banks.config(services.pool, tenant, bank_id, *settings.of_banks))


@router.patch(f"{BANK}/config", operation_id="update_bank_config")
async def patch_config(
    bank_id: str, body: ConfigBody, tenant: Changer, services: Given
) -> Response:
    """Sets overrides; null removes one."""
    _config_open(services)
    settings = services.settings
    return json_response(
        await banks.patch_config(services.pool, tenant, bank_id, body.updates, *settings.of_banks)
    )


@router.delete(f"{BANK}/config", operation_id="reset_bank_config")
async def reset_config(bank_id: str, tenant: Changer, services: Given) -> Response:
    """Removes all overrides."""
    _config_open(services)
    settings = services.settings
    return json_response(
        await banks.reset_config(services.pool, tenant, bank_id, *settings.of_banks)
    )


@router.get(f"{BANK}/stats/memories-timeseries", operation_id="get_memories_timeseries")
async def memories_timeseries(
    bank_id: str,
    tenant: Reader,
    services: Given,
    period: str = "7d",
    time_field: str = "created_at",
) -> Response:
    """How many memories came when, by type."""
    found = await timeseries.memories(
        services.pool,
        tenant,
        bank_id,
        period=period,
        time_field=time_field,
        now=datetime.now(UTC),
    )
    return json_response(found)


@router.get(f"{BANK}/stats", operation_id="get_agent_stats")
async def bank_stats(
    bank_id: str, tenant: Reader, services: Given, refresh: bool = False
) -> Response:
    """Counts of a bank's contents. `refresh` is accepted: they are always new."""
    held = await looking(services).look("counts", {"tenant": tenant, "bank_id": bank_id})
    return json_response(await stats.stats(services.pool, tenant, bank_id, held))
