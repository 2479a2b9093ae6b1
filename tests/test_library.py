"""The library by itself: `import latticework` without what only the experiments need."""

import ast
import importlib
import inspect
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from documented import ROOT
from hydra.utils import get_object

import latticework
from latticework.experiments.records.estimates import Estimate, KeyNumber
from latticework.models.base import EnergyModel
from latticework.moved import PLACES, RenamedMethods, take_old_methods
from latticework.samplers import NAMES, find_sampler_class
from latticework.samplers.skeleton import Skeleton

# In a process of its own, in which these packages cannot be imported.
BLOCKED = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ImportError(name + " is not to be imported here")

sys.meta_path.insert(0, Refused())
import latticework
{code}
"""
EXPERIMENTS = ("hydra", "omegaconf", "antlr4", "pandas", "transformers", "matplotlib")


def blocked(code: str, refused: tuple[str, ...] = EXPERIMENTS) -> str:
    """What the code prints where no package of `refused` can be imported."""
    words = [sys.executable, "-W", "ignore", "-c", BLOCKED.format(code=code, refused=refused)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SAMPLE = """
def log_prob(x):
    return 2 * x[:, 0] - x.sum(-1) ** 2 / 8

for named in ("dmala", "gwg(flips=2)", "dmala_without_step_term", "pt_dmala"):
    result = latticework.sample(log_prob, named, sites=6, steps=40, burn_in=10)
    assert result.draws.shape == (4, 40, 6) and "4 chains x 40 draws" in str(result)
    print(result.sampler)
"""


def test_a_function_is_sampled_without_the_packages_of_experiments():
    printed = blocked(SAMPLE)
    assert printed.splitlines() == [
        "DMALA(step_size=0.2, preconditioner=None, preconditioner_power=1)",
        "GWG(flips=2)",
        "DMALA(step_size=inf, preconditioner=None, preconditioner_power=1)",
        "Tempered(kernel='dmala(step_size=0.2)', rounds=8, levels=None, "
        "schedule=[0.4, 0.6, 0.8, 1.0], acceptance=None, scales=None, log_odds=None, steps=1, "
        "hot=0.0, learn_base=None)",
    ]


def test_the_block_holds():
    """Control: what reads configurations fails in it."""
    with pytest.raises(AssertionError, match="hydra is not to be imported here"):
        blocked("import latticework.experiments.runs.configuration")


OTHERS = """
def log_prob(x):
    return 2 * x[:, 0] - x.sum(-1) ** 2 / 8

import torch
model = latticework.Function(log_prob, latticework.Binary(4))
rng = torch.Generator().manual_seed(0)
x = model.domain.uniform(8, rng)
for reading in latticework.run_chain(latticework.GWG(), model, x, rng, steps=4, every=2):
    assert reading.state.x.shape == (8, 4)
print(reading.step)

report = latticework.check("gwg(flips=2)", log_prob, sites=4, chains=2000)
print(report.passed, "everything holds" in str(report))

budget = dict(sites=4, budget="1500evaluations", chains=4, seeds=3, trials=1)
table = latticework.race(log_prob, ["gibbs", "gwg(flips=2)"], **budget)
print(sorted(table["sampler"]), table.attrs)
"""


@pytest.mark.slow
def test_chains_checks_and_races_need_no_hydra():
    printed = blocked(OTHERS, tuple(name for name in EXPERIMENTS if name != "pandas"))
    assert printed.splitlines() == [
        "4",
        "True True",
        "['gibbs', 'gwg(flips=2)'] {'unit': 'evaluations', 'left_out': {}, 'disagreements': []}",
    ]


def test_the_import_alone_imports_no_torch():
    assert blocked("print('latticework.samplers' in sys.modules)", ("torch", "numpy")) == "False\n"


def test_every_public_name_is_the_object_of_its_module():
    stub = ast.parse((ROOT / "src/latticework/__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    found = [(node.module, alias) for node in imports for alias in node.names]
    assert all(alias.asname == alias.name for _, alias in found)  # else no type checker sees it
    names = [alias.name for _, alias in found]
    assert sorted(set(names)) == sorted(names) == latticework.__all__
    assert dir(latticework) == sorted(names)
    for module, alias in found:
        if module.endswith("dimod_sampler") and find_spec("dimod") is None:
            continue  # an extra
        own = getattr(importlib.import_module(module), alias.name)
        assert getattr(latticework, alias.name) is own
    assert (
        latticework.__version__
        == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    )
    with pytest.raises(AttributeError, match="no attribute 'DMLA'"):
        latticework.DMLA  # noqa: B018


@pytest.mark.parametrize(
    ("module", "names"),
    [
        ("experiments.records.numbers", ["KeyNumber", "last", "noted", "readings"]),
        ("models.domain", ["Binary", "Domain", "one_hot"]),
        ("sampling.memory", ["Memory"]),
    ],
)
def test_modules_that_moved_work_with_a_warning(module, names, monkeypatch):
    monkeypatch.delitem(sys.modules, f"latticework.{module}", raising=False)
    with pytest.warns(DeprecationWarning, match="moved to latticework"):
        old = importlib.import_module(f"latticework.{module}")
    assert all(callable(getattr(old, name)) for name in names)
    with pytest.raises(AttributeError):
        old.no_such_name  # noqa: B018


def test_names_that_moved_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match="import it from latticework.sampling.chain"):
        moved = latticework.Poisoned
    assert moved is importlib.import_module("latticework.sampling.chain").Poisoned


@pytest.mark.parametrize("module", PLACES)
def test_names_that_left_a_module_work_there_with_a_warning(module):
    for name, place in PLACES[module].items():
        with pytest.warns(DeprecationWarning, match=f"{name} moved to {place}"):
            old = getattr(importlib.import_module(module), name)
        assert old is getattr(importlib.import_module(place), name)
    with pytest.raises(AttributeError, match="no_such_name"):
        importlib.import_module(module).no_such_name  # noqa: B018


def renamed_classes() -> list[type]:
    for module in ("models.base", "samplers.base", "sampling.adaptation", "sampling.chain"):
        importlib.import_module(f"latticework.{module}")
    importlib.import_module("latticework.experiments.runs.run")
    return [kind for kind in RenamedMethods.__subclasses__() if kind.__module__ in sys.modules]


def all_subclasses(kind: type) -> list[type]:
    return [kind, *(found for each in kind.__subclasses__() for found in all_subclasses(each))]


@pytest.mark.parametrize("kind", renamed_classes(), ids=lambda kind: kind.__name__)
def test_methods_under_their_old_names_work_with_a_warning(kind):
    """Called from outside, by super(), and defined by a subclass, in each class that has them."""
    for old, new in kind.old_names.items():
        owners = [each for each in all_subclasses(kind) if new in vars(each)]
        assert owners, f"{kind.__name__}.{new}"
        for owner in owners:
            with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
                method = getattr(owner, old)
            assert method == getattr(owner, new)
        with pytest.warns(DeprecationWarning, match=f"defines {old}, whose name is now {new}"):
            late = type("Late", owners[0].__mro__[:1], {old: lambda *words: (words[1:], "late")})
        assert vars(late)[new](None, 1) == ((1,), "late")


def test_old_methods_of_a_model_call_the_new_ones():
    class Doubled(latticework.Lattice):
        def condition_on(self, known):
            return super().given({0: 1, **known})

    with pytest.warns(DeprecationWarning, match="given is now condition_on"):
        assert Doubled([2, 2], 0.3).given({1: 0}).domain.dim == 2


def test_trackers_with_old_methods_get_the_new_ones():
    old = SimpleNamespace(result=list, show=len)
    with pytest.warns(DeprecationWarning, match="is now log_"):
        new = take_old_methods(old, {"result": "log_headline", "show": "log_files"})
    assert (new.log_headline, new.log_files) == (list, len)


def test_fields_of_a_number_under_their_old_names_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match="KeyNumber.beside is now references"):
        number = KeyNumber("error", 1.0, beside={"exact": Estimate(2.0)})
    assert number == KeyNumber("error", 1.0, references={"exact": Estimate(2.0)})
    with pytest.warns(DeprecationWarning, match="KeyNumber.over is now error_over"):
        assert replace(number, error_over="chains").over == "chains"


def test_every_sampler_and_model_is_public():
    for file in ROOT.glob("models/*.py"):
        importlib.import_module(f"latticework.models.{file.stem}")
    left, models = [EnergyModel], set()
    while left:
        found = left.pop().__subclasses__()
        left += found
        models |= {f for f in found if f.__module__.startswith("latticework.models.")}
    named = {find_sampler_class(name)[0] for name in NAMES} | {
        m for m in models if not inspect.isabstract(m)
    }
    hidden = {cls for cls in named if getattr(latticework, cls.__name__, None) is not cls}
    assert {cls.__name__ for cls in hidden if not cls.__name__.startswith("_")} == set()


def test_the_skeleton_of_a_sampler_is_exact():
    report = latticework.check(Skeleton(2), chains=4000)
    assert report.passed, report


def test_a_class_is_checked():
    assert latticework.check(
        latticework.GWG, latticework.Lattice((3,), 0.6, 0.3), chains=4000
    ).passed


def test_a_check_needs_a_supported_target():
    report = latticework.check("gibbs_sweep", lambda x: x.sum(-1), sites=3, chains=100)
    assert not report.passed
    assert report.outcomes == {}
    assert "supports none of the targets" in str(report)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"start": "data"}, "start must be uniform or annealed"),
        ({"samplers": ["block_gibbs"]}, "no sampler supports Binary"),
        ({"samplers": ["dmal"]}, "sampler 'dmal' is not known: did you mean dmala"),
        ({"seeds": 2}, "three seeds or more"),
    ],
)
def test_a_race_says_what_it_cannot_run(words, message):
    with pytest.raises(ValueError, match=message):
        latticework.race(lambda x: x.sum(-1), sites=3, **words)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("target.exact", "truths.exact"),
        ("target.symmetric", "truths.symmetric"),
        ("target.averaged", "truths.averaged"),
        ("target.sampled", "truths.sampled"),
        ("target.stored", "stored_models.stored"),
        ("ebm_learning.examples", "examples.examples"),
        ("ebm_learning.Gap", "measures.learning_progress.Gap"),
        ("ebm_learning.CouplingError", "measures.learning_progress.CouplingError"),
    ],
)
def test_functions_of_tasks_are_found_at_their_old_places(old, new):
    """A user's YAML names them."""
    tasks = "latticework.experiments.tasks"
    with pytest.warns(DeprecationWarning, match=f"{tasks}.{old} moved to"):
        assert get_object(f"{tasks}.{old}") is get_object(f"{tasks}.{new}")


STEP_METHODS = """
import latticework as lw, latticework.pymc
assert lw.pymc is latticework.pymc and "DMALA" in dir(lw.pymc)
assert not {"pymc", "pytensor", "torch"} & set(sys.modules)
try:
    lw.pymc.DMALA
except ImportError as error:
    print(error)
"""


def test_step_methods_of_pymc_import_it_when_they_are_used():
    without = STEP_METHODS.replace("try:", "sys.modules['pymc'] = None\ntry:")
    assert blocked(without) == 'latticework.pymc needs PyMC: pip install "latticework[pymc]"\n'
    assert blocked(STEP_METHODS, ("pymc",)) == "pymc is not to be imported here\n"  # another fault
