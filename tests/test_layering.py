"""Imports run one way: the map of CONTRIBUTING.md, checked module by module on the source."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("projnorm_theory", "projnorm", "simulations", "ntk", "deep", "figures")
GROUND, SCIENCE = ("ground", "projnorm.vision", "projnorm.text"), ("simulations", "ntk", "deep")
# What each room may import, besides itself and the version in the front door. Modules of `projnorm` that have no room
# of their own are the ground.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "projnorm_theory": (),
    "ground": (),
    "projnorm.vision": ("ground",),
    "projnorm.text": ("ground",),
    "simulations": ("projnorm_theory", *GROUND),
    "ntk": ("projnorm_theory", *GROUND),
    "deep": ("projnorm_theory", *GROUND, "ntk"),
    "figures": ("projnorm_theory", *GROUND, *SCIENCE),
    "projnorm": ("ground",),
    "projnorm.cli": ("projnorm_theory", *GROUND, *SCIENCE, "figures"),
    "projnorm.__main__": ("projnorm.cli",),
}
WITHOUT_TORCH = ("projnorm_theory", "ground", "simulations", "figures", "projnorm", "projnorm.cli")
# The only module of the ground that asks torch what there is to compute on.
WITH_TORCH = ("projnorm.device",)


MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def _imports(module: str) -> set[str]:
    """Every module imported anywhere in the file, inside functions too.

    What a lazy package imports for type checkers alone is not imported when it runs.
    """
    found = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    if MODULES[module].name == "__init__.py":
        tree.body = [node for node in tree.body if not ast.unparse(node).startswith("if TYPE_CHECKING:")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else str(node.module) for name in names}
    return found


def _room(module: str) -> str:
    rooms = [room for room in MAY_IMPORT if room != "projnorm" and (module + ".").startswith(room + ".")]
    return max(rooms, key=len) if rooms else "projnorm" if module == "projnorm" else "ground"


@pytest.mark.parametrize("module", MODULES)
def test_no_module_imports_upward(module):
    allowed = {_room(module), *MAY_IMPORT[_room(module)], "projnorm"}
    for imported in _imports(module) & set(MODULES):
        assert _room(imported) in allowed, f"{module} must not import {imported}"


def test_no_two_modules_import_each_other():
    graph = {module: _imports(module) & set(MODULES) - {module, "projnorm"} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {error.args[1]}")


@pytest.mark.parametrize("module", [m for m in MODULES if _room(m) in WITHOUT_TORCH and m not in WITH_TORCH])
def test_torch_stays_out_of_the_rooms_that_do_not_need_it(module):
    assert not any(name.split(".")[0] == "torch" for name in _imports(module))


@pytest.mark.parametrize("module", [m for m, path in MODULES.items() if path.name == "__init__.py"])
def test_packages_only_re_export(module):
    """Imports, names, and the private functions that make a package lazy or import every file of its folder."""
    for node in ast.parse(MODULES[module].read_text(encoding="utf-8")).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.FunctionDef(name=name) if name.startswith("_"):
                continue
            case ast.For(body=[ast.Expr(value=ast.Call(func=ast.Name(id="import_module")))]):
                continue
            case ast.Assign() | ast.AnnAssign():
                names = [one for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
                assert all(name.id.startswith("_") for name in names), f"{module} computes in line {node.lineno}"
            case _:
                pytest.fail(f"{module} computes in line {node.lineno}")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_holds_something_and_is_typed(package):
    assert len([m for m in MODULES if m.startswith(package + ".")]) > 0
    assert (ROOT / package / "py.typed").exists()
