"""What README.md and docs/ tell a reader to do, done."""

import re

import numpy as np
import pytest
import test_kernels
from command import command_line
from documented import PAGES, ROOT, blocks, commands, typed
from exactness import Row
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from targets import TARGETS

import latticework.scripts.figures
from latticework.experiments.config import resolvers
from latticework.experiments.measures.exact import exact
from latticework.experiments.results.record import load_all
from latticework.samplers.block_gibbs import BlockGibbs
from latticework.samplers.gibbs import Gibbs
from latticework.scripts import samplers_table

CONF = ROOT / "conf"
resolvers.register(CONF)


def table(page, first):
    """The rows of the table whose first column is named `first`, cell by cell."""
    text = page.read_text().split(f"| {first} |", 1)[1].split("\n\n", 1)[0]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in text.splitlines()[2:]]


def names(group):
    return {file.stem for file in (CONF / group).glob("*.yaml")}


# Snippets.


def test_every_python_block_is_executed_here():
    """Others: commands.md and library.md in test_doors.py, adding_*.md in test_adding.py."""
    pages = [page for page in PAGES if not page.name.startswith("adding_")]
    found = {page.name: len(blocks(page, "python")) for page in pages if blocks(page, "python")}
    assert found == {"README.md": 1, "commands.md": 2, "library.md": 3}


def test_the_library_example_samples_its_target(capsys):
    (source,) = blocks(ROOT / "README.md", "python")
    space = {}
    exec(compile(source, "README.md", "exec"), space)
    steps = [
        int(line.split()[0])
        for line in capsys.readouterr().out.splitlines()
        if line[0] in "0123456789"
    ]
    assert steps == [0, 200, 400, 600, 800, 1000]
    truth = exact(space["model"]).mean.float()

    def largest_z(x):
        return ((x.mean(0) - truth) / (truth * (1 - truth) / len(x)).sqrt()).abs().max()

    assert largest_z(space["reading"].state.x) < 4.5  # of 20 sites
    assert largest_z(space["x"]) > 10  # control: the uniform start is far from it


def test_figures_are_redrawn_by_the_readmes_command(tmp_path, capsys):
    words = ["experiment=ising_sampling"]  # what its command is checked for in test_commands.py
    part = [*words, "scale=smoke", "seed=0"]
    assert command_line(*part, "sampler=dula", outputs=tmp_path) == 0
    capsys.readouterr()
    latticework.scripts.figures.main([*words, "scale=smoke", f"outputs={tmp_path}"])
    assert "fig3.png" in capsys.readouterr().out


# Tables, links.


def sampler_of(name):
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return instantiate(compose(f"sampler/{name}").sampler, _convert_="all")


def test_the_tables_of_samplers_and_state_spaces_are_the_generated_ones():
    """The generator restores a cell that was changed, and changes nothing else."""
    page = (ROOT / "README.md").read_text()
    wrong = page.replace("| `gibbs` | yes", "| `gibbs` | ·")
    assert wrong != page
    assert samplers_table.refreshed(wrong) == page


def test_a_cell_is_decided_by_trying_the_sampler():
    models = samplers_table.columns()
    assert samplers_table.supports(Gibbs(), models["ordinal"])
    assert not samplers_table.supports(Gibbs(), models["integers"])
    assert not samplers_table.supports(BlockGibbs(), models["{0, 1}"])
    assert samplers_table.supports(BlockGibbs(), models["RBM"])


@pytest.mark.parametrize(("first", "group"), [("`model=`", "model"), ("`task=`", "task")])
def test_models_and_tasks_of_the_readme_are_those_there_are(first, group):
    cells = " ".join(row[0] for row in table(ROOT / "README.md", first))
    assert set(re.findall(r"`(\w+)`", cells)) == names(group)


def test_every_experiment_is_in_the_table_of_reproducing():
    rows = table(ROOT / "docs" / "reproducing.md", "id")
    assert {row[1].strip("`") for row in rows} == names("experiment")


def test_every_sampler_and_its_fields_are_in_the_docs():
    text = (ROOT / "docs" / "samplers.md").read_text()
    for name in names("sampler"):
        assert f"`{name}`" in text
        missing = [key for key in vars(sampler_of(name)) if f"`{key}`" not in text]
        assert not missing, name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        outside = target.startswith(("http", "../../actions/"))  # the latter on GitHub
        if not outside and "docs/results" not in target:
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


# docs/adding_a_sampler.md, from outside the repository.


def test_the_documented_sampler_runs_from_outside_and_is_exact(tmp_path, monkeypatch):
    page = ROOT / "docs" / "adding_a_sampler.md"
    source, *_, law = blocks(page, "python")
    (line,) = blocks(page, "text")
    (yaml,) = blocks(page, "yaml")
    (tmp_path / "conf" / "sampler").mkdir(parents=True)
    (tmp_path / "lazy_walk.py").write_text(source)
    outside = yaml.replace("latticework.samplers.lazy_walk", "lazy_walk")
    (tmp_path / "conf" / "sampler" / "lazy_walk.yaml").write_text(outside)
    monkeypatch.syspath_prepend(str(tmp_path))
    (command,) = [c for c in commands() if "<repository>" in c.text]
    _, _, *words = typed(command, tmp_path)
    words = [word.replace("=quick", "=smoke") for word in words]
    assert command_line(*words, "seed=0", outputs=tmp_path / "outputs") == 0
    chosen = {record.choices["sampler"] for record in load_all(tmp_path / "outputs")}
    assert chosen == {"lazy_walk", "dmala"}

    import exactness
    import lazy_walk

    space = {**vars(exactness), "LazyWalk": lazy_walk.LazyWalk}
    exec(law, space)
    (row,) = eval(f"[{line}]", space)
    assert isinstance(row, Row)
    monkeypatch.setattr(test_kernels, "exact_law", lambda row, target: row.law(row.sampler, target))
    for name in row.targets:
        test_kernels.test_steps_follow_the_enumerated_law(row, TARGETS[name])
    wrong = Row(
        row.sampler, row.targets, lambda _, target: row.law(lazy_walk.LazyWalk(0.4), target)
    )
    with pytest.raises(AssertionError):  # control
        test_kernels.test_steps_follow_the_enumerated_law(wrong, TARGETS["binary"])
    with pytest.raises(ValueError, match="laziness must be"):
        lazy_walk.LazyWalk(np.nan)
