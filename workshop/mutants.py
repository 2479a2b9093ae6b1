"""Make small mistakes in the code (mutants), one at a time, and list those that no test notices.

The mistakes come from the syntax tree: another operator or number, a negated condition, a missing
statement. Each is made in a copy of the working tree, which is imported as `latticework` in place
of this one. Then the tests of the file run until the first one fails. A mutant that passes them all
has survived and goes to stdout, others to stderr. `make mutants` keeps the list.
"""

import argparse
import ast
import copy
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = (
    ".*",
    "__pycache__",
    "build",
    "outputs",
    "multirun",
    "cache",
    "wandb",
)  # left out of the copy
COMPILED = "samplers/compiled"
# The tests for a file of a room: those of this list that use it or have its name, or else the
# whole list. In other rooms: all tests that use it or have its name.
TESTS = {
    COMPILED: "kernel* same_law compiled* rare rates",  # only if named
    "samplers": "kernels kernel_rules validity extended relaxed rates large rare start",
    "models": "models model_definitions forbidding_models exact large rare domain rates bayes_net"
    " infilling products regression resnet ais ais_task paths",
    "sampling": "metrics diagnostics exact chain sample* starts adaptation engine validity",
    "experiments/tasks/measures": "metrics isl theory text regression validity",
    "sampling/checking": "check* kernels kernel_rules extended theory",
}
# For samplers: their cases that name a file's class.
BY_CLASS = {"test_kernels", "test_kernel_rules", "test_validity"}
# What an operator or a called function is exchanged for, in both directions.
PAIRS = (
    "Add Sub,Mult Div,FloorDiv Mult,Mod Mult,Pow Mult,BitAnd BitOr,BitXor BitAnd,LShift RShift,"
    "Lt LtE,Gt GtE,Eq NotEq,Is IsNot,In NotIn,And Or,"
    "add sub,add_ sub_,mul div,mul_ div_,min max,amin amax,minimum maximum,argmin argmax,any all,"
    "zeros ones,zeros_like ones_like,sum mean,cumsum cumprod,floor ceil,triu tril"
)
OTHER = dict(pair.split()[::way] for way in (-1, 1) for pair in PAIRS.split(","))
DROPPED = ("neg", "abs", "square", "sqrt", "clone", "exp", "log")  # or with an underscore
OPTIONS = ("alpha", "beta", "value", "min", "max")  # may be left out of a call
# What no test should fix: types, decorators, messages.
UNREAD = ("annotation", "returns", "decorator_list", "exc", "msg")
UNREAD_CALLS = ("isinstance", "cast", "getLogger", "debug", "info", "warning")


def mutants(source: str) -> list[tuple[str, str]]:
    """All mutants of a module: where and what it changes, and the module then."""
    code, changed_sources = source.encode(), []
    starts = [0, *accumulate(map(len, code.splitlines(True)))]
    for old, new in (change for node in _nodes(ast.parse(source)) for change in _changes(node)):
        begin = starts[old.lineno - 1] + old.col_offset
        end = starts[old.end_lineno - 1] + old.end_col_offset
        change = " ".join(f"{ast.unparse(old)} -> {ast.unparse(new)}".split())
        text = f"({ast.unparse(new)})" if isinstance(old, ast.expr) else ast.unparse(new)
        change = f"{old.lineno}:{old.col_offset + 1}: {change}"
        changed_sources.append((change, (code[:begin] + text.encode() + code[end:]).decode()))
    return changed_sources


def _called(node: ast.AST) -> str:
    """The name of the function or method that the node calls, if it does."""
    func = node.func if isinstance(node, ast.Call) else None
    return getattr(func, "attr", getattr(func, "id", ""))


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and those below it, without what no test should fix."""
    is_cache_option = isinstance(node, ast.keyword) and node.arg == "cache"  # numba's
    if is_cache_option or isinstance(node, ast.JoinedStr) or _called(node) in UNREAD_CALLS:
        return
    yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in UNREAD:
                yield from _nodes(child)


def _other(operator: ast.AST) -> ast.AST:
    return getattr(ast, OTHER[type(operator).__name__])()


def _with(node: Any, **fields: Any) -> Any:
    """A copy of the node, with other values of some fields."""
    vars(node := copy.copy(node)).update(fields)
    return node


def _changes(node: Any) -> Iterator[tuple[Any, Any]]:
    """Parts of the node that may be replaced, each with its replacement."""
    match node:
        case ast.Constant(value=bool(value)):
            yield node, _with(node, value=not value)
        case ast.Constant(value=int(value) | float(value)) if value + 1 != value:
            yield node, _with(node, value=value + 1)
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield node, node.operand
        case ast.BinOp() | ast.BoolOp() | ast.AugAssign() if type(node.op).__name__ in OTHER:
            yield node, _with(node, op=_other(node.op))
        case ast.Compare(ops=ops):
            for k, op in enumerate(ops):
                yield node, _with(node, ops=[*ops[:k], _other(op), *ops[k + 1 :]])
        case ast.Call(func=func, args=args, keywords=keywords):
            field = "attr" if isinstance(func, ast.Attribute) else "id"
            if (name := _called(node)) in OTHER:
                yield node, _with(node, func=_with(func, **{field: OTHER[name]}))
            if name.rstrip("_") in DROPPED and not args and field == "attr":
                yield node, vars(func)["value"]
            if name == "where" and len(args) == 3:
                yield node, _with(node, args=[args[0], args[2], args[1]])
            for each in keywords:
                if each.arg in OPTIONS:
                    yield node, _with(node, keywords=[k for k in keywords if k is not each])
    match node:  # conditions, and statements that assign no name
        case ast.If(test=test) | ast.IfExp(test=test) | ast.comprehension(ifs=[test]):
            if not isinstance(test, ast.Compare | ast.UnaryOp):
                yield test, ast.UnaryOp(ast.Not(), test)
        case ast.Raise() | ast.AugAssign() | ast.Expr(value=ast.Call()):
            if _called(getattr(node, "value", node)) not in UNREAD_CALLS:
                yield node, ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield node, ast.Pass()


def chosen_tests(file: Path, root: Path) -> list[str]:
    """The arguments for pytest that choose the tests of a file in the tree `root`."""
    room, use = str(file.parent.relative_to(root)), f"{file.parent.name}.{file.stem} import"
    if room.startswith(COMPILED):
        room = COMPILED
    public = re.findall(r"^(?:class|def) ([^\W_]\w*)", file.read_text(), re.MULTILINE)
    uses = re.compile(rf"{re.escape(use)}|\blw\.({'|'.join(public) or '-'})\b")
    words = TESTS.get(room, "*").split()
    listed = sorted(test for word in words for test in root.glob(f"tests/test_{word}.py"))
    stems = {t.stem for t in listed if t.stem == f"test_{file.stem}" or uses.search(t.read_text())}
    if room == COMPILED:
        chosen = [f"tests/{test.stem}.py" for test in listed]
        return [*chosen, "-k", "compiled or same_law or cache"]
    if room != "samplers":
        chosen = sorted(stems) or [test.stem for test in listed]
        return [f"tests/{stem}.py" for stem in chosen]
    kin = [f.read_text() for f in file.parent.glob("*.py") if f == file or use in f.read_text()]
    names = re.findall(r"^class (\w+)", "".join(kin), re.MULTILINE) + sorted(stems - BY_CLASS)
    return [*(f"tests/{stem}.py" for stem in sorted(stems | BY_CLASS)), "-k", " or ".join(names)]


def outcome(root: Path, tests: Sequence[str], seconds: float) -> str:
    """The outcome of the tests in the tree `root`, or that they take longer than `seconds`."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests]
    paths = os.pathsep.join([str(root / "src"), str(root)])
    env = {**os.environ, "PYTHONPATH": paths, "LATTICEWORK_CACHE": str(root / "build")}
    pipe: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(command, cwd=root, env=env, start_new_session=True, **pipe) as process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return f"killed: no end after {seconds:.0f} s"
    last = (said.strip() or "the process died").splitlines()[-1]
    return f"killed: {last}" if process.returncode else "survived"


def outcomes(file: Path, root: Path, changes: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Try some mutants of a file in the tree `root`, and put it back; a line about each."""
    source, tests, began = file.read_text(), chosen_tests(file, root), time.monotonic()
    if (unmutated := outcome(root, tests, 3600)) != "survived":
        raise RuntimeError(f"the tests of {file} fail without a mistake: {unmutated}")
    longest = 60 + 4 * (time.monotonic() - began)  # as a mistake can cause an endless loop
    for number, (change, text) in enumerate(changes):
        file.write_text(text)
        os.utime(file, (number, number))  # by which Python knows its byte code, in whole seconds
        yield f"{file.relative_to(root)}:{change}: {outcome(root, tests, longest)}"
    file.write_text(source)


def main() -> None:
    parser = argparse.ArgumentParser(description="List small mistakes that no test notices.")
    parser.add_argument("paths", nargs="*", default=[*TESTS][1:], help="files, or their folders")
    parser.add_argument("--each", type=int, default=10, help="mutants of a file, at most")
    parser.add_argument("--minutes", type=float, default=60, help="after which it ends")
    parser.add_argument("--seed", type=int, default=0, help="of the order and the choice")
    options = parser.parse_args()
    rng, until = random.Random(options.seed), time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve() / "latticework"
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns(*LEFT_OUT))
        paths = [root / path for path in options.paths]
        files = [f for p in paths for f in ([p] if p.is_file() else sorted(p.glob("*.py")))]
        for file in rng.sample(files, len(files)):
            changes = mutants(file.read_text())
            drawn = rng.sample(changes, min(options.each, len(changes)))
            for line in outcomes(file, root, drawn) if drawn else ():
                survived = line.endswith("survived")
                print(line, file=sys.stdout if survived else sys.stderr, flush=True)
                if time.monotonic() > until:
                    return


if __name__ == "__main__":
    main()
