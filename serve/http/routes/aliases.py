"""Aliases: other ids that lead to a bank."""

from __future__ import annotations

from starlette.responses import Response

from retrieval.store import aliases
from serve.http.errors import json_response
from serve.http.routes.recall import BANK
from serve.http.routing import Router
from serve.http.services import Changer, Given, Reader
from serve.http.wire.aliases import AliasBody, PrimaryBody

router = Router(tags=["banks"])
_ALIAS = f"{BANK}/aliases/{{alias}}"


@router.get(f"{BANK}/aliases", operation_id="list_bank_aliases")
async def list_bank_aliases(bank_id: str, tenant: Reader, services: Given) -> Response:
    """The bank's aliases, the primary one first, then the oldest."""
    return json_response(await aliases.listed(services.pool, tenant, bank_id))


@router.post(f"{BANK}/aliases", operation_id="create_bank_alias", status_code=201)
async def create_bank_alias(
    bank_id: str, body: AliasBody, tenant: Changer, services: Given
) -> Response:
    """One more id under which the bank is reached, within five seconds everywhere."""
    found = await aliases.add(services.pool, tenant, bank_id, body.alias, primary=body.primary)
    return json_response(found, 201)


@router.patch(_ALIAS, operation_id="set_bank_alias_primary")
async def set_bank_alias_primary(
    bank_id: str, alias: str, body: PrimaryBody, tenant: Changer, services: Given
) -> Response:
    """Shows the bank under this alias, or under its own id again."""
    found = await aliases.set_primary(services.pool, tenant, bank_id, alias, primary=body.primary)
    return json_response(found)


@router.delete(_ALIAS, operation_id="delete_bank_alias")
async def delete_bank_alias(bank_id: str, alias: str, tenant: Changer, services: Given) -> Response:
    """Ends an alias."""
    return json_response(await aliases.remove(services.pool, tenant, bank_id, alias))
