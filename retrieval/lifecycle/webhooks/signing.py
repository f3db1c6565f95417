"""How a delivery is signed: the bytes that are sent, with every secret that is valid.

Three ways in use are answered at once: HMAC of the body, the same with the time (against replays),
and Standard Webhooks (https://www.standardwebhooks.com).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence

RESERVED = frozenset(
    {
        "host", "content-length", "content-type", "transfer-encoding", "connection", "expect",
        "upgrade", "te", "trailer", "proxy-authorization", "x-hub-signature-256",
        "webhook-id", "webhook-timestamp", "webhook-signature",
    }
)  # fmt: skip
"""Headers, beside x-hindsight-*, that a webhook's own never replace."""


def is_reserved(name: str) -> bool:
    name = name.lower()
    return name in RESERVED or name.startswith("x-hindsight-")


def headers(
    body: bytes, *, event: str, event_id: str, delivery_id: str, now: int, secrets: Sequence[str]
) -> dict[str, str]:
    """The headers of one attempt at `now` (Unix seconds). `secrets`: the newest first; none: no
    signatures."""
    found = {
        "Content-Type": "application/json",
        "User-Agent": "Fourfold-Webhooks/1",
        "X-Hindsight-Event": event,
        "X-Hindsight-Event-Id": event_id,
        "X-Hindsight-Delivery-Id": delivery_id,
        "webhook-id": event_id,
        "webhook-timestamp": str(now),
    }
    if not secrets:
        return found
    plain = f"sha256={_mac(secrets[0].encode(), body).hex()}"
    timed = [_mac(one.encode(), f"{now}.".encode() + body).hex() for one in secrets]
    standard = [
        base64.b64encode(_mac(_key(one), f"{event_id}.{now}.".encode() + body)).decode()
        for one in secrets
    ]
    return found | {
        "X-Hindsight-Signature": plain,
        "X-Hub-Signature-256": plain,
        "X-Hindsight-Signature-V2": ",".join([f"t={now}", *(f"v1={one}" for one in timed)]),
        "webhook-signature": " ".join(f"v1,{one}" for one in standard),
    }


def _mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def _key(secret: str) -> bytes:
    """Standard Webhooks writes keys as whsec_<base64>; other secrets are their own bytes."""
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
        except binascii.Error:
            pass
    return secret.encode()
