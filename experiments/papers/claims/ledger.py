"""The claims of the papers, and their verdicts.

A claim is judged on finished runs at the paper's scale, on the data asked for, with the settings of
its experiment. Only such runs decide. Other records (a smaller scale, substitute data, other
settings) are indicative: without better records, the ledger shows their verdict as an indication.

Rules. A claim that a paper makes literally is judged literally. A weaker or another reading is a
claim of its own, with `ours`. The note of a finding says what was measured and what "about" allows.
Seeds that chose settings do not judge (`chose`). Where seeds were added after a look at the first
ones, the ledger also shows the verdict of the `fresh` ones alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from latticework.experiments.papers.claims import (
    langevin_learning,
    langevin_networks,
    langevin_sampling,
    langevin_theory,
    later_samplers,
    rates,
    rates_training,
)
from latticework.experiments.papers.claims.verdict import Finding, Verdict
from latticework.experiments.records.record import Record


class Fresh(NamedTuple):
    """The runs that were made after the statistic, its thresholds and its windows were fixed."""

    what: str
    keep: Callable[[Record], bool]
    judge: Callable[[list[Record]], Finding] | None = None  # where the claim's needs other runs too


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and the function that judges it from an experiment's records."""

    name: str
    exhibit: str  # id of experiments/papers/exhibits.yaml
    experiment: str
    text: str
    source: str
    judge: Callable[[list[Record]], Finding]
    seed: str = "seed"  # the key whose values are independent runs: `model_seed` where it is models
    own_reading: bool = False  # our reading, and not the paper's own claim
    tuning_seed: int | None = (
        None  # the value of `seed` whose runs chose settings; it does not judge
    )
    fresh: Fresh | None = None
    cell: tuple[str, str] | None = None  # row and column, for a table of many alike

    @property
    def group(self) -> str:
        """Where the ledger lists and counts the claim."""
        if self.own_reading:
            return OURS
        paper = self.source.split(",")[0]
        return paper if paper in (DLP, RATES) else LATER


@dataclass(frozen=True)
class Pool:
    """Records of one experiment that are judged together. Only the paper's scale `decides`."""

    basis: str  # "paper", "quick", "paper, substitutes"
    decides: bool
    records: list[Record]


@dataclass(frozen=True)
class Entry:
    """A line of the ledger. `indication` is the verdict on records that cannot decide."""

    claim: Claim
    verdict: Verdict
    basis: str = ""
    finding: Finding | None = None
    needs: str = ""
    indication: Verdict | None = None
    fresh: Finding | None = None  # from the claim's fresh runs alone


DLP, RATES = "Zhang et al. (2022)", "Breuleux et al. (2011)"
LATER, OURS = "Later samplers", "Our readings"
GROUPS = (DLP, RATES, LATER, OURS)  # in the order of the ledger
LANGUAGE_MODELS = (  # the paper's, and one of ours: name's end, option of conf/model, words
    ("", "bert_base", "BERT base"),
    ("-mini", "mini_bert", "mini_bert (not in the paper)"),
)
judge_rmse_lowest_by_time = partial(
    langevin_sampling.lowest, column="log_rmse", title="log RMSE", axis="seconds",
    others=(*langevin_sampling.EXACT, "DULA"),
)  # fmt: skip
MMD = partial(langevin_sampling.lowest, column="log_mmd", title="log MMD^2")
judge_mmd_below_baselines = partial(MMD, others=langevin_sampling.FIG4, ours=("DULA", "DMALA"))
judge_mmd_lowest = partial(MMD, others=(*langevin_sampling.FIG4, "DULA"), axis="step")
IMAGES = ("static_mnist", "dynamic_mnist", "omniglot", "caltech")
TABLES = {"compas": "COMPAS", "news": "News", "adult": "Adult", "blog": "Blog"}


def _fresh_from(first: int, what: str, seed: str = "seed") -> Fresh:
    """Fresh runs are those whose `seed` is `first` or larger."""
    return Fresh(what, lambda record: record.config[seed] >= first)


FIG4 = _fresh_from(10, "seeds 10 to 19, which were run after the claim's text was fixed")
MINI = _fresh_from(10, "seeds 10 to 19, which were run after the claims were fixed")
STEPS = _fresh_from(3, "the models that were added after a look at the first three")
FRESH_WORD_MODELS = _fresh_from(
    5, "models 5 to 19, which were run after the claims were fixed", "model_seed"
)
FRESH_SPREAD_MODELS = Fresh(
    "models 5 to 19 by FPCD and 20 to 36 by SML, which were run after a look at those before",
    lambda record: (
        record.config["model_seed"] >= (20 if record.choices.get("negatives") == "sml" else 5)
    ),
)
SHORT = _fresh_from(
    4, "models 4 to 8, which were run after a look at the first three", "model_seed"
)
FRESH_SLOW_MODELS = _fresh_from(
    10, "the models that were added after a look at the first five", "model_seed"
)
SECOND = _fresh_from(
    2, "the models with seed 2, added after a look at the first ones", "model_seed"
)
LONGER = Fresh(
    "models of 100 epochs, which were run after this reading was written down",
    lambda record: record.config["task"]["pretrain"]["epochs"] == 100,
)
ADDED = _fresh_from(5, "seeds from 5 on, which were run after the claims were fixed")
EXCEPTION = _fresh_from(3, "seeds from 3 on, which were run after the claim was fixed")
FEWER = _fresh_from(
    3, "seeds from 3 on, whose runs with 50 steps were made after the claim was fixed"
)
SPIN = _fresh_from(12, "seeds 12 to 20, which were run after 10,000 steps were fixed")
MODELS = _fresh_from(1, "seeds 1 and 2, which were run after a look at seed 0")
FIG7 = Fresh(
    "the 160 seeds of GWG-1 and DMALA at a = 0.25 that were added after a look at the first forty",
    lambda record: record.config["model"]["coupling"] == 0.25 and record.config["seed"] >= 40,
    langevin_sampling.fig7_ahead_of_gwg,
)
FIG7_COST = Fresh(
    "at a = 0.1 the seeds 5 to 9 alone, which were run after a look at the first five",
    lambda record: record.config["model"]["coupling"] != 0.1 or record.config["seed"] >= 5,
)
TRAINED = (  # RBMs of bags of words: name's end, experiment, words, seed that chose settings, fresh
    ("", "rates_fig3_words", "", 0, FRESH_WORD_MODELS),
    ("-slow", "rates_fig3_words_slow", " (models trained at a tenth of our learning rate)", None,
     FRESH_SLOW_MODELS),
    ("-short", "rates_fig3_words_short", " (reviews cut to two sentences)", None, SHORT),
)  # fmt: skip
READINGS = (  # of the small Table 1: name's start, words, models
    ("small", "one learning rate for all samplers", "one_rate"),
    ("small-best", "each sampler's own learning rate", "own_rates"),
)


def _claim_about(
    end: str, text: str, judge: Callable[[list[Record]], Finding], *, exhibit: str, **more: Any
) -> Claim:
    """The claim `<exhibit>-<end>`. `more` are the other fields of a Claim."""
    return Claim(f"{exhibit}-{end}", exhibit, text=text, judge=judge, **more)


# Claims about one exhibit, which share the experiment and the source unless a claim names its own.
ACCEPTANCE = partial(
    _claim_about, exhibit="fig2", experiment="ising_acceptance", source=f"{DLP}, Section 7.1"
)
ISING = partial(
    _claim_about, exhibit="fig3", experiment="ising_sampling", source=f"{DLP}, Section 7.1"
)
RBM = partial(_claim_about, exhibit="fig4", experiment="rbm_sampling", source=f"{DLP}, Section 7.2")
LEARNED_ISING = partial(
    _claim_about, exhibit="fig5", experiment="ising_learning", source=f"{DLP}, Section 7.3.1"
)
NETWORKS = partial(_claim_about, exhibit="table2", experiment="bnn", source=f"{DLP}, Section 7.4")
TEXT = partial(
    _claim_about, exhibit="table3", experiment="text_infilling", source=f"{DLP}, Section 7.5"
)
BATCHES = partial(
    _claim_about, exhibit="table4", experiment="bnn_stochastic", source=f"{DLP}, App. I.5"
)
SAMPLES = partial(_claim_about, exhibit="rates-fig1", source=f"{RATES}, Section 5.1")
ISL = partial(_claim_about, exhibit="rates-fig2", source=f"{RATES}, Section 5.1", tuning_seed=0)
DIGITS = (("", "USPS"), ("-mnist", "MNIST"))  # name's end, data

CLAIMS = (
    Claim("fig1a-rate", "fig1a", "bias_step_size",
        "DULA's bias decays as exp(-1 / (2 alpha)) on a log-quadratic target",
        f"{DLP}, Theorem 5.1", langevin_theory.fig1a_rate),
    Claim("fig1a-bound", "fig1a", "bias_step_size",
        "The bound of Theorem 5.1 holds on the 2x2 Ising model",
        f"{DLP}, Theorem 5.1 and Figure 1",
        partial(langevin_theory.bounded, column="exact")),
    Claim("fig1b-epsilon", "fig1b", "bias_nonquadratic",
        "On targets that are not log-quadratic, the bias decreases with epsilon along the whole "
        "curve, and stays below a bound of Theorem 5.2's form with constants that we derived",
        f"{DLP}, Theorem 5.2 and Figure 1", langevin_theory.fig1b_epsilon),
    Claim("thm6.1-bound", "thm6.1", "stochastic_proposal",
        "The bias of the stochastic proposal stays below Theorem 6.1's bound",
        f"{DLP}, Theorem 6.1",
        partial(langevin_theory.bounded, column="bias", what="the proposal's bias")),
    ACCEPTANCE("acceptance",
        "DMALA at alpha = 0.6 proposes to change more sites than GWG-6 and is accepted more often",
        langevin_sampling.fig2_acceptance),
    ACCEPTANCE("levels",
        "DMALA at alpha = 0.6 changes six sites and accepts 52 %; GWG-6 accepts 43 %",
        langevin_sampling.fig2_levels, source=f"{DLP}, Section 7.1 and Figure 2"),
    ACCEPTANCE("ess",
        "DMALA has the largest effective sample size per second of the exact samplers",
        langevin_sampling.fig2_ess, experiment="ising_sampling"),
    ISING("iterations", "DMALA converges fastest in iterations",
        partial(langevin_sampling.fig3, axis="step")),
    ISING("seconds", "DMALA converges fastest in seconds",
        partial(langevin_sampling.fig3, axis="seconds")),
    ISING("seconds-compiled",
        "With compiled kernels, which the paper does not have, DMALA converges fastest in seconds",
        judge_rmse_lowest_by_time, experiment="ising_sampling_compiled", own_reading=True),
    ISING("dula", "DULA does about as well as LB-1 and GWG-1, and worse than DMALA",
        langevin_sampling.fig3_dula),
    *(
        claim("cost",
            f"On {words}, a step of DMALA costs about as much as one of GWG-1 and 2.5 times as "
            "much as one of Gibbs-1; a step of DULA costs about as much as one of Gibbs-1",
            measure, source=f"{DLP}, Section 7")
        for claim, words, measure in (
            (ISING, "the Ising model", langevin_sampling.step_cost),
            (RBM, "the RBM", langevin_sampling.step_cost),
            (LEARNED_ISING, "the Ising model that is learned", langevin_learning.fig5_cost),
            (NETWORKS, "the networks of COMPAS", langevin_networks.table2_cost),
        )
    ),
    *(
        Claim(f"fig7-{name}", "fig7", "ising_connectivity",
            f"DMALA is best at every connectivity{words}",
            f"{DLP}, Appendix I.2", measure, own_reading=bool(words),
            fresh=FIG7_COST if words else FIG7)
        for name, words, measure in (
            ("connectivity", "", langevin_sampling.fig7_every_connectivity),
            ("cost", " at equal time, with our cost of a step", langevin_sampling.fig7_equal_cost),
        )
    ),
    RBM("iterations", "DULA and DMALA are below the baselines at equal iterations",
        partial(judge_mmd_below_baselines, axis="step"), fresh=FIG4),
    RBM("lowest", "DMALA reaches the lowest MMD", judge_mmd_lowest, fresh=FIG4),
    RBM("level", "DMALA's log MMD is about -6.5 after 5,000 iterations",
        langevin_sampling.fig4_level, fresh=FIG4),
    RBM("seconds", "DULA and DMALA are below the baselines at equal time",
        partial(judge_mmd_below_baselines, axis="seconds")),
    RBM("seconds-compiled",
        "With compiled kernels, which the paper does not have, DULA and DMALA are below the "
        "baselines at equal time",
        partial(judge_mmd_below_baselines, axis="seconds"),
        experiment="rbm_sampling_compiled", own_reading=True),
    Claim("fig8-closer", "fig8", "rbm_sampling",
        "Samples of DULA and DMALA are closer to those of block Gibbs than the baselines', by the "
        "MMD in place of the eye",
        f"{DLP}, Figure 8", partial(judge_mmd_below_baselines, axis="step"),
        own_reading=True, fresh=FIG4),
    Claim("fig9-mediocre", "fig9", "ebm_samples_small",
        "With a small network (not in the paper), images of DULA are farther from the data than "
        "those of DMALA on Omniglot and Caltech, by the MMD in place of the eye",
        f"{DLP}, Figure 9", langevin_sampling.fig9_mediocre, own_reading=True),
    LEARNED_ISING("iterations",
        "DULA and DMALA learn the coupling better than GWG at equal iterations",
        partial(langevin_learning.fig5, axis="step")),
    LEARNED_ISING("seconds", "DULA and DMALA learn the coupling better than GWG at equal time",
        partial(langevin_learning.fig5, axis="seconds")),
    LEARNED_ISING("ratio",
        "DULA and DMALA reach log RMSE -5 in 800 s, the baselines GWG and Gibbs in more than "
        "1,400 s (judged by the ratio)", langevin_learning.fig5_ratio),
    LEARNED_ISING("fewer",
        "The advantage of DULA and DMALA over GWG grows whenever there are fewer sampling steps",
        langevin_learning.fig5_fewer, fresh=FEWER),
    LEARNED_ISING("fewest",
        "The advantage of DULA and DMALA over GWG is larger with the fewest sampling steps than "
        "with the most", partial(langevin_learning.fig5_fewer, every=False), own_reading=True),
    LEARNED_ISING("gibbs",
        "Learning with Gibbs diverges if it takes fewer than 100 sampling steps",
        langevin_learning.fig5_gibbs),
    LEARNED_ISING("gibbs-settles",
        "Learning with Gibbs and 100 sampling steps does not diverge: its error does not rise in "
        "the second half", langevin_learning.fig5_gibbs_settles, own_reading=True),
    *(
        Claim(f"table1-{data}", "table1", "ais",
            f"On {data.replace('_', ' ')} the model learned with DMALA has the highest likelihood",
            f"{DLP}, Section 7.3.2", partial(langevin_learning.table1, data=data),
            cell=(data.replace("_", " "), "the paper's networks"))
        for data in IMAGES
    ),
    *(
        Claim(f"table1-{kind}-{data}", "table1", "ais_small",
            f"With a small network (not in the paper) and {words}, on {data.replace('_', ' ')} the "
            "model learned with DMALA has the highest likelihood",
            f"{DLP}, Section 7.3.2",
            partial(langevin_learning.table1, data=data, chosen=chosen), own_reading=True,
            fresh=MODELS if data in ("dynamic_mnist", "omniglot") else None,
            cell=(data.replace("_", " "), f"a small network, {words}"))
        for kind, words, chosen in READINGS
        for data in IMAGES
    ),
    NETWORKS("compas",
        "On COMPAS DULA and DMALA have a higher training log-likelihood than Gibbs and GWG",
        partial(langevin_networks.table2, data="compas", metrics=[langevin_networks.LIKELIHOOD])),
    NETWORKS("exception",
        "On COMPAS DULA and DMALA do not have the smaller test RMSE: it is above that of Gibbs and "
        "GWG", langevin_networks.table2_exception, source=f"{DLP}, Section 7.4 and Table 2",
        fresh=EXCEPTION),
    *(
        NETWORKS(data,
            f"On {TABLES[data]} DULA and DMALA are better than Gibbs and GWG in both measures",
            partial(langevin_networks.table2, data=data))
        for data in ("news", "adult", "blog")
    ),
    *(
        TEXT(f"{name}{end}", f"With {text}, DULA and DMALA infill with {words}",
            partial(measure, model=model), own_reading=bool(end), fresh=MINI if end else None)
        for name, words, measure in (
            ("diversity", "more diversity than Gibbs and GWG", langevin_networks.table3_diversity),
            ("quality", "similar quality (corpus BLEU)", langevin_networks.table3_quality),
        )
        for end, model, text in LANGUAGE_MODELS
    ),
    *(
        BATCHES(f"{name}{data}", f"On {text} stochastic DULA improves {words}",
            partial(langevin_networks.table4, data=data, **measured), own_reading=bool(name))
        for name, measured, words in (
            ("", {}, "with the batch in both measures"),
            ("beyond-", {"batches": langevin_networks.BATCHES[1:]},
             "in both measures from batches of 100 rows to all rows"),
            ("averaged-", {"metrics": [langevin_networks.AVERAGED]},
             "with the batch in the test RMSE of averaged predictions"),
        )
        for data, text in TABLES.items()
    ),
    BATCHES("splits",
        "On five random splits of COMPAS stochastic DULA improves with the batch in both measures",
        langevin_networks.table4_splits, experiment="bnn_splits", own_reading=True),
    Claim("appB-law", "appB", "categorical_toy",
        "On one-hot states, draws of DMALA tend to the target, and those of DULA to its own law",
        f"{DLP}, Appendix B", langevin_theory.app_b, own_reading=True, fresh=ADDED),
    Claim("appD-acceptance", "appD", "rbm_step_term",
        "DMALA accepts 51 % of its moves on the RBM, and 0.005 % without the step-size term",
        f"{DLP}, Appendix D", langevin_sampling.app_d),
    *(
        Claim(f"appH-{name}", "appH", "preconditioning",
            f"With a preconditioner, DLP's means{words} have a smaller error than without one at "
            "any step size",
            f"{DLP}, Appendix H", measure, own_reading=bool(words))
        for name, words, measure in (
            ("preconditioner", "", langevin_theory.app_h),
            ("thinned", " over every other step",
             partial(langevin_theory.app_h, column="thinned", over="every other step")),
        )
    ),
    Claim("rates-sec3-unlearning", "rates-sec3", "rates_sec3",
        "A chain with less self-transition probability keeps its stationary law and mixes faster",
        f"{RATES}, Section 3", rates.staying_less),
    Claim("rates-training-fpcd", "rates-training", "rates_training",
        "The best model by ISL was trained by FPCD",
        f"{RATES}, Section 5.1", rates_training.best_training),
    SAMPLES("bolder",
        "Sample penalization's images are larger and bolder than the true distribution's",
        rates.judge_pixels_on, experiment="rates_fig1", tuning_seed=0),
    *(
        SAMPLES(f"uniform{end}",
            "Without decay the samples of sample penalization converge to a uniform distribution "
            f"(statistics of units in {units})",
            partial(rates.penalization_uniform, coding=coding), source=f"{RATES}, Section 4",
            experiment=f"rates_penalization{end.replace('-', '_')}", own_reading=bool(end),
            fresh=SPIN if end else None)
        for end, units, coding in (("", "{0, 1}", None), ("-spin", "{-1, 1}", "spin"))
    ),
    ISL("parzen",
        "On USPS, samples of rates-FPCD are Parzen centres at least as good as the training set",
        rates.parzen, experiment="rates_fig2"),
    *(
        ISL(f"{name}{end}", f"On {data} {words}", measure,
            experiment=f"rates_fig2{end.replace('-', '_')}", fresh=ADDED if end else None)
        for end, data in DIGITS
        for name, words, measure in (
            ("gibbs-last", "Gibbs ends below all other samplers", rates.gibbs_last),
            ("between", "sample penalization lies between Gibbs and the others",
             rates.penalization_between),
        )
    ),
    *(
        ISL(f"herding{end}{later}",
            f"On {data}, rates-herding rises first{window} and rates-FPCD {words}",
            partial(rates.herding, overtaken=bool(end), windows=windows),
            experiment=f"rates_fig2{end.replace('-', '_')}", own_reading=bool(later), fresh=ADDED)
        for end, data, words in (
            ("", "USPS", "catches up, without a clear difference at the end"),
            ("-mnist", "MNIST", "overtakes it"),
        )
        for later, window, windows in (
            ("", "", (rates.FIRST, rates.EARLY)),
            ("-later", " after the first ten samples", (rates.EARLY,)),
        )
    ),
    *(
        ISL(f"faster{end}",
            f"On {data} rates-FPCD covers the states at least {times} times faster than Gibbs",
            partial(rates.judge_time_ratio, data=data.lower()), experiment=experiment)
        for (end, data), times, experiment in zip(
            DIGITS, (20, 250), ("rates_fig2", "rates_coverage"), strict=True
        )
    ),
    ISL("hundred-mnist", "On MNIST 100 samples of rates-FPCD are better than 200,000 of Gibbs",
        rates.hundred_beat_all, experiment="rates_fig2_mnist", fresh=ADDED),
    *(
        ISL(f"step{end}",
            f"On {data}, the best step size of rates-FPCD in the long run is 10 to 100 times below "
            "that of rates-herding",
            rates.step_size_ratio, experiment=f"rates_step_sizes{end.replace('-', '_')}",
            fresh=STEPS)
        for end, data in DIGITS
    ),
    ISL("long",
        "On USPS there is no clear difference between rates-FPCD and rates-herding, each with its "
        "best step size in the long run",
        partial(rates.long_run, level=True), experiment="rates_step_sizes", fresh=STEPS),
    ISL("long-mnist",
        "On MNIST, rates-FPCD ends above rates-herding, each with its best step size in the long "
        "run", rates.long_run, experiment="rates_step_sizes_mnist", fresh=STEPS),
    ISL("regardless",
        "On USPS the order of the samplers (rates-FPCD and rates-herding, sample penalization, "
        "Gibbs) is the same regardless of the trained model",
        rates.regardless, experiment="rates_regardless", fresh=SECOND),
    ISL("regardless-rates",
        "On USPS rates-FPCD and rates-herding are above sample penalization and Gibbs regardless "
        "of the trained model",
        partial(rates.regardless, pairs=rates.AHEAD), experiment="rates_regardless",
        own_reading=True,
        fresh=LONGER),
    Claim("rates-fig3-decay", "rates-fig3", "rates_fig3_decay",
        "Without decay (alpha = 1) rates-FPCD does better than with alpha = 0.95",
        f"{RATES}, Section 5.1", rates.decay, tuning_seed=0),
    *(
        Claim(f"rates-fig3-{name}{end}", "rates-fig3", experiment,
            f"{words}{data}",
            f"{RATES}, Section 5.1", measure, seed="model_seed", own_reading=ours or end == "-slow",
            tuning_seed=chose,
            fresh=FRESH_SPREAD_MODELS if name == "consistency" and not end
            else None if end == "-slow" and late else fresh)
        for name, words, measure, ours, late in (
            ("words", "On CD-trained bag-of-words models, Gibbs gets stuck in a very narrow mode, "
             "and rates-FPCD does not", rates_training.stuck_after_cd, False, False),
            ("start", "On CD-trained bag-of-words models the result of Gibbs depends on its start "
             "and its ISL falls, and those of rates-FPCD do not",
             rates_training.depends_on_start, True, False),
            ("zeros", "On CD-trained bag-of-words models the narrow mode of Gibbs is usually a "
             "vector of zeros", rates_training.zeros_after_cd, False, True),
            ("consistency", "On SML- and FPCD-trained bag-of-words models, the ISL of rates-FPCD "
             "has the higher mean and the lower variance", rates_training.consistency, False, True),
        )
        for end, experiment, data, chose, fresh in TRAINED
    ),
    Claim("rates-cost", "rates-cost", "rates_cost",
        "A sample of Gibbs is about 2 (USPS) and 7 (MNIST) times cheaper than one of rates-FPCD",
        f"{RATES}, Section 5.1", rates.cost),
    Claim("later-paths", "benchmark", "benchmark",
        "Path-auxiliary samplers and DLMC have more effective samples for an iteration than GWG "
        "and DMALA",
        "Sun et al. (ICLR 2022; AISTATS 2023)", later_samplers.later_paths),
    Claim("later-cyclical", "benchmark", "benchmark",
        "On a multimodal RBM, ACS has the smaller error at equal iterations than DMALA",
        "Pynadath et al. (2024)", later_samplers.later_cyclical),
    Claim("later-preconditioned", "benchmark", "benchmark",
        "PAVG accepts every move on a quadratic target",
        "Rhodes and Gutmann (2022)", later_samplers.later_preconditioned),
    Claim("later-linear", "benchmark-scaling", "benchmark_scaling",
        "DHAMS accepts every move where the log-probability is linear",
        "Zhou and Tan (2025)", later_samplers.later_linear),
    Claim("later-scaling", "benchmark-scaling", "benchmark_scaling",
        "On independent sites, PAFS gains a factor N^(2/3) over a random walk",
        "Sun et al. (NeurIPS 2022)", later_samplers.later_scaling),
)  # fmt: skip


def judge(pools: Mapping[str, Sequence[Pool]], claims: Sequence[Claim] = CLAIMS) -> list[Entry]:
    """The entry of every claim. `pools` are lists by experiment, the best pool first."""
    return [_entry(claim, pools.get(claim.experiment, ())) for claim in claims]


def _entry(claim: Claim, pools: Sequence[Pool]) -> Entry:
    command = f"python run.py experiment={claim.experiment}"
    if not pools:
        return Entry(claim, Verdict.NOT_RUN, needs=command)
    wanting = ""
    for pool in pools:
        try:
            finding = _judged(claim, pool.records)
        except (LookupError, FileNotFoundError) as error:  # the latter: left out of a bundle
            reason = str(error.args[0] if error.args else "the records are not sufficient")
            wanting = wanting or f"{pool.basis}: {reason}; {command}"
            continue
        verdict, needs = finding.verdict()
        if pool.decides and not finding.indicative:
            fresh = _fresh(claim, pool.records)
            return Entry(claim, verdict, pool.basis, finding, needs, fresh=fresh)
        basis, paper_scale = finding.indicative or pool.basis, wanting or command
        return Entry(claim, Verdict.OPEN, basis, finding, paper_scale, indication=verdict)
    return Entry(claim, Verdict.OPEN, pools[0].basis, needs=wanting)


def _judged(claim: Claim, records: Sequence[Record]) -> Finding:
    """The finding from the runs that may judge."""
    kept = [record for record in records if record.config.get(claim.seed) != claim.tuning_seed]
    finding = claim.judge(kept)
    if len(kept) == len(records):
        return finding
    without = f"without {claim.seed} {claim.tuning_seed}, which chose settings"
    return replace(finding, note="; ".join(filter(None, (finding.note, without))))


def _fresh(claim: Claim, records: Sequence[Record]) -> Finding | None:
    """The finding from the fresh runs, or None if they do not suffice."""
    if claim.fresh is None:
        return None
    try:
        own = replace(claim, judge=claim.fresh.judge or claim.judge)
        return _judged(own, [record for record in records if claim.fresh.keep(record)])
    except LookupError:
        return None
