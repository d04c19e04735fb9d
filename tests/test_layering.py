"""Imports run one way: the map of CONTRIBUTING.md, checked module by module on the source."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("projnorm_theory", "projnorm", "simulations", "ntk", "deep", "figures")
# What each room may import, besides itself. The longest matching prefix is the room.
MAY_IMPORT = {
    "projnorm_theory": (),
    "projnorm": (),
    "projnorm.__main__": ("projnorm.cli",),
    "projnorm.runs": ("projnorm",),
    "projnorm.vision": ("projnorm", "projnorm.runs"),
    "projnorm.text": ("projnorm", "projnorm.runs"),
    "simulations": ("projnorm_theory", "projnorm", "projnorm.runs"),
    "ntk": ("projnorm_theory", "projnorm", "projnorm.runs", "projnorm.vision"),
    "deep": ("projnorm_theory", "projnorm", "projnorm.runs", "projnorm.vision", "projnorm.text", "ntk"),
    "figures": ("projnorm_theory", "projnorm", "projnorm.runs", "projnorm.vision", "simulations", "ntk", "deep"),
    "projnorm.recompute": ("projnorm", "projnorm.runs", "simulations", "ntk", "deep"),
    "projnorm.cli": (*PACKAGES, "projnorm.runs", "projnorm.vision", "projnorm.text", "projnorm.recompute"),
}
WITHOUT_TORCH = ("projnorm_theory", "projnorm.runs", "simulations", "projnorm.recompute", "projnorm.cli", "figures")


def _modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = _modules()


def _imports(module: str) -> set[str]:
    """Every module imported anywhere in the file, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                found.add(name if name in MODULES else str(node.module))
    return found


def _room(module: str) -> str:
    return max((room for room in MAY_IMPORT if module == room or module.startswith(room + ".")), key=len)


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_upward(module):
    allowed = {_room(module), *MAY_IMPORT[_room(module)]}
    for imported in _imports(module) & set(MODULES):
        assert _room(imported) in allowed, f"{module} must not import {imported}"


def test_no_two_modules_import_each_other():
    graph = {module: _imports(module) & set(MODULES) - {module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {error.args[1]}")


@pytest.mark.parametrize("module", [m for m in MODULES if _room(m) in WITHOUT_TORCH])
def test_torch_stays_out_of_the_rooms_that_do_not_need_it(module):
    assert not any(name.split(".")[0] == "torch" for name in _imports(module))


@pytest.mark.parametrize("module", [m for m, path in MODULES.items() if path.name == "__init__.py"])
def test_packages_only_re_export(module):
    body = ast.parse(MODULES[module].read_text(encoding="utf-8")).body
    for node in body:
        simple = isinstance(node, ast.Import | ast.ImportFrom | ast.Expr)
        constant = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        assert simple or (constant and node.targets[0].id in ("__all__", "__version__")), f"{module} computes"


def test_no_room_is_an_empty_shell():
    for package in PACKAGES:
        if (ROOT / package).exists():
            assert len([m for m in MODULES if m.startswith(package + ".")]) > 0, f"{package} holds nothing"
