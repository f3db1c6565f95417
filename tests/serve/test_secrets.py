"""Secrets come from files or the environment of each process; nothing that Ray keeps has any."""

from __future__ import annotations

import dataclasses
import pickle
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from serve.cluster import deployments
from serve.cluster.portions import portion
from serve.settings import Settings, SettingsError, parse, secrets
from serve.settings.inference import RerankerMember
from serve.settings.loading import _FIELDS

pytestmark = pytest.mark.unit

WORD = "hunter2-do-not-show"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(f"{WORD}\n")
    return path


def _is_secret(annotation: Any) -> bool:
    return "SecretStr" in str(annotation)


def test_every_secret_is_known_as_one() -> None:
    fields = [
        (name, field)
        for section, _ in _FIELDS.values()
        if hasattr(kind := Settings.model_fields[section].annotation, "model_fields")
        for name, field in kind.model_fields.items()  # type: ignore[union-attr]
    ]
    fields += list(RerankerMember.model_fields.items())
    found = {name for name, field in fields if _is_secret(field.annotation)}
    assert len(found) > 12
    assert all(map(secrets.is_secret, found))
    assert all(map(secrets.is_secret, ("llm_api_key", "reflect_llm_2_api_key")))
    plain = {name for name, field in fields if not _is_secret(field.annotation)}
    assert not any(map(secrets.is_secret, plain))


@pytest.mark.parametrize("prefix", ["HINDSIGHT_API_", "FOURFOLD_"])
def test_a_variable_names_a_file(prefix: str, file: Path) -> None:
    names = ("DATABASE_URL", "METRICS_API_KEY", "LLM_API_KEY", "RERANKER_TEI_API_KEY")
    env = {f"{prefix}{name}_FILE": str(file) for name in names}
    env |= {f"{prefix}LLM_PROVIDER": "openai", f"{prefix}LLM_MODEL": "m"}
    env |= {f"{prefix}RERANKER_PROVIDER": "tei"}
    found = parse({}, env)
    assert not found.warnings
    for secret in (
        found.database.database_url,
        found.server.metrics_api_key,
        found.llm.retain.members[0].api_key,
        found.rerankers.members[0].tei_api_key,
    ):
        assert isinstance(secret, SecretStr)
        assert secret.get_secret_value() == WORD


def test_a_key_of_a_file_names_a_file(file: Path) -> None:
    tree = {
        "database": {"database_url_file": str(file)},
        "rerankers": {"members": [{"provider": "tei", "tei_api_key_file": str(file)}]},
        "llm": {"llm_provider": "openai", "llm_model": "m", "llm_api_key_file": str(file)},
    }
    found = parse(tree, {})
    assert found.database.database_url == found.rerankers.members[0].tei_api_key == SecretStr(WORD)
    assert found.llm.reflect.members[0].api_key == SecretStr(WORD)


def test_what_cannot_be_read_is_named(file: Path, tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    with pytest.raises(SettingsError, match=r"FOURFOLD_DATABASE_URL_FILE: cannot read .*none: No "):
        parse({}, {"FOURFOLD_DATABASE_URL_FILE": missing})
    with pytest.raises(SettingsError, match=r"database\.database_url_file: cannot read"):
        parse({"database": {"database_url_file": missing}}, {})
    both = {"FOURFOLD_DATABASE_URL_FILE": str(file), "FOURFOLD_DATABASE_URL": "postgres://x"}
    with pytest.raises(SettingsError, match="both set") as told:
        parse({}, both)
    assert WORD not in str(told.value)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="it is not text"):
        parse({}, {"FOURFOLD_DATABASE_URL_FILE": str(tmp_path / "binary")})


def test_the_clients_own_key_and_the_log_are_no_settings(file: Path) -> None:
    found = parse({}, {"FOURFOLD_API_KEY_FILE": str(file), "FOURFOLD_LOG_FILE": str(file)})
    assert len(found.warnings) == 1
    assert "FOURFOLD_API_KEY_FILE is not a setting" in found.warnings[0]


STAGES = {
    name: {"placement": "deployment", "replicas": 2, "cpus": 1.0}
    for name in ("retriever", "embedder", "reranker", "ingest", "ranges")
}


def _bound(tree: dict[str, Any]) -> dict[str, bytes]:
    """What Ray is given for each deployment: the arguments of its replicas, and its options."""
    found: dict[str, bytes] = {}

    def look(application: Any) -> None:
        node = application._bound_deployment
        told = [one for one in node.init_args if isinstance(one, dict)]
        found[node.name] = pickle.dumps(told)
        for one in node.init_args:
            if hasattr(one, "_bound_deployment"):
                look(one)

    look(deployments.build(tree))
    return found


def test_nothing_that_ray_keeps_has_a_secret(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    monkeypatch.setenv("FOURFOLD_DATABASE_URL", f"postgres://u:{WORD}@h/d")
    monkeypatch.setenv("HINDSIGHT_API_LLM_API_KEY", WORD)
    monkeypatch.setenv("HINDSIGHT_API_LLM_PROVIDER", "openai")
    monkeypatch.setenv("HINDSIGHT_API_LLM_MODEL", "m")
    tree = {"server": {"metrics_api_key_file": str(file)}, "stages": STAGES}
    found = _bound(tree)
    assert set(found) == {"Recall", "Retriever", "Embedder", "Reranker", "Ingest", "Ranges"}
    for told in found.values():
        assert WORD.encode() not in told
    assert str(file).encode() in found["Recall"]


@pytest.mark.parametrize(
    "tree",
    [
        {"database": {"database_url": WORD}},
        {"rerankers": {"members": [{"provider": "tei", "tei_api_key": WORD}]}},
        {"llm": {"reflect_llm_api_key": WORD, "reflect_llm_provider": "openai"}},
    ],
)
def test_a_secret_in_the_file_of_a_cluster_is_refused(tree: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match="no secrets here, where Ray keeps them") as told:
        deployments.build(tree)
    assert WORD not in str(told.value)


def test_on_one_machine_they_move_to_files_that_nobody_else_reads(tmp_path: Path) -> None:
    tree = {
        "database": {"database_url": WORD, "db_pool_min_size": 1},
        "rerankers": {"members": [{"provider": "tei", "tei_url": "http://t", "tei_api_key": WORD}]},
    }
    moved = secrets.moved_to_files(tree, tmp_path / "s")
    assert WORD not in repr(moved)
    assert not secrets.written(moved)
    assert parse(moved, {}) == parse(tree, {})
    for path in (tmp_path / "s").iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("change", "restarted"),
    [
        ({"limits": {"recall_queue_max": 9}}, {"Recall"}),
        ({"server": {"max_body_bytes": 99_999}}, {"Recall"}),
        ({"stages": {**STAGES, "embedder": {**STAGES["embedder"], "replicas": 5}}}, set()),
        ({"stages": {**STAGES, "embedder": {**STAGES["embedder"], "cpus": 5}}}, {"Embedder"}),
        ({"stages": {**STAGES, "retriever": {**STAGES["retriever"], "cpus": 5}}}, set()),
        ({"stages": {**STAGES, "recall": {"cpus": 5}}}, set()),
        ({"stages": {**STAGES, "ranges": {**STAGES["ranges"], "max_ongoing": 5}}}, set()),
        ({"webhooks": {"webhook_retention_days": 5}}, {"Recall", "Ingest"}),
        ({"erasure": {"erase_after_s": 5}}, {"Recall", "Ingest"}),
        ({"transfer": {"export_max_s": 5}}, {"Recall", "Ingest"}),
        ({"banks": {"bank_memory_bytes": 2**30}}, {"Recall", "Retriever", "Ingest", "Ranges"}),
        ({"rerankers": {"members": [{"provider": "rrf"}]}}, {"Recall", "Reranker"}),
    ],
    ids=str,
)
def test_a_change_restarts_the_stages_that_read_it(
    change: dict[str, Any], restarted: set[str]
) -> None:
    before = _bound({"stages": STAGES})
    after = _bound({"stages": STAGES, **change})
    assert {name for name in before if before[name] != after[name]} == restarted


def test_the_threads_of_a_model_inside_its_caller_follow_the_ingress() -> None:
    tree = {"stages": {"recall": {"cpus": 3}, "retriever": {"placement": "deployment", "cpus": 2}}}
    assert parse(portion(tree, "retriever"), {}).stages.recall.cpus == 3
    assert parse(portion(tree, "recall"), {}).stages.recall.cpus == 3


def test_a_stage_reads_the_settings_that_the_file_has_for_it() -> None:
    """What a portion leaves out is nothing that its stage reads."""
    tree: dict[str, Any] = {
        "server": {"log_format": "json", "port": 9000},
        "limits": {"embed_wait_s": 0.3, "read_queue_max": 7},
        "banks": {"bank_memory_bytes": 12345},
        "embeddings": {"embeddings_cached_queries": 3},
        "transfer": {"export_max_s": 7},
        "webhooks": {"webhook_retention_days": 7},
        "erasure": {"erase_after_s": 7},
        "audit": {"audit_log_retention_days": 7},
        "worker": {"worker_max_slots": 7},
        "mental_models": {"mental_model_history_max_entries": 7},
        "stages": STAGES,
    }
    whole = parse(tree, {})
    writing = parse(portion(tree, "ingest"), {})
    for section in ("transfer", "webhooks", "erasure", "audit", "worker", "llm", "mental_models"):
        assert getattr(writing, section) == getattr(whole, section)
    told = parse(portion(tree, "retriever"), {})
    for section in ("database", "banks", "embeddings", "recall", "retain"):
        assert getattr(told, section) == getattr(whole, section)
    assert told.server.log_format == "json"
    assert told.limits.embed_wait_s == 0.3
    assert told.stages.embedder.placement == "deployment"
    assert dataclasses.asdict(told.recall) == dataclasses.asdict(whole.recall)
