"""Who may import whom, read from the source: nothing here is imported to find out."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

ENGINE_PACKAGES = ("torch", "vllm")
ONLY_IN_ENGINE_PROCESSES = ("workers.engine", "workers.probes", "workers.patches", "workers.platforms")
TIME_LINE = ("workers.probes.timeline", "workers.probes.spans", "workers.probes.span_phases")
"""Pure arithmetic on events and spans; the actor needs it, which is not an engine process."""

PRIVATE_NAMES_ARE_TOUCHED_IN = ("workers/engine/internals.py", "workers/patches/")

DOMAIN_MAY_IMPORT = ("service.domain", "workers.protocol", "ruamel.yaml", "packaging", "cronsim", "ruptures", "numpy")
IMPURE = ("time", "random", "os", "secrets", "uuid", "socket", "subprocess", "threading", "asyncio", "io", "tempfile",
          "shutil", "logging", "ray")  # fmt: skip
CLOCKS = ("now", "today", "utcnow")


@dataclass(frozen=True)
class Import:
    """``lazily``: inside a function, or for type checkers alone; it does not run when the module is imported."""

    module: str
    line: int
    lazily: bool


def sources(*folders: str) -> list[Path]:
    found = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert found, folders
    return found


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


@cache
def modules() -> dict[str, Path]:
    return {name_of(path): path for path in sources("service", "workers")}


def _deferred(node: ast.AST) -> bool:
    guard = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
    return guard or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)


def _imports(node: ast.AST, package: str, lazily: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(alias.name, child.lineno, lazily) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            base = ".".join([*package.split(".")[: -child.level + 1 or None], *filter(None, [child.module])])
            base = base if child.level else str(child.module)
            yield Import(base, child.lineno, lazily)
            # ``from a import b`` may import the module ``a.b``.
            yield from (Import(f"{base}.{alias.name}", child.lineno, lazily) for alias in child.names)
        else:
            yield from _imports(child, package, lazily or _deferred(child))


@cache
def imports(path: Path) -> tuple[Import, ...]:
    package = name_of(path) if path.name == "__init__.py" else name_of(path.parent / "__init__.py")
    return tuple(_imports(parsed(path), package, lazily=False))


def below(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def offences(paths: list[Path], forbidden: Callable[[str], bool]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{found.line} imports {found.module}"
        for path in paths
        for found in imports(path)
        if forbidden(found.module)
    ]


# --- the two halves --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_controller_imports_nothing_of_the_engine() -> None:
    forbidden = (*ENGINE_PACKAGES, *ONLY_IN_ENGINE_PROCESSES)
    assert offences(sources("service"), lambda name: below(name, forbidden)) == []


def test_workers_never_import_the_controller() -> None:
    assert offences(sources("workers"), lambda name: below(name, ("service",))) == []


def reached(start: str) -> dict[str, str]:
    """All that importing ``start`` imports in turn, each with the module that asked for it."""
    found: dict[str, str] = {}
    queue = [start]
    while queue:
        name = queue.pop()
        parts = name.split(".")
        parents = [".".join(parts[:length]) for length in range(1, len(parts))]
        wanted = [item.module for item in imports(modules()[name]) if not item.lazily] if name in modules() else []
        for module in [*wanted, *parents]:
            if module not in found:
                found[module] = name
                queue.append(module)
    return found


@pytest.mark.parametrize("start", [name for name in modules() if name.startswith("service")])
def test_no_module_of_the_controller_leads_to_the_engine_s_packages(start: str) -> None:
    found = reached(start)
    assert {module: found[module] for module in found if below(module, ENGINE_PACKAGES)} == {}
    engine = {module for module in found if below(module, ONLY_IN_ENGINE_PROCESSES)}
    assert {module for module in engine if module in modules()} <= {*TIME_LINE, "workers.probes"}


@pytest.mark.slow
def test_the_controller_runs_where_there_is_no_torch() -> None:
    code = "import sys, service.cli, service.app; print([n for n in ('torch', 'vllm') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_the_supervisor_and_the_actor_need_no_engine_either() -> None:
    for start in ("workers.supervisor", "workers.actor", "workers.arms", *TIME_LINE):
        assert not [module for module in reached(start) if below(module, ENGINE_PACKAGES)], start


# --- the domain is pure ----------------------------------------------------------------------------------------------


def test_the_domain_imports_itself_the_protocol_and_the_standard_library() -> None:
    def forbidden(name: str) -> bool:
        standard = name.split(".")[0] in sys.stdlib_module_names
        return name != "__future__" and not standard and not below(name, DOMAIN_MAY_IMPORT)

    assert offences(sources("service/domain"), lambda name: forbidden(name) and name != "service") == []


def test_the_domain_has_no_clock_no_chance_and_no_io() -> None:
    assert offences(sources("service/domain"), lambda name: below(name, IMPURE)) == []


def test_the_domain_asks_no_clock_and_opens_no_file() -> None:
    found = []
    for path in sources("service/domain"):
        for node in ast.walk(parsed(path)):
            asks = isinstance(node, ast.Attribute) and node.attr in (*CLOCKS, "read_text", "write_text", "read_bytes")
            opens = isinstance(node, ast.Name) and node.id in ("open", "print", "input")
            if asks or opens:
                found.append(f"{path.relative_to(ROOT)} {ast.unparse(node)}")
    assert found == []


# --- private names of vLLM and PyTorch -------------------------------------------------------------------------------


def is_private(part: str) -> bool:
    return part.startswith("_") and not part.startswith("__")


PRIVATE_IN_TEXT = re.compile(r"\b(?:torch|vllm)(?:[.:]\w+)*[.:]_(?!_)\w+")
"""A private name written out, as in ``resolve("torch._inductor.graph:X", …)``."""


def _engine_names(tree: ast.Module) -> set[str]:
    """Names that an import binds to something of vLLM or PyTorch."""
    bound = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound |= {
                alias.asname or alias.name.split(".")[0] for alias in node.names if below(alias.name, ENGINE_PACKAGES)
            }
        elif isinstance(node, ast.ImportFrom) and below(str(node.module), ENGINE_PACKAGES):
            bound |= {alias.asname or alias.name for alias in node.names}
    return bound


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _docstrings(tree: ast.Module) -> set[ast.AST]:
    """Texts that stand alone: documentation, which may name what it likes."""
    return {
        node.value for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def _own_names(node: ast.ClassDef) -> set[str]:
    defined = {item.name for item in ast.walk(node) if isinstance(item, ast.FunctionDef)}
    stored = (item for item in ast.walk(node) if isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store))
    return defined | {item.attr for item in stored}


def _inherited(tree: ast.Module, names: set[str]) -> Iterator[tuple[int, str]]:
    """``self._x`` in a class that extends one of the engine's and has no ``_x`` of its own."""
    for owner in ast.walk(tree):
        if not isinstance(owner, ast.ClassDef) or not any(_root(base) in names for base in owner.bases):
            continue
        for node in ast.walk(owner):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in _own_names(owner):
                yield node.lineno, ast.unparse(node)


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, name) of each private name of the engine's packages that ``tree`` touches."""
    names, documentation = _engine_names(tree), _docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            told = [alias.name for alias in node.names if below(alias.name, ENGINE_PACKAGES)]
        elif isinstance(node, ast.ImportFrom) and below(str(node.module), ENGINE_PACKAGES):
            told = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and _root(node) in names:
            told = [node.attr]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in documentation:
            told = PRIVATE_IN_TEXT.findall(node.value)
        else:
            continue
        yield from ((node.lineno, name) for name in told if any(is_private(p) for p in re.split("[.:]", name)))
    yield from _inherited(tree, names)


def test_private_names_of_the_engine_are_touched_in_one_place() -> None:
    found = []
    for path in sources("service", "workers"):
        place = str(path.relative_to(ROOT))
        if not place.startswith(PRIVATE_NAMES_ARE_TOUCHED_IN):
            found += [f"{place}:{line} {name}" for line, name in private_names(parsed(path))]
    assert found == []


def test_that_place_does_touch_them() -> None:
    assert list(private_names(parsed(ROOT / "workers/engine/internals.py")))


@pytest.mark.parametrize(
    "source",
    [
        "import torch._inductor",
        "import torch._dynamo.utils as utils",
        "from torch import _dynamo",
        "from vllm.logger import _print_warning_once",
        "import torch\ntorch._dynamo.reset()",
        "import torch as t\nt.compile(f)._orig",
        "resolve('torch._inductor.lowering:X', 'p')",
        "name = 'vllm.logger:_print_info_once'",
        "from vllm.platforms.cpu import CpuPlatform\nclass Mine(CpuPlatform):\n    def f(self): self._theirs()",
    ],
)
def test_a_private_name_is_seen(source: str) -> None:
    assert list(private_names(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.compile(f)",
        "from vllm import __version__",
        "import torch\ntorch.ops.vllm.x.__name__",
        "self._mine",
        '"""About torch._inductor."""',
        "name = 'torch.ops.vllm_ir'",
        "from vllm.platforms.cpu import CpuPlatform\nclass Mine(CpuPlatform):\n    def _f(self): self._f()",
    ],
)
def test_a_public_name_is_none(source: str) -> None:
    assert list(private_names(ast.parse(source))) == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a.b", [("a.b", False)]),
        ("def f():\n    import a", [("a", True)]),
        ("if TYPE_CHECKING:\n    import a", [("a", True)]),
        ("try:\n    import a\nexcept ImportError:\n    pass", [("a", False)]),
        ("class C:\n    import a", [("a", False)]),
        ("from a import b", [("a", False), ("a.b", False)]),
        ("from . import b", [("p.q", False), ("p.q.b", False)]),
        ("from .. import b", [("p", False), ("p.b", False)]),
        ("from .c import b", [("p.q.c", False), ("p.q.c.b", False)]),
    ],
)
def test_imports_are_read_as_python_reads_them(source: str, expected: list[tuple[str, bool]]) -> None:
    assert [(found.module, found.lazily) for found in _imports(ast.parse(source), "p.q", False)] == expected
