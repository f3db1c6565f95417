"""Writes the application's configuration into the overlays: `python configs/kubernetes/render.py`.

An overlay NAME takes `configs/cluster-NAME.yaml`, or `configs/cluster.yaml` where there is none.
"""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent
OVERLAYS = ("cpu", "gpu", "tei")


def source(overlay: str) -> Path:
    """The configuration file of an overlay."""
    own = HERE.parent / f"cluster-{overlay}.yaml"
    return own if own.exists() else HERE.parent / "cluster.yaml"


def patch(overlay: str) -> str:
    """The patch that puts it into the RayService."""
    lines = source(overlay).read_text(encoding="utf-8").splitlines()
    config = "\n".join(f"    {line}".rstrip() for line in lines if not line.startswith("#"))
    return (
        f"# Made from configs/{source(overlay).name} by render.py.\n"
        "apiVersion: ray.io/v1\n"
        "kind: RayService\n"
        "metadata: {name: fourfold}\n"
        "spec:\n"
        "  serveConfigV2: |\n"
        f"{config}\n"
    )


if __name__ == "__main__":
    for overlay in OVERLAYS:
        (HERE / "overlays" / overlay / "serve.yaml").write_text(patch(overlay), encoding="utf-8")
