"""Which tests `make test` runs after a change."""

import subprocess
from pathlib import Path

import grimp
import pytest

from workshop import changed_tests
from workshop.changed_tests import PACKAGES, list_tests, module_name, select_tests

KERNELS, CLAIMS, COMMANDS = (
    Path(f"tests/test_{name}.py") for name in ("kernels", "claims", "commands")
)


@pytest.fixture(scope="module")
def graph():
    return grimp.build_graph(*PACKAGES)


def test_a_change_selects_what_imports_it_and_what_runs_commands(graph):
    selected = select_tests([Path("experiments/papers/claims/verdict.py")], graph)
    assert CLAIMS in selected
    assert COMMANDS in selected
    assert KERNELS not in selected


def test_what_is_reached_by_a_public_name_is_selected(graph):
    """`lw.GWG` is imported when first used, by its name."""
    assert Path("tests/test_same_law.py") in select_tests([Path("samplers/gwg.py")], graph)


def test_a_changed_test_is_selected_alone(graph):
    assert select_tests([KERNELS], graph) == [KERNELS]


def test_a_change_of_the_workshop_runs_none_of_the_commands(graph):
    selected = select_tests([Path("workshop/changed_tests.py")], graph)
    names = ("tests/test_adding.py", "tests/test_wheel.py", "workshop/tests/test_changed_tests.py")
    assert selected == [Path(name) for name in names]


@pytest.mark.parametrize("name", ["conf/config.yaml", "tests/targets.py", "models/gone.py"])
def test_other_changes_may_reach_all_tests(graph, name):
    assert select_tests([Path("samplers/gwg.py"), Path(name)], graph) == []


def test_files_of_the_user_are_no_part_of_the_project(tmp_path, monkeypatch):
    """Such as README's target.py, which `make test` need not like."""
    monkeypatch.setattr(changed_tests, "ROOT", tmp_path)
    files = ("models/tracked.py", "models/new.py", "target.py", "mine/sampler.py", "a folder/x.py")
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    names = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", files[0]], [*names, "commit", "-q", "-m", "one"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    assert changed_tests.list_changed_files() == [Path("models/new.py")]
    assert changed_tests.list_project_files() == [Path(name) for name in files[:2]]


def test_every_module_of_the_package_has_a_name(graph):
    root = Path(__file__).resolve().parents[2]
    for test in list_tests():
        assert (root / test).is_file()
    assert module_name(Path("models/rbm.py")) == "latticework.models.rbm"
    assert module_name(Path("src/latticework/moved.py")) == "latticework.moved"
    assert module_name(Path("docs/hooks.py")) is None
