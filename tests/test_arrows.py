"""The import arrows: serve -> models, serve -> retrieval, and nothing else; inside a package, down.

ray and fastapi stay in serve; retrieval runs without torch and transformers, except the GPU vector
store, which imports torch when it is used.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parent.parent
SERVING = {"ray", "fastapi", "starlette", "uvicorn", "typer"}
FORBIDDEN = {
    "retrieval": SERVING | {"serve", "models", "torch", "transformers", "sentence_transformers"},
    "models": SERVING | {"serve", "retrieval", "asyncpg"},
}
GPU = ("gpu", "scan_gpu", "slab")
LAZY = {(f"retrieval/bank/vectors/{module}.py", "torch") for module in GPU}
"""Modules that may import a package inside a function, or for its types."""

FLOORS: dict[str, list[set[str]]] = {
    "retrieval": [
        {"messages"},
        {"types", "errors"},
        {"zones"},
        {"topk", "settings", "stopwatch", "pacing", "text"},
        {"timex"},
        {"store"},
        {"protocols", "keyword"},
        {"llm"},
        {"bank"},
        {"arms"},
        {"ranking"},
        {"recall"},
        {"ingest"},
        {"consolidation", "reflect"},
        {"mental"},
        {"lifecycle"},
        {"maintenance"},
    ],
    "models": [
        {"types", "outward"},
        {"settings", "breaker"},
        {"batching", "recent", "tokencut"},
        {"local", "passthrough"},
        {"remote"},
        {"chain", "llm"},
        {"catalog"},
    ],
    "serve": [
        {"settings", "trace", "version"},
        {"metrics"},
        {"admission", "local"},
        {"opening"},
        {"http"},
        {"mcp", "inspector"},
        {"app", "writer", "exporter"},
        {"composition"},
        {"cluster"},
        {"cli"},
    ],
}
"""The rooms of each package from the ground up: a room imports from lower floors only, and rooms of
one floor know nothing of each other."""


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


def modules(package: str) -> dict[str, Path]:
    """The modules of a package by their dotted names."""
    found = {}
    for file in sorted((ROOT / package).rglob("*.py")):
        parts = file.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def arrows(package: str) -> Iterator[tuple[str, str]]:
    """(module, module that it imports) inside a package, imports for types and in functions too."""
    known = modules(package)
    for name, file in known.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from ((name, alias.name) for alias in node.names if alias.name in known)
            elif isinstance(node, ast.ImportFrom) and node.module in known:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield name, inner if inner in known else node.module


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_arrows_point_down(package: str) -> None:
    floor = {room: i for i, rooms in enumerate(FLOORS[package]) for room in rooms}
    wrong = []
    for source, target in arrows(package):
        rooms = [name.split(".")[1] if "." in name else "" for name in (source, target)]
        if rooms[0] == rooms[1] or not rooms[0]:
            continue
        if not rooms[1] or floor[rooms[1]] >= floor[rooms[0]]:
            wrong.append(f"{source} imports {target}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_every_room_has_a_floor(package: str) -> None:
    rooms = {name.split(".")[1] for name in modules(package) if "." in name}
    assert rooms == set().union(*FLOORS[package])


@pytest.mark.parametrize("package", sorted(FLOORS))
def test_no_module_imports_itself_over_others(package: str) -> None:
    graph: dict[str, set[str]] = {}
    for source, target in arrows(package):
        graph.setdefault(source, set()).add(target)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as circle:
        pytest.fail(f"a circle: {' <- '.join(circle.args[1])}")
