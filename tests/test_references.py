"""Reference targets: cards, draws and models agree, and exact methods give the values again."""

import copy

import numpy as np
import pytest
import torch
from documented import CONF, ROOT
from hydra.utils import instantiate
from omegaconf import OmegaConf

import latticework as lw
from latticework.models.references.catalogue import (
    DEFINITIONS,
    FOLDER,
    hash_arrays,
    pack_codes,
    parameters_of,
    read_card,
    reference_model,
    unpack,
)
from latticework.sampling.perfect import couple_from_the_past
from workshop.references import of_tori, page
from workshop.references.answering import ANSWERS, answer
from workshop.references.elimination import Elimination, evaluate, restrict
from workshop.references.parameters import PARAMETERS
from workshop.references.random_cluster import count_equal, draw_potts
from workshop.references.tori import as_ising, kaufman, sum_rows

NAMES = list(DEFINITIONS)
DRAWN = [name for name in NAMES if read_card(name)["draws"]["count"]]
UNMADE = {"rbm_digits_20", "grids_11"}  # trained; read from a data set
QUICK = ["subset_30_5", "knapsack_8x4", "hardcore_6x6", "colourings_6x6", "poisson_ring_10"]
QUICK += ["crf_8x8_q3", "pmj_cubic_60", "fhmm_zeros", "two_modes_20", "select_10"]
# They take half a minute or more, so only `make references` repeats them.
SLOW_TO_COMPUTE = {"grids_11", "ising16_field", "rbm_digits_20", "potts3_8", "potts3_16", "sk_200"}
SLOW_TO_COMPUTE |= {"ising16_crit", "ising16_cold"}


def test_the_table_and_the_names():
    table = lw.references()
    assert list(table.index) == NAMES == list(ANSWERS) == list(PARAMETERS)
    assert {file.stem for file in FOLDER.glob("*.yaml")} == set(NAMES)
    assert (table["draws"] >= 2000).sum() == len(DRAWN) >= len(NAMES) - 1
    with pytest.raises(ValueError, match="name must be one of ising16_crit, .*, got 'ising'"):
        lw.reference("ising")


def test_all_files_are_less_than_a_megabyte():
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 1e6


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_those_of_the_card(name):
    ref = lw.reference(name)
    hashes, arrays = ref.card["sha256"], ref.arrays
    assert hash_arrays(parameters_of(arrays)) == hashes["parameters"]
    assert hash_arrays({key: arrays[key] for key in ("draws", "log_prob")}) == hashes["draws"]
    assert hash_arrays({"mean": arrays["mean"]}) == hashes["mean"]
    assert ref.mean.shape == ref.model.domain.shape
    assert ref.card["sites"] == ref.model.domain.dim
    assert len(ref.draws) == len(ref.log_prob) == ref.card["draws"]["count"]


@pytest.mark.parametrize("name", DRAWN)
def test_draws_are_states_with_the_model_s_log_prob(name):
    """In double precision; the stored numbers are in single precision."""
    ref = lw.reference(name)
    ref.model.domain.check(ref.draws)
    model = copy.deepcopy(ref.model).double()
    difference = model.log_prob(ref.draws.double()) - ref.log_prob
    assert difference.max() - difference.min() < 1e-4
    assert difference.abs().max() < 1e-4


@pytest.mark.parametrize("name", DRAWN)
def test_draws_have_the_moments_of_the_card(name):
    ref = lw.reference(name)
    count = len(ref.draws)

    def z(values, truth):
        spread = values.std() / count**0.5
        return float((values.mean() - truth) / spread) if spread > 1e-9 else 0.0

    assert abs(z(ref.log_prob, ref.moments["energy"].value)) < 4.5
    for key, moment in ref.definition.moments.items():
        assert abs(z(moment(ref.draws, ref.arrays).double(), ref.moments[key].value)) < 4.5, key
    x, mean = ref.draws.double(), ref.mean
    error = x.std(0) / count**0.5
    seen = error > 1e-3
    assert ((x.mean(0) - mean)[seen].abs() / error[seen]).max() < 5
    assert (x.mean(0) - mean)[~seen].abs().max() < 0.02 if (~seen).any() else True


@pytest.mark.parametrize("name", sorted(set(NAMES) - UNMADE))
def test_parameters_are_made_again(name):
    made = PARAMETERS[name]()
    stored = parameters_of(lw.reference(name).arrays)
    assert made.keys() == stored.keys()
    for key, array in made.items():
        assert array.dtype.kind == stored[key].dtype.kind
        if array.dtype.kind == "f":
            np.testing.assert_allclose(array, stored[key], rtol=1e-6, atol=1e-7)
        else:
            np.testing.assert_array_equal(array, stored[key])


def agrees(name):
    """All methods again, against the card and each other."""
    card, found = read_card(name), answer(name, lw.reference(name).arrays)
    for value in found.log_z.values():
        assert value == pytest.approx(card["log_z"]["value"], abs=5e-7)
    entries = card["moments"]
    for key, values in {
        "energy": found.energy,
        "energy variance": found.variance,
        **found.moments,
    }.items():
        for value in values.values():
            assert value == pytest.approx(entries[key]["value"], rel=1e-9, abs=1e-9)
    for mean in found.mean.values():
        truth = lw.reference(name).arrays["mean"]
        np.testing.assert_allclose(mean, truth, atol=1e-9)
    return found


@pytest.mark.parametrize("name", QUICK)
def test_the_methods_again(name):
    found = agrees(name)
    ref = lw.reference(name)
    card = ref.card["draws"]
    assert unpack(pack_codes(found.codes, card["bits"]), ref.card).tolist() == found.codes.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(QUICK) - SLOW_TO_COMPUTE))
def test_the_slower_methods_again(name):
    agrees(name)


@pytest.mark.parametrize("name", ["ising16_crit", "ising16_cold"])
def test_kaufman_again(name):
    ref = lw.reference(name)
    moments = kaufman(16, 16, float(ref.arrays["coupling"]))
    assert moments.log_z == pytest.approx(ref.log_z, abs=1e-9)
    assert moments.energy == pytest.approx(ref.moments["energy"].value, abs=1e-9)
    assert moments.variance == pytest.approx(ref.moments["energy variance"].value, abs=1e-7)


@pytest.mark.parametrize("name", ["ising16_crit", "ising16_field"])
def test_64_perfect_draws_bit_by_bit(name):
    ref = lw.reference(name)
    seed = ref.card["draws"]["seed"]
    again, sweeps = couple_from_the_past(ref.model, 64, seed, of_tori.MAX_SWEEPS)
    assert again.equal(ref.draws[:64])
    assert sweeps.max() <= ref.card["statistics"]["most sweeps"]


@pytest.mark.parametrize("name", ["potts3_8", "potts4_8", "ising16_cold"])
def test_64_draws_of_the_random_cluster_model_bit_by_bit(name):
    ref = lw.reference(name)
    values, factor = {"potts3_8": (3, 1), "potts4_8": (4, 1), "ising16_cold": (2, 2)}[name]
    coupling, side = factor * float(ref.arrays["coupling"]), 16 if values == 2 else 8
    codes, _ = draw_potts(side, values, coupling, 64, ref.card["draws"]["seed"])
    stored = ref.draws[:64] if ref.draws.ndim == 2 else ref.draws[:64].argmax(-1)
    assert (stored.long().numpy() == codes).all()


# `lw.exact`, and a flipped site, where they are quick.

EXACT = ["asia", "select_10", "knapsack_8x4", "rbm_24x16"]
EXACT_SLOWLY = ["sk_20", "subset_30_5", "two_modes_20", "select_19"]


@pytest.mark.parametrize(
    "name", [*EXACT, *(pytest.param(name, marks=pytest.mark.slow) for name in EXACT_SLOWLY)]
)
def test_exact_agrees(name):
    ref = lw.reference(name)
    log_z, mean = lw.exact(ref.model)
    assert float(log_z) == pytest.approx(ref.log_z, abs=1e-6)
    assert (mean - ref.mean).abs().max() < 1e-6


def flipped(ref):
    """Draws of which a tenth have another value at one site: that of the surest value."""
    x, mean = ref.draws.clone(), ref.mean
    sure = (mean - 0.5).abs() if mean.ndim == 1 else mean.amax(-1)
    site = int(sure.argmax())
    tenth = x[::10, site]
    x[::10, site] = 1 - tenth if x.ndim == 2 else tenth.roll(1, -1)
    return x


CHECKED = ["select_10", "knapsack_8x4"]
CHECKED_SLOWLY = ["ising16_field", "crf_8x8_q3", "rbm_24x16"]


@pytest.mark.parametrize(
    "name", [*CHECKED, *(pytest.param(name, marks=pytest.mark.slow) for name in CHECKED_SLOWLY)]
)
def test_check_draws_passes_and_sees_one_flipped_site(name):
    """On targets where the chains that `check_draws` compares with mix."""
    ref = lw.reference(name)
    steps = 1000 if name in CHECKED_SLOWLY else None
    if name == "rbm_24x16":
        steps = 20_000  # a site a step
    report = lw.check_draws(ref.draws, ref.model, log_prob=ref.log_prob, steps=steps)
    assert report.passed, report
    assert not lw.check_draws(flipped(ref), ref.model, steps=steps).passed


# The exact methods themselves, on targets small enough to list.


def test_elimination_against_a_list():
    rng = np.random.default_rng(0)
    sizes = [2, 3, 2, 4]
    factors = [
        ((0, 1), rng.normal(size=(2, 3))),
        ((1, 2, 3), rng.normal(size=(3, 2, 4))),
        ((3, 0), rng.normal(size=(4, 2))),
        ((2,), np.array([0.3, -np.inf])),
    ]
    codes = np.stack(np.unravel_index(np.arange(48), sizes), 1)
    log_prob = evaluate(factors, codes)
    p = np.exp(log_prob - np.logaddexp.reduce(log_prob))
    whole = Elimination(factors, sizes)
    possible = p > 0
    mean = p[possible] @ log_prob[possible]
    assert whole.log_z == pytest.approx(np.logaddexp.reduce(log_prob))
    assert whole.energy == pytest.approx(mean)
    assert whole.variance == pytest.approx(p[possible] @ (log_prob[possible] - mean) ** 2)
    for site, law in enumerate(whole.marginals()):
        expected = np.bincount(codes[:, site], weights=p, minlength=sizes[site])
        np.testing.assert_allclose(law, expected, atol=1e-12)
    given = restrict(factors, sizes, {1: 2}).log_z
    assert given == pytest.approx(np.logaddexp.reduce(log_prob[codes[:, 1] == 2]))
    drawn = np.ravel_multi_index(whole.draw(20_000, 1).T, sizes)
    counts = np.bincount(drawn, minlength=48)
    error = np.sqrt(20_000 * p * (1 - p)) + 1e-9
    assert (np.abs(counts - 20_000 * p) / error).max() < 5


def test_sums_over_rows_against_a_list():
    coupling, field = 0.3, 0.2
    model = lw.Lattice([4, 4], coupling / 2, field)
    x = model.domain.enumerate().double()
    log_prob = model.double().log_prob(x)
    p = log_prob.softmax(0)
    mean = p @ log_prob
    rows = as_ising(sum_rows(2, 4, 2 * coupling, 2 * field), 16, coupling, field)
    assert rows.log_z == pytest.approx(float(log_prob.logsumexp(0)), abs=1e-6)
    assert rows.energy == pytest.approx(float(mean), abs=1e-5)
    assert rows.variance == pytest.approx(float(p @ (log_prob - mean) ** 2), abs=1e-5)
    assert rows.sites_at_zero == pytest.approx(float(p @ x.sum(-1)), abs=1e-6)
    with_formula = as_ising(sum_rows(2, 4, 2 * coupling), 16, coupling, 0.0)
    assert kaufman(4, 4, coupling)[:3] == pytest.approx(with_formula[:3], abs=1e-10)


def test_the_random_cluster_model_on_a_small_torus():
    codes, _ = draw_potts(4, 3, 1.005, 8000, 3)
    energy = 1.005 * count_equal(codes, 4)
    truth = sum_rows(3, 4, 1.005)
    assert abs(energy.mean() - truth.energy) < 4 * (truth.variance / 8000) ** 0.5
    assert abs(energy.var() / truth.variance - 1) < 0.1


# Users compare their runs with the exact values.


def test_a_run_against_the_truth():
    ref = lw.reference("rbm_24x16")
    result = lw.sample(ref.model, "block_gibbs", chains=8, steps=2000, burn_in=200, seed=0)
    table = ref.compare(result)
    assert list(table.columns) == ["truth", "estimate", "error", "mcse", "error_in_mcse"]
    assert list(table.index[:5]) == ["log_prob", "E sum x", "E x8 x20", "x[0]", "x[1]"]
    assert len(table) == 27
    assert table["truth"]["log_prob"] == ref.moments["energy"].value
    assert table["error_in_mcse"].abs().max() < 4.5
    wrong = lw.sample(lw.Lattice([4, 6], 0.1), "gibbs_sweep", steps=200, diagnose=False)
    biased = ref.compare(wrong)  # the same domain, another law
    assert biased["error_in_mcse"].abs().max() > 10
    other = lw.sample(lw.Lattice([2, 2], 0.1), "gibbs", steps=20, diagnose=False)
    with pytest.raises(ValueError, match="rbm_24x16 has the domain"):
        ref.compare(other)


def test_a_tempered_run_also_has_log_z():
    ref = lw.reference("asia")
    result = lw.sample(
        ref.model, "gibbs(sites=3, scan=scopes)", temper=True, chains=8, steps=300, seed=0,
        diagnose=False,
    )  # fmt: skip
    row = ref.compare(result).loc["log Z"]
    assert row["truth"] == ref.log_z
    assert abs(row["error"]) < 0.5


def test_values_that_a_site_does_not_have_are_no_rows():
    ref = lw.reference("alarm")
    result = lw.sample(ref.model, "gibbs", steps=20, diagnose=False)
    table = ref.compare(result)
    assert len(table) == 1 + sum(ref.model.domain.sizes)
    assert table["truth"].notna().all()


@pytest.mark.parametrize("name", ["ising16_crit", "alarm", "poisson_ring_10"])
def test_the_command_line_s_model(name):
    config = OmegaConf.load(CONF / "model/reference.yaml")
    config.name = name
    model = instantiate(config)
    x = lw.reference(name).draws[:3]
    assert torch.equal(model.log_prob(x), lw.reference(name).model.log_prob(x))


def test_the_page_shows_the_cards():
    text = (ROOT / "docs/references.md").read_text()
    assert page.refresh(text) == text
    assert page.refresh(text.replace("| `asia` | 6", "| `asia` | 7")) == text


def test_a_window_is_of_one_model_and_needs_integers():
    """Runs of one process have each its own window."""
    wide = reference_model("poisson_ring_10", window=4)
    x = wide.domain.uniform(5, torch.Generator().manual_seed(0))
    own = reference_model("poisson_ring_10")
    assert (wide.domain.window, own.domain.window) == (4, 1)
    assert torch.equal(wide.log_prob(x), own.log_prob(x))
    with pytest.raises(ValueError, match="window=2 needs a target on integers"):
        reference_model("sk_20", window=2)
