"""The claims of Breuleux et al. (2011)."""

from functools import partial

from latticework.experiments.papers.claims import (
    rates_costs,
    rates_pictures,
    rates_samplers,
    rates_step_sizes,
    rates_tradeoffs,
    rates_training,
)
from latticework.experiments.papers.claims.claim import RATES, Claim, claim_about

TRAINED = (  # RBMs of bags of words: name's end, experiment, words, seed that chose settings
    ("", "rates_fig3_words", "", 0),
    ("-slow", "rates_fig3_words_slow", " (models trained at a tenth of our learning rate)", None),
    ("-short", "rates_fig3_words_short", " (reviews cut to two sentences)", None),
)
SAMPLES = partial(claim_about, exhibit="rates-fig1", source=f"{RATES}, Section 5.1")
ISL = partial(claim_about, exhibit="rates-fig2", source=f"{RATES}, Section 5.1")
DIGITS = (("", "USPS"), ("-mnist", "MNIST"))  # name's end, data

RATES_CLAIMS = (
    Claim("rates-training-fpcd", "rates-training", "rates_training",
        "The best model by ISL was trained by FPCD",
        f"{RATES}, Section 5.1", rates_training.best_training),
    SAMPLES("bolder",
        "Sample penalization's images are larger and bolder than the true distribution's",
        rates_pictures.judge_pixels_on, experiment="rates_fig1"),
    *(
        SAMPLES(f"uniform{end}",
            "Without decay the samples of sample penalization converge to a uniform distribution "
            f"(statistics of units in {units})",
            partial(rates_pictures.penalization_uniform, coding=coding),
            source=f"{RATES}, Section 4",
            experiment=f"rates_penalization{end.replace('-', '_')}", own_reading=bool(end))
        for end, units, coding in (("", "{0, 1}", None), ("-spin", "{-1, 1}", "spin"))
    ),
    ISL("parzen",
        "On USPS, samples of rates-FPCD are Parzen centres at least as good as the training set",
        rates_samplers.parzen, experiment="rates_fig2"),
    *(
        ISL(f"{name}{end}", f"On {data} {words}", measure,
            experiment=f"rates_fig2{end.replace('-', '_')}")
        for end, data in DIGITS
        for name, words, measure in (
            ("gibbs-last", "Gibbs ends below all other samplers", rates_samplers.gibbs_last),
            ("penalization", "sample penalization ends below rates-FPCD and rates-herding",
             rates_samplers.penalization_below_rates),
        )
    ),
    *(
        ISL(f"first{end}{later}", f"On {data}, rates-herding rises first{window}",
            partial(rates_samplers.herding_first, windows=windows),
            experiment=f"rates_fig2{end.replace('-', '_')}", own_reading=bool(later))
        for end, data in DIGITS
        for later, window, windows in (
            ("", "", (rates_samplers.FIRST, rates_samplers.EARLY)),
            ("-later", " after the first ten samples", (rates_samplers.EARLY,)),
        )
    ),
    ISL("caught", "On USPS, rates-FPCD catches up with rates-herding",
        rates_samplers.caught_up, experiment="rates_fig2"),
    ISL("caught-mnist", "On MNIST, rates-FPCD overtakes rates-herding",
        rates_samplers.overtakes, experiment="rates_fig2_mnist"),
    *(
        ISL(f"faster{end}",
            f"On {data} rates-FPCD covers the states at least {times} times faster than Gibbs",
            partial(rates_costs.judge_time_ratio, data=data.lower()), experiment=experiment)
        for (end, data), times, experiment in zip(
            DIGITS, (20, 250), ("rates_fig2", "rates_coverage"), strict=True
        )
    ),
    ISL("hundred-mnist", "On MNIST 100 samples of rates-FPCD are better than 200,000 of Gibbs",
        rates_samplers.hundred_beat_all, experiment="rates_fig2_mnist"),
    *(
        ISL(f"step{end}",
            f"On {data}, the best step size of rates-FPCD in the long run is 10 to 100 times below "
            "that of rates-herding",
            rates_step_sizes.step_size_ratio, experiment=f"rates_step_sizes{end.replace('-', '_')}")
        for end, data in DIGITS
    ),
    ISL("long",
        "On USPS there is no clear difference between rates-FPCD and rates-herding, each with its "
        "best step size in the long run",
        partial(rates_step_sizes.long_run, level=True), experiment="rates_step_sizes"),
    ISL("long-mnist",
        "On MNIST, rates-FPCD ends above rates-herding, each with its best step size in the long "
        "run", rates_step_sizes.long_run, experiment="rates_step_sizes_mnist"),
    ISL("regardless-rates",
        "On USPS rates-FPCD and rates-herding are above sample penalization and Gibbs regardless "
        "of the trained model",
        partial(rates_samplers.regardless, pairs=rates_samplers.AHEAD),
        experiment="rates_regardless"),
    ISL("regardless-penalization",
        "On USPS sample penalization is above Gibbs regardless of the trained model",
        partial(rates_samplers.regardless, pairs=((rates_samplers.SP, rates_samplers.GIBBS),)),
        experiment="rates_regardless"),
    Claim("rates-fig3-decay", "rates-fig3", "rates_fig3_decay",
        "Without decay (alpha = 1) rates-FPCD does better than with alpha = 0.95",
        f"{RATES}, Section 5.1", rates_step_sizes.decay),
    *(
        Claim(f"rates-fig3-{name}{end}", "rates-fig3", experiment, f"{words}{data}",
            f"{RATES}, Section 5.1", measure, seed="model_seed",
            own_reading=bool(end) or name == "start", tuning_seed=chose)
        for name, words, measure in (
            ("words", "On CD-trained bag-of-words models, Gibbs gets stuck in a very narrow mode, "
             "and rates-FPCD does not", rates_training.stuck_after_cd),
            ("start", "On CD-trained bag-of-words models the result of Gibbs depends on its start "
             "and its ISL falls, and those of rates-FPCD do not", rates_training.depends_on_start),
            ("zeros", "On CD-trained bag-of-words models the narrow mode of Gibbs is usually a "
             "vector of zeros", rates_training.zeros_after_cd),
            ("consistency", "On SML- and FPCD-trained bag-of-words models, the ISL of rates-FPCD "
             "has the higher mean and the lower variance", rates_training.consistency),
        )
        for end, experiment, data, chose in TRAINED
    ),
    *(
        Claim(f"rates-tradeoffs-{name}", "rates-tradeoffs", experiment, words,
            f"{RATES}, Section {section}", measure)
        for name, experiment, words, section, measure in (
            ("improves", "rates_improvement",
             "Rates-FPCD improves the model as it samples", "4", rates_tradeoffs.improves),
            ("root", "rates_improvement",
             "The distance of the fast weights from the model grows with the root of the step size",
             "4", rates_tradeoffs.distance_grows_with_root),
            ("faithful", "rates_hot",
             "Samples of rates-FPCD stay faithful, unlike those of Gibbs chains at temperatures "
             "1.5 to 3", "5.1", rates_tradeoffs.stays_faithful),
            ("spurious", "rates_step_sizes",
             "Larger fast steps make more spurious samples, with rates-FPCD and rates-herding",
             "5.1", rates_tradeoffs.spurious_grow),
            ("robust", "rates_step_sizes",
             "Rates-herding is more robust to large fast steps than rates-FPCD, on few samples",
             "5.1", rates_tradeoffs.herding_is_robust),
        )
    ),
    *(
        ISL(f"similar{end}",
            f"On {data}, samples of rates-herding and rates-FPCD have a similar cost",
            rates_tradeoffs.similar_cost, experiment=f"rates_fig2{end.replace('-', '_')}")
        for end, data in DIGITS
    ),
    Claim("rates-cost", "rates-cost", "rates_cost",
        "A sample of Gibbs is about 2 (USPS) and 7 (MNIST) times cheaper than one of rates-FPCD",
        f"{RATES}, Section 5.1", rates_costs.judge_cost),
)  # fmt: skip
