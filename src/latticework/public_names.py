"""The names that users import from the package, as `__init__.pyi` lists them."""

import ast
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).parent


def read_public_names() -> dict[str, str]:
    """Return the module of each public name."""
    stub = ast.parse(Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8"))
    modules: dict[str, str] = {}
    for node in stub.body:
        if isinstance(node, ast.ImportFrom):
            modules |= {alias.name: str(node.module) for alias in node.names}
    return modules


def read_version() -> str:
    """Return the version of the installed package; of a checkout beside none, that it declares."""
    try:
        return version("latticework")
    except PackageNotFoundError:
        import tomllib

        project = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
        return str(project["project"]["version"])
