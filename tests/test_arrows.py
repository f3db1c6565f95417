"""The import arrows: serve -> models, serve -> retrieval, and nothing else.

ray and fastapi stay in serve; retrieval runs without torch and transformers, except the GPU vector
store, which imports torch when it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent
SERVING = {"ray", "fastapi", "starlette", "uvicorn", "typer"}
FORBIDDEN = {
    "retrieval": SERVING | {"serve", "models", "torch", "transformers", "sentence_transformers"},
    "models": SERVING | {"serve", "retrieval", "asyncpg"},
}
LAZY = {(f"retrieval/bank/{module}.py", "torch") for module in ("vectors_gpu", "scan_gpu", "slab")}
"""Modules that may import a package inside a function, or for its types."""


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """(top-level package, is it imported when the module is) for each import of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    later = {id(child) for node in ast.walk(tree) if _runs_later(node) for child in ast.walk(node)}
    for node in ast.walk(tree):
        eager = id(node) not in later
        if isinstance(node, ast.Import):
            yield from ((alias.name.split(".")[0], eager) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.split(".")[0], eager


def _runs_later(node: ast.AST) -> bool:
    """Functions, and blocks for type checkers only."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.mark.parametrize("package", sorted(FORBIDDEN))
def test_arrows(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files, f"no sources under {package}/"
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files
        for name, eager in imports(file)
        if name in FORBIDDEN[package] and (eager or (str(file.relative_to(ROOT)), name) not in LAZY)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_sees_what_it_should(tmp_path: Path) -> None:
    sample = tmp_path / "sample.py"
    sample.write_text(
        "import ray.serve\ndef f():\n    from torch import nn\nif TYPE_CHECKING:\n    import x\n"
    )
    assert list(imports(sample)) == [("ray", True), ("torch", False), ("x", False)]
