"""The steps of the Dockerfiles, taken in a plain folder: where no builder is, that is what shows
that an image has everything. Locked dependencies are those of this environment (tests/test_lock.py
holds the lock against what the project asks for)."""

from __future__ import annotations

import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "configs" / "docker"
FILES = sorted(DOCKER.iterdir())
IGNORED = [
    line.removeprefix("**/")
    for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    if line
]


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    said: str


def steps(path: Path) -> list[Step]:
    """Instructions in their order, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", path.read_text("utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [Step(*line.split(maxsplit=1)) for line in lines]


def _copied(said: str, into: Path) -> None:
    """A COPY from the checkout, without what .dockerignore names."""
    *sources, target = shlex.split(said)
    for source in sources:
        assert not any(fnmatch.fnmatch(source, name) for name in IGNORED), f"{source} is ignored"
        whole = into / target.lstrip("/")
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, whole, ignore=shutil.ignore_patterns(*IGNORED))
        else:
            whole = whole / source if target.endswith(("/", ".")) else whole
            whole.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, whole)


@pytest.mark.unit
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_said(path: Path) -> None:
    told = steps(path)
    assert {"Dockerfile.cpu", "Dockerfile.gpu"} <= {each.name for each in FILES}
    bases = [step.said.split()[0] for step in told if step.name == "FROM"]
    assert all(re.fullmatch(r"python:3\.\d+-slim-\w+", base) for base in bases), bases
    (final,) = [n for n, step in enumerate(told) if step.name == "FROM"][1:]
    last = told[final:]
    users = [step.said for step in last if step.name == "USER"]
    assert users == ["1000"], "nothing runs as root"
    apt = " ".join(step.said for step in last if step.name == "RUN")
    assert {"bash", "wget"} <= set(apt.split()), "the operator's probe needs them"
    assert not {"gcc", "g++", "build-essential"} & set(apt.split())
    (command,) = [step.said for step in last if step.name == "CMD"]
    config = re.search(r'"--config", "/opt/configs/([^"]+)"', command)
    assert config is not None
    assert (ROOT / "configs" / config[1]).is_file()
    assert not re.search(r"(?i)(key|token|password|secret)=", path.read_text("utf-8"))


@pytest.mark.skipif(
    int(version("setuptools").split(".")[0]) < 77, reason="setuptools >= 77 builds the package"
)
@pytest.mark.timeout(600)
def test_what_is_copied_is_enough_to_install_and_start(tmp_path: Path) -> None:
    """Both files copy the same; nothing of the checkout is seen but what they copy."""
    builds = []
    for path in FILES:
        told = steps(path)
        end = [n for n, step in enumerate(told) if step.name == "FROM"][1]
        builds.append([step.said for step in told[:end] if step.name == "COPY"])
    assert builds[0] == builds[1]
    source, site, image = tmp_path / "src", tmp_path / "site", tmp_path / "image"
    for said in builds[0]:
        _copied(said, source)
    last = [step for step in steps(FILES[0]) if step.name == "COPY"][len(builds[0]) :]
    for step in last:
        if not step.said.startswith("--from"):
            _copied(step.said, image)
    env = {**os.environ, "PYTHONPATH": str(site), "HOME": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pip += ["--no-cache-dir", "--no-deps", "--no-build-isolation", "--target", str(site), "."]
    subprocess.run(pip, cwd=source, check=True, timeout=500)

    def ran(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = ran("-c", "import serve, models, retrieval; print(serve.__file__)")
    assert Path(where.strip()).is_relative_to(site)
    assert "serve" in ran("-m", "serve.cli.main", "--help")
    shown = ran("-m", "serve.cli.main", "environment", "--haproxy", str(tmp_path / "h"))
    assert "RAY_AUTH_MODE=token" in shown
    config = image / "opt" / "configs" / "local.yaml"
    started = ran(
        "-c",
        "import sys; from importlib import resources; from pathlib import Path;"
        " from serve.cluster import deployments; from serve.settings import load_file;"
        " deployments.build(load_file(Path(sys.argv[1])));"
        " files = resources.files('retrieval.store').joinpath('migrations').iterdir();"
        " print(sum(file.name.endswith('.sql') for file in files))",
        str(config),
    )
    assert int(started) == len([*(ROOT / "retrieval/store/migrations").glob("*.sql")])
