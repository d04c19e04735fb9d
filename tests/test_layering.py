"""Imports run one way: the order of CONTRIBUTING.md, checked module by module on the source."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("projnorm_theory", "projnorm", "simulations", "ntk", "deep", "figures")
# Floors of the tree: a module imports from its own floor, or from one below it. `projnorm.cli` is the top.
FLOORS = (
    ("projnorm_theory",),
    ("projnorm.core",),
    ("projnorm.data",),
    ("projnorm.outputs",),
    ("projnorm.models",),
    ("projnorm.estimators",),
    ("projnorm.labels",),
    ("projnorm.estimate",),
    ("projnorm.monitor",),
    ("simulations",),
    ("ntk.kernel_config", "ntk.trace"),
    ("ntk.features",),
    ("ntk.tiles",),
    ("ntk.experiments",),
    ("deep.training",),
    ("deep.estimators",),
    ("deep.comparison",),
    ("figures",),
    ("projnorm.cli", "projnorm.__main__"),
)
FLOOR_OF = {part: floor for floor, parts in enumerate(FLOORS) for part in parts}
COMMAND_LINE = FLOORS[-1]
EXPERIMENTS = ("simulations", "ntk", "deep", "figures")
# Front doors name everything of their package, so they stand above what they name.
DOORS = ("projnorm", "ntk", "deep")
# What must not import torch, so that outputs and tables are read without it.
WITHOUT_TORCH = (
    "projnorm_theory", "projnorm.core", "projnorm.outputs", "projnorm.labels", "projnorm.monitor", "simulations",
    "figures", "projnorm.cli",
)  # fmt: skip
# The only module of the ground that asks torch what there is to compute on.
WITH_TORCH = ("projnorm.core.device",)

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def _imports(module: str) -> set[str]:
    """Every module imported anywhere in the file, inside functions too.

    What a lazy package imports for type checkers alone is not imported when it runs.
    """
    names = set()
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    if MODULES[module].name == "__init__.py":
        tree.body = [node for node in tree.body if not ast.unparse(node).startswith("if TYPE_CHECKING:")]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively"
            full = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else str(node.module) for name in full}
    return names


IMPORTS = {module: _imports(module) for module in MODULES}


def _part(module: str) -> str:
    """The part of the tree, named in `FLOORS`, that a module is in; empty if none."""
    parts = [part for part in FLOOR_OF if f"{module}.".startswith(f"{part}.")]
    return max(parts, key=len, default="")


def test_every_module_has_a_floor():
    assert [module for module in MODULES if not _part(module) and module not in DOORS] == []


def test_no_module_imports_upward():
    upward = [
        f"{module} imports {imported}"
        for module in MODULES
        if module not in DOORS
        for imported in IMPORTS[module] & set(MODULES) - {"projnorm"}
        if imported in DOORS or FLOOR_OF[_part(imported)] > FLOOR_OF[_part(module)]
    ]
    assert upward == []


def test_only_the_command_line_knows_the_experiments():
    """Nothing of `projnorm` but its front door and its command line imports `simulations`, `ntk`, `deep`, `figures`."""
    library = [m for m in MODULES if m.startswith("projnorm.") and _part(m) not in COMMAND_LINE]
    offenders = [
        f"{module} imports {imported}"
        for module in library
        for imported in sorted(IMPORTS[module])
        if imported.split(".")[0] in EXPERIMENTS
    ]
    assert len(library) > 100
    assert not offenders, "; ".join(offenders)


def test_kernels_and_networks_do_not_know_the_simulations():
    offenders = [
        f"{module} imports {imported}"
        for module in MODULES
        if module.split(".")[0] in ("ntk", "deep")
        for imported in sorted(IMPORTS[module])
        if imported.split(".")[0] == "simulations"
    ]
    assert not offenders, "; ".join(offenders)


def test_nothing_that_is_installed_imports_what_is_not():
    assert [m for m in MODULES for name in IMPORTS[m] if name.split(".")[0] in ("benchmarks", "tests")] == []
    assert [m for m, path in MODULES.items() if "benchmarks." in path.read_text(encoding="utf-8")] == [], (
        "named as text"
    )


def test_no_two_modules_import_each_other():
    graph = {module: IMPORTS[module] & set(MODULES) - {module, "projnorm"} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {error.args[1]}")


def test_torch_stays_out_of_the_parts_that_do_not_need_it():
    importing = [m for m in MODULES if any(name.split(".")[0] == "torch" for name in IMPORTS[m])]
    assert [m for m in importing if m.startswith(WITHOUT_TORCH) and m not in WITH_TORCH] == []


@pytest.mark.parametrize("module", [m for m, path in MODULES.items() if path.name == "__init__.py"])
def test_packages_only_re_export(module):
    """Imports, names, and the private functions that make a package lazy."""
    for node in ast.parse(MODULES[module].read_text(encoding="utf-8")).body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.Expr() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.FunctionDef(name=name) if name.startswith("_"):
                continue
            case ast.Assign() | ast.AnnAssign():
                names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
                assert all(name.id.startswith("_") for name in names), f"{module} computes in line {node.lineno}"
            case _:
                pytest.fail(f"{module} computes in line {node.lineno}")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_holds_something_and_is_typed(package):
    assert len([m for m in MODULES if m.startswith(package + ".")]) > 0
    assert (ROOT / package / "py.typed").exists()
