"""Records are averaged where they differ in seed alone; what else differs is told, or refused."""

import matplotlib as mpl
import pytest
from command import command_line
from fakes import fake

import latticework.scripts.figures
from latticework.experiments.figures.isl_curves import models as models_table
from latticework.experiments.figures.style import colour, describe_band, describe_runs
from latticework.experiments.papers import draw
from latticework.experiments.papers.claims.readings import by_seed, last_value, records_by_sampler
from latticework.experiments.records.grouping import (
    UnlikeRecordsError,
    by_sampler,
    drop_repeated_runs,
    groups,
    require_one_setting,
    settings_table,
)
from latticework.experiments.records.record import load_all

mpl.use("Agg")
PART = ("experiment=ising_sampling", "scale=smoke")
README = ("sampler=dmala", "sampler.step_size=0.1,0.4", "seed=0")


def labels(found):
    return [group.label for group in found]


def ising(coupling):
    return {"model": {"coupling": coupling}}


# Groups.


def test_seeds_share_a_group_and_settings_do_not():
    records = [
        fake(sampler=sampler, seed=seed, settings=settings)
        for sampler, settings in (("dmala", {"step_size": 0.4}), ("dmala", {"step_size": 0.1}),
                                  ("gwg", {}), ("gwg4", {}))
        for seed in (0, 1)
    ]  # fmt: skip
    found = groups(records)
    expected = ["GWG-1", "GWG-4", "DMALA, step_size 0.1", "DMALA, step_size 0.4"]
    assert labels(found) == expected
    assert [len(group.records) for group in found] == [2, 2, 2, 2]
    assert [(group.line_index, group.line_count) for group in found] == [
        (0, 1),
        (0, 1),
        (0, 2),
        (1, 2),
    ]
    first, second = (colour(group.key, group.line_index, group.line_count) for group in found[2:])
    assert first != second


def test_a_target_that_differs_is_named_even_where_the_samplers_do():
    records = [fake(sampler="gwg", config=ising(0.1)), fake(sampler="dula", config=ising(0.3))]
    assert labels(groups(records)) == ["GWG-1, coupling 0.1", "DULA, coupling 0.3"]
    # what a sampler has of its own, such as its number of steps, is not
    steps = [{"task": {"steps": 5}}, {"task": {"steps": 9}}]
    records = [fake(sampler=s, config=c) for s, c in zip(("gwg", "dula"), steps, strict=True)]
    assert labels(groups(records)) == ["GWG-1", "DULA"]


def test_runs_before_and_after_a_file_was_replaced_are_not_averaged():
    """The configuration holds the path of a stored model; a run notes what it found there."""

    def runs(*found):
        return [
            fake(sampler="gwg", seed=seed, loaded=each, config={"model_seed": 0})
            for seed, each in found
        ]

    same = runs((0, "a"), (1, "a"), (2, None))  # older records do not say
    assert labels(groups(same)) == ["GWG-1"]
    mixed = runs((0, "a"), (0, "b"), (1, "b"))
    assert labels(groups(mixed)) == ["GWG-1, loaded a", "GWG-1, loaded b"]
    with pytest.raises(UnlikeRecordsError, match=r"model\.loaded \(a, b\)"):
        require_one_setting(mixed)
    # another model seed makes another model, and another setting may
    seeds = [fake(seed=n, loaded=str(n), config={"model_seed": n}) for n in (0, 1)]
    assert len(groups(seeds)) == 1
    points = [fake(loaded=str(coupling), config=ising(coupling)) for coupling in (0.1, 0.3)]
    assert len(groups(points, axes=["model.coupling"])) == 1
    data = [
        fake(seed=n, data={"variant": "v", "fingerprint": f"{n}"}, config={"model_seed": 0})
        for n in (0, 1)
    ]
    assert labels(groups(data)) == ["DMALA, data.fingerprint 0", "DMALA, data.fingerprint 1"]


def test_axes_do_not_split_and_everything_else_does():
    records = [
        fake(settings={"step_size": size}, config=ising(coupling))
        for size in (0.1, 0.4)
        for coupling in (0.1, 0.3)
    ]
    assert labels(groups(records, ["model.coupling"])) == [
        "DMALA, step_size 0.1",
        "DMALA, step_size 0.4",
    ]
    assert len(groups(records)) == 4
    assert len(groups(records, ["model", "sampler.step_size"])) == 1
    assert len(groups(records, ["model.coup"])) == 4  # a key, not the beginning of one


def test_as_few_words_as_tell_the_lines_apart():
    """The metric follows the flips; the option `a` of the group data names what it sets."""
    records = [
        fake(
            settings={"step_size": size},
            choices={"data": data},
            config={
                "task": {"metrics": [{"draws": size}]},
                "data": {"_target_": "latticework.data.x.X", "kind": data * 2, "root": root},
            },
        )
        for size, data, root in ((0.1, "a", "/1"), (0.2, "a", "/2"), (0.1, "b", "/3"))
    ]
    assert labels(groups(records)) == [
        "DMALA, data a, step_size 0.1",
        "DMALA, data a, step_size 0.2",
        "DMALA, data b, step_size 0.1",
    ]


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ((0.12345611, 0.12345622), ("0.12345611", "0.12345622")),
        ((0.1, 0.2 + 1e-12), ("0.1", "0.2")),  # no digit more than it takes
        (("a" * 60 + "b", "a" * 60 + "c"), (f'"{"a" * 60}b"', f'"{"a" * 60}c"')),
        ((1, "1"), ('"1"', "1")),
    ],
)
def test_no_two_groups_have_one_label(values, texts):
    """Figures and tables keep lines and rows by their label."""
    records = [fake(settings={"step_size": value}) for value in values]
    assert sorted(labels(groups(records))) == sorted(f"DMALA, step_size {text}" for text in texts)
    assert sorted(text for (text,), _ in settings_table(records)[1]) == sorted(texts)
    with pytest.raises(UnlikeRecordsError) as error:
        require_one_setting(records)
    assert all(text in str(error.value) for text in texts)


BLOG = {"_target_": "latticework.data.tables.Blog"}
OLD = {"config": {"data": BLOG}, "data": {"variant": "blog"}}
SPLIT = {"config": {"data": BLOG | {"split": "published"}}, "data": {"variant": "as published"}}


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        # where a run ran does not tell, nor do keys that are null
        ({"config": {"device": "cpu"}}, {"config": {"device": "cuda"}}, []),
        ({}, {"settings": {"preconditioner": None}}, []),
        (
            {},
            {"settings": {"preconditioner": [1.0]}},
            ["preconditioner null", "preconditioner [1]"],
        ),
        # a record from before `data.split` has the default; the variant says how rows were split
        (OLD, OLD | {"config": {"data": BLOG | {"split": "random"}}}, []),
        (OLD, SPLIT, ["data.variant as published", "data.variant blog"]),
        # costs differ between engines; older records are eager
        ({}, {"config": {"engine": "eager"}}, []),
        ({}, {"config": {"engine": "compiled"}}, ["engine compiled", "engine eager"]),
        (
            {"data": {"variant": "mnist"}},
            {"data": {"variant": "digits", "substitute": True}},
            ["data.variant digits", "data.variant mnist"],
        ),
    ],
)
def test_what_tells_two_runs_apart(one, other, differ):
    found = groups([fake(seed=0, **one), fake(seed=1, **other)])
    assert [group.differs for group in found] == (differ or [""])
    assert len(drop_repeated_runs([fake(**one), fake(**other)])) == len(found)


def test_a_run_that_was_made_twice_counts_once():
    """Whole numbers are one value as integers and as floats."""
    records = [fake(settings={"step_size": size}) for size in (1, 1.0)]
    assert len(drop_repeated_runs(records)) == 1
    (group,) = groups(records)
    assert group.records == records[:1]
    assert by_seed([*records, fake(settings={"step_size": 1}, seed=1)], lambda _: 3.0) == {
        0: 3,
        1: 3,
    }


def test_where_there_is_place_for_one_setting_others_are_refused():
    records = [fake(seed=i, settings={"step_size": size}) for i, size in enumerate((0.1, 0.4))]
    message = r"not averaged: sampler.step_size \(0.1, 0.4\)"
    for ask in (require_one_setting, by_sampler, lambda some: by_seed(some, last_value("step"))):
        with pytest.raises(UnlikeRecordsError, match=message):
            ask(records)
        assert ask(records[:1])
    with pytest.raises(UnlikeRecordsError, match=message):
        by_seed(records_by_sampler(records, ["DMALA"])["DMALA"], last_value("step"))


def models(count, **more):
    return [fake(config={"model_seed": seed}, **more) for seed in range(count)]


def test_the_legend_tells_over_what_runs_are_averaged():
    some = [fake(seed=seed) for seed in (0, 1, 2)]
    band = "band: one standard deviation."
    assert describe_band(some) == f"Mean over seeds 0-2; {band}"
    assert describe_band(some[1:2] * 2) == "One run a line, seed 1."  # the same run, twice
    other = fake(seed=3, settings={"step_size": 9})
    assert describe_band([*some[:1], other]) == "One run a line, seeds 0, 3."
    # a line of fewer runs than there are seeds
    assert describe_band([*some, other]) == f"Mean over 1 to 3 runs, seeds 0-3; {band}"
    assert describe_runs([*some, other], ["sampler.step_size"]) == "seeds 0-3"
    # models of seed 0
    both = [*models(3), *models(2, sampler="gwg")]
    assert describe_band(models(3)) == f"Mean over models 0-2; {band}"
    assert describe_band(both, "range") == "Mean over 2 to 3 runs, models 0-2; band: range."


def lines(plot):
    """Label and last value of each line of the first panel."""
    table = plot.table[plot.table["panel"] == plot.table["panel"][0]]
    return table.groupby("series", sort=False)["y"].last().to_dict()


def trained(isl, seed=0, hidden=200, epochs=100):
    return fake(
        {"step": [0, 1], "isl": [-9.0, isl]}, sampler="rates_fpcd", seed=seed,
        choices={"negatives": "cd"},
        config={"negatives": {}, "model": {"hidden": hidden},
                "task": {"learning_rate": 0.1, "epochs": epochs}},
    )  # fmt: skip


def test_models_of_other_settings_have_rows_of_their_own():
    """Seeds are averaged; a run that was made twice counts once."""
    records = [trained(-1.0), trained(-3.0, seed=1), trained(-3.0, seed=1), trained(-4.0, hidden=9)]
    frame = models_table(records)
    assert list(frame) == [
        "training", "hidden units", "learning rate", "fast rate", "validation ISL",
    ]  # fmt: skip
    assert [(e.mean, e.runs) for e in frame["validation ISL"]] == [(-2.0, 2), (-4.0, 1)]
    frame = models_table([*records, trained(-8.0, epochs=5)])
    assert list(frame["task.epochs"].fillna("")) == ["100", "", "5"]
    assert [(e.mean, e.runs) for e in frame["validation ISL"]] == [(-2.0, 2), (-4.0, 1), (-8.0, 1)]


# Commands.


@pytest.fixture
def drawn(monkeypatch):
    """The last values of the lines of the last figure that a command drew."""
    found = {}
    write = draw.save_figure

    def noted(plot, target):
        found["lines"] = lines(plot)
        return write(plot, target)

    monkeypatch.setattr(draw, "save_figure", noted)
    return found


SMALL_PART = (*PART, "~figures.fig2_right")  # whose boxes need time to draw


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sampler.step_size=0.1,0.4", ["DMALA, step_size 0.1", "DMALA, step_size 0.4"]),
        ("model.coupling=0.3", ["DMALA"]),
    ],
)
def test_a_sweep_of_one_s_own_has_a_figure_of_its_own(tmp_path, capsys, drawn, word, expected):
    """Beside fig3.png, which stays what it is: the runs that the experiment declares."""
    declared = (*SMALL_PART, "sampler=dmala")
    assert command_line(*declared, outputs=tmp_path) == 0
    figure = tmp_path / "ising_sampling" / "smoke" / "figures" / "fig3.png"
    before = figure.read_bytes(), figure.stat().st_mtime_ns
    assert command_line(*declared, word, outputs=tmp_path) == 0
    assert list(drawn["lines"]) == expected
    own = figure.parent / "own" / f"{word},sampler=dmala" / "fig3.png"
    assert f"figure: {own}" in "".join(capsys.readouterr().out.split("\n"))
    assert (figure.read_bytes(), figure.stat().st_mtime_ns) == before
    assert command_line(*declared, outputs=tmp_path) == 0  # does not take them in either
    assert list(drawn["lines"]) == ["DMALA"]
    assert figure.read_bytes() == before[0]


@pytest.mark.slow
def test_readme_s_sweep_alone_draws_two_lines_and_no_fig3(tmp_path, drawn):
    assert command_line(*SMALL_PART, *README, outputs=tmp_path) == 0
    assert list(drawn["lines"]) == ["DMALA, step_size 0.1", "DMALA, step_size 0.4"]
    values = list(drawn["lines"].values())
    ends = {
        r.config["sampler"]["step_size"]: r.metrics["log_rmse"].iloc[-1] for r in load_all(tmp_path)
    }
    assert values == [ends[0.1], ends[0.4]]
    assert not list(tmp_path.rglob("smoke/figures/fig3.png"))

    # Redrawn, it is the same; and the tuned step size spelled out is a run that was declared.
    (own,) = tmp_path.rglob("figures/own/*/fig3.png")
    pixels = own.read_bytes()
    own.unlink()
    where = (*SMALL_PART, f"outputs={tmp_path}")
    latticework.scripts.figures.main([*where, *README])
    assert own.read_bytes() == pixels
    latticework.scripts.figures.main([*where])
    assert list(drawn["lines"]) == ["DMALA"]
    assert drawn["lines"]["DMALA"] == ends[0.4]
