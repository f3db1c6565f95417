"""The manifests say what the API server knows, agree with our configuration, and keep our rules.

An API server drops fields that it does not know in silence, so every field here, at any depth, is
held against `schema.yaml`: the part of RayService v1 and of pods that our manifests may use.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from ray.serve.schema import ServeDeploySchema

from serve.exporter import PORT
from serve.settings import load

pytestmark = pytest.mark.unit

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
KUBERNETES = CONFIGS / "kubernetes"
OVERLAYS = ("cpu", "gpu", "tei")

SCHEMA = yaml.safe_load((Path(__file__).parent / "schema.yaml").read_text())


def wrong(document: Any, part: str = "rayService") -> list[str]:
    """What the schema has against a document, or a part of one."""
    schema = {**SCHEMA, "$ref": f"#/$defs/{part}"}
    found = Draft202012Validator(schema).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in found]


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each is not None]


def base(kind: str) -> dict[str, Any]:
    kustomization = documents(KUBERNETES / "base" / "kustomization.yaml")[0]
    found = [
        document
        for name in kustomization["resources"]
        for document in documents(KUBERNETES / "base" / name)
        if document["kind"] == kind
    ]
    assert len(found) == 1, kind
    one: dict[str, Any] = found[0]
    return one


def service(overlay: str) -> dict[str, Any]:
    """The RayService of an overlay: the base with the patches that kustomize applies."""
    whole = base("RayService")
    folder = KUBERNETES / "overlays" / overlay
    kustomization = documents(folder / "kustomization.yaml")[0]
    assert kustomization["resources"] == ["../../base"]
    for patch in kustomization["patches"]:
        (content,) = documents(folder / patch["path"])
        if isinstance(content, list):
            (operation,) = content
            assert operation["op"] == "add"
            assert operation["path"] == "/spec/rayClusterConfig/workerGroupSpecs/-"
            whole["spec"]["rayClusterConfig"]["workerGroupSpecs"].append(operation["value"])
        elif content["kind"] == "RayService":
            assert content["metadata"] == whole["metadata"]
            whole["spec"] |= content["spec"]
    return whole


def groups(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    cluster = service(overlay)["spec"]["rayClusterConfig"]
    yield "head", cluster["headGroupSpec"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group


def pods(overlay: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, group in groups(overlay):
        yield name, group["template"]["spec"]
    yield "migrate", base("Job")["spec"]["template"]["spec"]


def test_every_file_is_named() -> None:
    kustomization = documents(KUBERNETES / "base" / "kustomization.yaml")[0]
    there = {path.name for path in (KUBERNETES / "base").iterdir()} - {"kustomization.yaml"}
    assert set(kustomization["resources"]) == there
    for overlay in OVERLAYS:
        folder = KUBERNETES / "overlays" / overlay
        named = {p["path"] for p in documents(folder / "kustomization.yaml")[0]["patches"]}
        assert named | {"kustomization.yaml"} == {path.name for path in folder.iterdir()}


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_only_known_fields(overlay: str) -> None:
    assert not wrong(service(overlay))
    assert not wrong(base("Job")["spec"]["template"], "template")
    for _, pod in pods(overlay):
        mounted = {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "rayClusterConfig", "rayVersions"), "2.60.0"),
        (("spec", "rayClusterConfig", "authOptions", "mode"), "tokens"),
        (("spec", "rayClusterConfig", "autoscalerOptions", "idleTimeoutSeconds"), "600"),
        (("spec", "rayClusterConfig", "headGroupSpec", "rayStartParams", "num-cpus"), 0),
        (("spec", "rayClusterConfig", "headGroupSpec", "template", "spec", "volume"), []),
        (("spec", "rayClusterConfig", "workerGroupSpecs", 0, "minReplica"), 2),
        (("spec", "rayClusterConfig", "gcsFaultToleranceOptions", "redisPassword"), "word"),
        (("spec", "upgradeStrategy", "type"), "Rolling"),
        (("spec", "serveConfigV2"), {}),
    ],
    ids=str,
)
def test_a_mistake_is_seen(path: tuple[str | int, ...], value: Any) -> None:
    whole = service("cpu")
    place: Any = whole
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    assert len(wrong(whole)) == 1


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_application_is_our_configuration(overlay: str) -> None:
    found = importlib.util.spec_from_file_location("render", KUBERNETES / "render.py")
    assert found is not None
    assert found.loader is not None
    render = importlib.util.module_from_spec(found)
    found.loader.exec_module(render)
    patch = KUBERNETES / "overlays" / overlay / "serve.yaml"
    assert patch.read_text() == render.patch(overlay), "run configs/kubernetes/render.py"
    deployed = service(overlay)["spec"]["serveConfigV2"]
    assert yaml.safe_load(deployed) == yaml.safe_load(render.source(overlay).read_text())
    ServeDeploySchema.model_validate(yaml.safe_load(deployed))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_settings_are_settings(overlay: str, tmp_path: Path) -> None:
    data: dict[str, str] = dict(base("ConfigMap")["data"])
    for patch in documents(KUBERNETES / "overlays" / overlay / "kustomization.yaml")[0]["patches"]:
        for content in documents(KUBERNETES / "overlays" / overlay / patch["path"]):
            if isinstance(content, dict) and content["kind"] == "ConfigMap":
                data |= content["data"]
    assert all(isinstance(value, str) for value in data.values())
    secret = tmp_path / "database-url"
    secret.write_text("postgresql://somebody@database/fourfold")
    ours = {
        name: str(secret) if name.endswith("_FILE") else value
        for name, value in data.items()
        if name.startswith("FOURFOLD_")
    }
    (tmp_path / "serve.yaml").write_text(service(overlay)["spec"]["serveConfigV2"])
    assert not load(tmp_path / "serve.yaml", ours).warnings


def test_secrets_are_only_referred_to() -> None:
    for path in KUBERNETES.rglob("*.yaml"):
        for document in documents(path):
            if isinstance(document, dict):
                assert document.get("kind") != "Secret", path
        text = path.read_text()
        assert not re.search(r"postgres(ql)?://", text), path
        assert not re.search(r"(?i)(password|token|api_key): *['\"]?[a-z0-9]{6}", text), path
    redis = base("RayService")["spec"]["rayClusterConfig"]["gcsFaultToleranceOptions"]
    assert set(redis["redisPassword"]["valueFrom"]) == {"secretKeyRef"}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rules_of_pods(overlay: str) -> None:
    for name, pod in pods(overlay):
        (container,) = pod["containers"]
        assert pod["automountServiceAccountToken"] is False, name
        assert pod["securityContext"]["runAsUser"] == 1000
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        resources = container["resources"]
        assert resources["requests"]["memory"] == resources["limits"]["memory"], name
        assert ":latest" not in container["image"]
        assert ":" in container["image"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_rules_of_the_cluster(overlay: str) -> None:
    whole = service(overlay)
    cluster = whole["spec"]["rayClusterConfig"]
    deployed = yaml.safe_load(whole["spec"]["serveConfigV2"])
    drain_s = deployed["applications"][0]["args"]["server"]["drain_s"]
    hard_stop_s = int(base("ConfigMap")["data"]["RAY_SERVE_HAPROXY_HARD_STOP_AFTER_S"])
    assert cluster["authOptions"] == {"mode": "token"}
    assert whole["spec"]["excludeHeadPodFromServeSvc"] is True
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert cluster["rayVersion"] == version("ray")
    for name, group in groups(overlay):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert f"-ray{cluster['rayVersion']}" in container["image"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == PORT
        assert pod["terminationGracePeriodSeconds"] > 30 + drain_s + hard_stop_s
        assert group["template"]["metadata"]["labels"]["fourfold-role"] == name
        if name == "head":
            assert "serve" not in ports
            continue
        # The operator's readiness probe asks the port of this name.
        assert ports["serve"] == deployed["http_options"]["port"]
        assert group["rayStartParams"]["labels"] == f"fourfold-role={name}"
        assert group["minReplicas"] >= (1 if name == "gpu" else 2)
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def test_gpus_are_asked_for_where_they_are() -> None:
    for overlay in OVERLAYS:
        for name, pod in pods(overlay):
            limits = pod["containers"][0]["resources"]["limits"]
            assert ("nvidia.com/gpu" in limits) == (name == "gpu")
            assert ("tolerations" in pod) == (name == "gpu")
    assert [name for name, _ in groups("gpu")] == ["head", "ingress", "bank", "gpu"]


def test_from_outside_only_the_api_and_the_metrics() -> None:
    policy = base("NetworkPolicy")["spec"]
    open_ports = {
        tuple(port["port"] for port in rule.get("ports", []))
        for rule in policy["ingress"]
        if "podSelector" not in rule["from"][0]
    }
    assert open_ports == {(8888,), (PORT,), (8265, 8888)}  # the last for the operator alone
    for rule in policy["ingress"]:
        assert rule["from"], "an empty list lets everybody in"
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_rules_of_images(kind: str) -> None:
    text = (CONFIGS / "docker" / f"Dockerfile.{kind}").read_text()
    final = text.split("FROM ")[-1]
    assert "bash wget" in final  # the operator's probe
    assert "USER 1000" in final
    assert not re.search(r"\b(gcc|g\+\+|build-essential|make)\b", final)
    assert ":latest" not in text
    for name in re.findall(r"^COPY ((?!--)\S+)", text, re.MULTILINE):
        assert (CONFIGS.parent / name).exists(), name
    assert "requirements.lock" in text
