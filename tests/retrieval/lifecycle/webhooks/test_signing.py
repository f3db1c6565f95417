"""Signatures: over the bytes that are sent, in three ways, with two secrets during a change."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json

import pytest

from retrieval.lifecycle.webhooks import signing
from retrieval.store.outbox import BODY_BYTES_MAX, OutboxEvent, body

pytestmark = pytest.mark.unit

BODY = b'{"event":"retain.completed"}'


def mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def headers(*secrets: str) -> dict[str, str]:
    return signing.headers(
        BODY, event="retain.completed", event_id="e", delivery_id="d", now=1700, secrets=secrets
    )


def test_signatures_of_one_secret() -> None:
    found = headers("s3cret")
    assert found["X-Hindsight-Signature"] == f"sha256={mac(b's3cret', BODY).hex()}"
    assert found["X-Hub-Signature-256"] == found["X-Hindsight-Signature"]
    timed = mac(b"s3cret", b"1700." + BODY).hex()
    assert found["X-Hindsight-Signature-V2"] == f"t=1700,v1={timed}"
    standard = base64.b64encode(mac(b"s3cret", b"e.1700." + BODY)).decode()
    assert found["webhook-signature"] == f"v1,{standard}"
    assert (found["webhook-id"], found["webhook-timestamp"]) == ("e", "1700")
    assert (found["X-Hindsight-Event-Id"], found["X-Hindsight-Delivery-Id"]) == ("e", "d")


def test_a_key_as_standard_webhooks_writes_it() -> None:
    key = b"\x00\xff" * 12
    found = headers("whsec_" + base64.b64encode(key).decode())
    assert (
        found["webhook-signature"] == "v1," + base64.b64encode(mac(key, b"e.1700." + BODY)).decode()
    )


def test_two_secrets_during_a_change_and_none() -> None:
    found = headers("new", "old")
    assert found["X-Hindsight-Signature"] == f"sha256={mac(b'new', BODY).hex()}"
    assert found["webhook-signature"].count("v1,") == 2
    assert found["X-Hindsight-Signature-V2"].count("v1=") == 2
    assert not any("ignature" in name for name in headers())


def test_headers_that_are_ours() -> None:
    for name in ("X-Hindsight-Event", "x-hub-signature-256", "Webhook-Id", "HOST",
                 "Content-Length", "Transfer-Encoding"):  # fmt: skip
        assert signing.is_reserved(name)
    assert not signing.is_reserved("Authorization")


def test_bodies_have_no_nulls_and_stay_small() -> None:
    from uuid import UUID

    event = OutboxEvent("retain.completed", {"document_id": "d", "tags": ["t"], "x": None})
    found = json.loads(body("b", event, UUID(int=1), "now"))
    assert "operation_id" not in found
    assert found["data"] == {"document_id": "d", "tags": ["t"]}
    large = OutboxEvent("retain.completed", {"document_id": "d", "tags": ["t" * 512] * 600})
    packed = body("b", large, UUID(int=1), "now")
    assert len(packed) <= BODY_BYTES_MAX
    assert json.loads(packed)["data"] == {"document_id": "d", "tags": [], "tags_left_out": True}
