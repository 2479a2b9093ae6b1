"""Rules on source and pages: a table, with examples that break each rule.

ruff, mypy and `mkdocs build --strict` check the rest, such as links, formats and types.
"""

import ast
import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import pytest
from sources import PACKAGE, SOURCE, files, read

NAME = "latticework"
OURS = ("conf", "data", "experiments", "models", "run", "samplers", "sampling")
OURS += ("scripts", "torchvision_ops")
PAGES = ("*.md", "docs/*.md", "docs/gallery/*", "docs/results/**/*.md", "examples/**/*.*")
YAML = ("conf/**/*.yaml", "experiments/**/*.yaml")
MENDED = tuple(path for path in PACKAGE if not path.startswith("workshop"))
NAMED_IN_YAML = {"averaged", "scaled", "stored", "written"}  # parts of records' identities


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# Participles and adverbs that were names of functions: a function is a verb with its object.
PARTICIPLES = words_of(
    """
    about above adapted adapting after alone also annealed apart around asked available
    averaged begun below beside bounded broken built bundled busy captured changed cheap
    checked chosen claimed common comparable composed consecutive copied counted damaged
    declared described differing divided drawn earlier edited ended entered examined existing
    expected explained faster filled fitted forwards found frozen given happens has hashed
    held holding inside joined judged kept labelled later learned learnt leaving lifted listed
    loaded longest made marked matched measured merged moved named near noted offered
    opened ordered others ours over own placed possible preferred prepared printed quiet
    ranked reached recorded replaced required resolved restored restricted rounded same scaled
    searched seeded selected served settled shared shortened shown softened sorted spaced
    spread started stepped stopped stored summed swapped tabulated taken told trained tried
    tuned undisturbed updated used whole widened within without wrapped written
    """
)
# Quantities without their noun: a constant says what it bounds.
QUANTITIES = words_of(
    """
    ABOUT ADDED AHEAD ALL ALONE APART BUSY CERTAIN CHEAP CLOSE CROWDED ENOUGH FAR FEW FEWER
    FEWEST FRESH FULL INFINITE KEPT LARGE LARGEST LATER LEAST LENGTH LONG LONGEST MANY MISSED
    MOST NARROW NEAR NEARER NEAREST NEARLY OURS OWN QUIET SAID SEEN SHARED SHORT SHORTEST SHOWN
    SIMILAR SLOW SMALL TAME TINY TOGETHER TOLD WIDE WRITTEN
    """
)
VAGUE = words_of(
    """
    found kept one other others own rest some told
    """
)


@cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


# Functions of a file's path and text. They return what breaks a rule.


def matches(pattern: str) -> Callable[[str, str], list[str]]:
    return lambda path, text: [found[0] for found in re.finditer(pattern, text)]


def docstrings_that_begin(words: str) -> Callable[[str, str], list[str]]:
    def find(path: str, text: str) -> list[str]:
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef
        nodes = (node for node in ast.walk(parsed(text)) if isinstance(node, kinds))
        lines = [(ast.get_docstring(node) or "").partition("\n")[0] for node in nodes]
        return [line for line in lines if re.match(rf"({words})\b", line)]

    return find


@cache
def imported(source: str) -> list[str]:
    """Every module that the source imports, wherever in it: `from a import b` gives a.b."""
    found = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [f"{'.' * node.level}{node.module}.{alias.name}" for alias in node.names]
    return found


def within(module: str, allowed: str) -> bool:
    return f"{module}.".startswith(f"{allowed}.")


def bare(path: str, text: str) -> list[str]:
    return [module for module in imported(text) if module.split(".")[0] in ("", *OURS)]


def bare_targets(path: str, text: str) -> list[str]:
    return [t for t in re.findall(r"_target_: *([\w.]+)", text) if t.split(".")[0] in OURS]


def undocumented(path: str, text: str) -> list[str]:
    """The classes and functions that an option names, and that have no docstring."""
    found = []
    for module, name in re.findall(rf"^_target_: *{NAME}\.([\w.]+)\.(\w+)", text, re.MULTILINE):
        source = parsed(read(f"{module.replace('.', '/')}.py"))
        found += [n for n in source.body if getattr(n, "name", "") == name]
    return [node.name for node in found if not ast.get_docstring(node)]


def function_names(path: str, text: str) -> list[str]:
    nodes = (n for n in ast.walk(parsed(text)) if isinstance(n, ast.FunctionDef))
    names = (node.name for node in nodes if node.name not in NAMED_IN_YAML)
    return [name for name in names if name.strip("_") in PARTICIPLES]


def constant_names(path: str, text: str) -> list[str]:
    """The constants of a module that are named by a quantity without its noun."""
    names = []
    for node in parsed(text).body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names += [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and is_stored(n)]
    return [name for name in names if name.strip("_") in QUANTITIES]


def is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def is_condition(node: ast.expr) -> bool:
    negated = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    return negated or isinstance(node, ast.Compare | ast.BoolOp)


def text_times_condition(path: str, text: str) -> list[str]:
    found = []
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = (node.left, node.right)
            if any(map(is_text, sides)) and any(map(is_condition, sides)):
                found.append(ast.unparse(node))
    return found


def nested_conditionals(path: str, text: str) -> list[str]:
    nodes = [node for node in ast.walk(parsed(text)) if isinstance(node, ast.IfExp)]
    parts = [(node, (node.test, node.body, node.orelse)) for node in nodes]
    return [ast.unparse(n) for n, three in parts if any(isinstance(p, ast.IfExp) for p in three)]


def comprehension_depth(node: ast.AST) -> int:
    """How many comprehensions lie in one another below `node`, itself included."""
    depth = max(map(comprehension_depth, ast.iter_child_nodes(node)), default=0)
    return depth + isinstance(node, COMPREHENSIONS)


def dense_comprehensions(path: str, text: str) -> list[str]:
    """Comprehensions in comprehensions, or with three `for`."""
    nodes = [node for node in ast.walk(parsed(text)) if isinstance(node, COMPREHENSIONS)]
    dense = [n for n in nodes if len(n.generators) > 2 or comprehension_depth(n) > 1]
    return [ast.unparse(node) for node in dense]


def vague_variables(path: str, text: str) -> list[str]:
    names = [node for node in ast.walk(parsed(text)) if isinstance(node, ast.Name)]
    return [node.id for node in names if is_stored(node) and node.id in VAGUE]


def possessive_comments(path: str, text: str) -> list[str]:
    return re.findall(r"# (?:of|that|whose) .*", text)


def top_level_names(path: str) -> list[str]:
    nodes = [n for n in parsed(read(path)).body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [node.name for node in nodes if node.name != "main"]


class Rule(NamedTuple):
    files: tuple[str, ...]  # patterns
    find: Callable[[str, str], list[str]]
    instead: str  # what to write
    broken: dict[str, str]  # texts that break it, by path


SAMPLER = r"(DULA|DMALA|GWG(-\d)?|Gibbs(-\d)?|LB-1|HB-10-1|DSVGD|R-MALA|SP|rates-\w+|\w*log\w*|ISL)"
RULES = {
    "docstrings name their subject": Rule(
        SOURCE,
        docstrings_that_begin("Of|The same"),
        "say what it is about in the docstring's first words",
        {"a.py": 'def f():\n    """Of each chain."""', "b.py": '"""The same\n\n    for B."""'},
    ),
    "sentences name their subject": Rule(
        (*SOURCE, "*.md", "docs/*.md", "docs/gallery/*.py"),
        matches(r"(?m)(?:[.:;?!]\s+|\n\n\s*|^\s*(?:[-*#]|\d+\.) +)(?:Of|The same) [a-z]"),
        "begin with the subject: for one-hot states, the product is 1",
        {"a.md": f"It is so. {'Of'} two, one is kept.", "b.py": '"""A.\n\n    The same holds."""'},
    ),
    "docstrings begin with what is returned or done": Rule(
        MENDED,
        docstrings_that_begin("Those|What|Where"),
        "the noun or the verb itself",
        {"a.py": 'def f():\n    """What a chain sees."""', "b.py": '"""Where chains are."""'},
    ),
    "variables say what they hold": Rule(
        PACKAGE,
        vague_variables,
        "the noun: draws, not some",
        {"a.py": "found, total = f()", "b.py": "rest: int = 3"},
    ),
    "functions are verbs": Rule(
        MENDED,
        function_names,
        "a verb with its object: update_cache, not moved",
        {"a.py": "class A:\n    def _moved(self): ...", "b.py": "def told(): ..."},
    ),
    "constants say what they bound": Rule(
        ("models/*.py", "samplers/**/*.py", "sampling/**/*.py"),
        constant_names,
        "the noun and the unit: MAX_SEQUENCES, not LARGEST",
        {"a.py": "FEW = 4", "b.py": "FEW, MOST = 1, 2", "c.py": "LONGEST: int = 3"},
    ),
    "no text times a condition": Rule(
        MENDED, text_times_condition, "if", {"a.py": "x = f'{n} runs' * (n > 1)"}
    ),
    "no conditional in a conditional": Rule(
        MENDED, nested_conditionals, "if and elif", {"a.py": "x = 1 if a else 2 if b else 3"}
    ),
    "comprehensions are simple": Rule(
        PACKAGE,
        dense_comprehensions,
        "a loop",
        {
            "a.py": "x = [[b for b in a] for a in z]",
            "b.py": "x = [c for a in z for b in a for c in b]",
        },
    ),
    "comments name their subject": Rule(
        PACKAGE,
        possessive_comments,
        "the noun: 16 sweeps of the first attempt",
        {"a.py": "n = 3  # of the sites", "b.py": "n = 3  # that of a site"},
    ),
    "margins are differences": Rule(
        ("experiments/papers/claims/*.py", "experiments/papers/*.*"),
        matches(f"{SAMPLER} less {SAMPLER}"),
        "A - B",
        {"a.py": '"log RMSE, GWG-1 less DMALA"'},
    ),
    "costs are per evaluation": Rule(
        (*PACKAGE, "docs/*.md"),
        matches(r"for an evaluation|evaluations? (?:by|of) a (?:chain|second)"),
        "per evaluation",
        {"a.md": "its ESS for an evaluation"},
    ),
    "no paths of a machine": Rule(
        (*SOURCE, *PAGES, *YAML, "Makefile", ".ci/*", ".github/**/*.yml"),
        matches(r"(?<![\w.>}])/(?:home|work|root|Users)/\w+"),
        "a path relative to the repository, or a placeholder",
        {"a.md": f"in `/{'home'}/me`"},
    ),
    "imports name the package": Rule(
        SOURCE,
        bare,
        f"from {NAME}.models.base: without the name, a module is loaded twice",
        {
            "a.py": "from models.base import EnergyModel",
            "b.py": "import sampling.chain as chain",
            "c.py": "from .base import EnergyModel",
        },
    ),
    "targets name the package": Rule(
        YAML, bare_targets, f"{NAME}.models...", {"a.yaml": "_target_: models.potts.Potts"}
    ),
    "models are asked for classes": Rule(
        PACKAGE,
        matches(r"hasattr\((?:\w+\.)*model,"),
        "isinstance(model, ...) of a class of models.base",
        {"a.py": 'hasattr(self.model, "lattice")'},
    ),
    "options are documented": Rule(
        ("conf/*/*.yaml",),
        undocumented,
        "a docstring, which the site shows",
        {"a.yaml": f"_target_: {NAME}.sampling.metrics.MarginalSums"},
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_files_keep_the_rule(name):
    rule = RULES[name]
    paths = files(*rule.files)
    assert len(paths) > 1
    broken = {path: found for path in paths if (found := rule.find(path, read(path)))}
    assert not broken, f"{name}: {rule.instead}"


@pytest.mark.parametrize("name", RULES)
def test_a_file_that_breaks_the_rule_is_found(name):
    for path, text in RULES[name].broken.items():
        assert RULES[name].find(path, text), text


SHARED_NAMES = 52  # of several modules, for functions and classes; it may only fall


def test_names_of_several_modules_only_get_rarer():
    names: list[str] = []
    for path in files(*PACKAGE):
        names += set(top_level_names(path))
    shared = {name for name in names if names.count(name) > 1}
    assert len(shared) <= SHARED_NAMES, f"{len(shared)} names: {sorted(shared)}"


def test_classes_have_names_of_their_own():
    paths = [path for path in files(*PACKAGE) if not path.startswith("workshop/")]
    nodes = [node for path in paths for node in parsed(read(path)).body]
    names = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    assert sorted({name for name in names if names.count(name) > 1}) == []
