"""Webhooks as the settings want them."""

from __future__ import annotations

import logging

from retrieval.errors import FourfoldError
from retrieval.lifecycle.webhooks.delivery import Deliverer
from retrieval.lifecycle.webhooks.guard import AddressGuard
from retrieval.lifecycle.webhooks.registry import OfAll, WebhookRegistry
from retrieval.lifecycle.webhooks.vault import Vault
from retrieval.store.database.pool import Pool
from serve.settings import Settings

log = logging.getLogger(__name__)


def open_webhooks(settings: Settings, pool: Pool) -> WebhookRegistry:
    """The registry of webhooks."""
    own = settings.webhooks
    return WebhookRegistry(pool, Vault(pool, own.keys), AddressGuard.of(own.webhook_allowed_hosts))


async def keep_webhook_of_all(settings: Settings, webhooks: WebhookRegistry) -> None:
    """Brings what the database knows of the settings' own webhook in line with them."""
    own = settings.webhooks
    secret = own.webhook_secret
    of_all = OfAll(
        own.webhook_url,
        None if secret is None else secret.get_secret_value(),
        own.webhook_event_types,
    )
    try:
        await webhooks.keep(of_all)
    except FourfoldError as error:
        log.warning("the webhook of all banks is not set: %s", error)


def open_deliverer(settings: Settings, pool: Pool, poll_s: float) -> Deliverer:
    """What tells receivers."""
    own = settings.webhooks
    return Deliverer(
        pool,
        Vault(pool, own.keys),
        AddressGuard.of(own.webhook_allowed_hosts),
        keeps_bodies=own.webhook_expose_response_body,
        poll_s=poll_s,
        kept_days=own.webhook_retention_days,
    )
