"""The claims of Zhang et al. (2022)."""

from functools import partial

from latticework.experiments.papers.claims import (
    equal_times,
    langevin_images,
    langevin_ising,
    langevin_learning,
    langevin_networks,
    langevin_rbm,
    langevin_text,
    langevin_theory,
)
from latticework.experiments.papers.claims.claim import DLP, Claim, Fresh, claim_about, fresh_from

LANGUAGE_MODELS = (  # the paper's two, and one of ours: name's end, option of conf/model, words
    ("", "bert_base", "BERT base"),
    ("-large", "bert_large", "BERT large"),
    ("-mini", "mini_bert", "mini_bert (not in the paper)"),
)
judge_rmse_lowest_by_time = partial(
    equal_times.lowest_at_equal_times, column="log_rmse", title="log RMSE",
    others=(*langevin_ising.EXACT, "DULA"),
)  # fmt: skip
judge_mmd = partial(langevin_ising.lowest, column="log_mmd", title="log MMD^2", axis="step")
judge_mmd_by_time = partial(
    equal_times.lowest_at_equal_times, column="log_mmd", title="log MMD^2",
    others=langevin_rbm.BASELINES, ours=("DULA", "DMALA"),
)  # fmt: skip
IMAGES = ("static_mnist", "dynamic_mnist", "omniglot", "caltech")
TABLES = {"compas": "COMPAS", "news": "News", "adult": "Adult", "blog": "Blog"}

FIG4 = fresh_from(1, "the models with seeds 1 to 5, which were trained after a look at seed 0")
MINI = fresh_from(10, "seeds 10 to 19, which were run after the claims were fixed")
ADDED = fresh_from(5, "seeds from 5 on, which were run after the claims were fixed")
EXCEPTION = fresh_from(3, "seeds from 3 on, which were run after the claim was fixed")
FEWER = fresh_from(
    3, "seeds from 3 on, whose runs with 50 steps were made after the claim was fixed"
)
MODELS = fresh_from(1, "seeds 1 and 2, which were run after a look at seed 0")
FIG7 = Fresh(
    "the 160 seeds of GWG-1 and DMALA at a = 0.25 that were added after a look at the first forty",
    lambda record: record.config["model"]["coupling"] == 0.25 and record.config["seed"] >= 40,
    langevin_ising.fig7_ahead_of_gwg,
)
FIG7_COST = Fresh(
    "at a = 0.1 the seeds 5 to 9 alone, which were run after a look at the first five",
    lambda record: record.config["model"]["coupling"] != 0.1 or record.config["seed"] >= 5,
)
READINGS = (  # readings of the small Table 1: name's start, words, models
    ("small", "one learning rate for all samplers", "one_rate"),
    ("small-best", "each sampler's own learning rate", "own_rates"),
)


# Claims about one exhibit, which share the experiment and the source unless a claim names its own.
ACCEPTANCE = partial(
    claim_about, exhibit="fig2", experiment="ising_acceptance", source=f"{DLP}, Section 7.1"
)
ISING = partial(
    claim_about, exhibit="fig3", experiment="ising_sampling", source=f"{DLP}, Section 7.1"
)
RBM = partial(claim_about, exhibit="fig4", experiment="rbm_sampling", source=f"{DLP}, Section 7.2")
LEARNED_ISING = partial(
    claim_about, exhibit="fig5", experiment="ising_learning", source=f"{DLP}, Section 7.3.1"
)
NETWORKS = partial(claim_about, exhibit="table2", experiment="bnn", source=f"{DLP}, Section 7.4")
TEXT = partial(
    claim_about, exhibit="table3", experiment="text_infilling", source=f"{DLP}, Section 7.5"
)
BATCHES = partial(
    claim_about, exhibit="table4", experiment="bnn_stochastic", source=f"{DLP}, App. I.5"
)

LANGEVIN_CLAIMS = (
    Claim("fig1a-rate", "fig1a", "bias_step_size",
        "DULA's bias decays as exp(-1 / (2 alpha)) on a log-quadratic target",
        f"{DLP}, Theorem 5.1", langevin_theory.fig1a_rate),
    Claim("fig1a-bound", "fig1a", "bias_step_size",
        "The bound of Theorem 5.1 holds on the 2x2 Ising model",
        f"{DLP}, Theorem 5.1 and Figure 1",
        partial(langevin_theory.judge_bound, column="exact")),
    Claim("fig1b-epsilon", "fig1b", "bias_nonquadratic",
        "On targets that are not log-quadratic, the bias decreases with epsilon along the whole "
        "curve, and stays below a bound of Theorem 5.2's form with constants that we derived",
        f"{DLP}, Theorem 5.2 and Figure 1", langevin_theory.fig1b_epsilon),
    Claim("thm6.1-bound", "thm6.1", "stochastic_proposal",
        "The bias of the stochastic proposal stays below Theorem 6.1's bound",
        f"{DLP}, Theorem 6.1",
        partial(langevin_theory.judge_bound, column="bias", quantity="the proposal's bias")),
    ACCEPTANCE("acceptance",
        "DMALA at alpha = 0.6 proposes to change more sites than GWG-6 and is accepted more often",
        langevin_ising.fig2_acceptance),
    ACCEPTANCE("levels",
        "DMALA at alpha = 0.6 changes six sites and accepts 52 %; GWG-6 accepts 43 %",
        langevin_ising.fig2_levels, source=f"{DLP}, Section 7.1 and Figure 2"),
    ACCEPTANCE("gwg-cost", "GWG-6 takes six times as long as DMALA", langevin_ising.fig2_gwg_cost),
    ACCEPTANCE("ess",
        "DMALA has the largest effective sample size per second of the exact samplers",
        langevin_ising.fig2_ess, experiment="ising_sampling"),
    ISING("iterations", "DMALA converges fastest in iterations",
        partial(langevin_ising.fig3, axis="step")),
    ISING("seconds", "DMALA converges fastest in seconds",
        partial(langevin_ising.fig3, axis="seconds")),
    ISING("seconds-compiled",
        "With compiled kernels, which the paper does not have, DMALA converges fastest in seconds",
        judge_rmse_lowest_by_time, experiment="ising_sampling_compiled", own_reading=True),
    ISING("dula", "DULA does about as well as LB-1 and GWG-1",
        langevin_ising.fig3_dula),
    *(
        claim("cost",
            f"In our implementation, on {words}, a step of DMALA costs about as much as one of "
            "GWG-1 and 2.5 times as much as one of Gibbs-1; a step of DULA costs about as much as "
            "one of Gibbs-1",
            measure, source=f"{DLP}, Section 7", own_reading=True)
        for claim, words, measure in (
            (ISING, "the Ising model", langevin_ising.step_cost),
            (RBM, "the RBM", langevin_ising.step_cost),
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
            ("connectivity", "", langevin_ising.fig7_every_connectivity),
            ("cost", " at equal time, with our cost of a step", langevin_ising.fig7_equal_cost),
        )
    ),
    RBM("iterations", "DULA and DMALA are below the baselines at equal iterations",
        partial(judge_mmd, others=langevin_rbm.BASELINES, ours=("DULA", "DMALA")), fresh=FIG4),
    RBM("lowest", "DMALA reaches a lower MMD than DULA, and so the lowest",
        partial(judge_mmd, others=("DULA",)), fresh=FIG4),
    RBM("level", "DMALA's log MMD is about -6.5 after 5,000 iterations",
        langevin_rbm.fig4_level, fresh=FIG4),
    RBM("seconds", "DULA and DMALA are below the baselines at equal time",
        judge_mmd_by_time, fresh=FIG4),
    RBM("seconds-compiled",
        "With compiled kernels, which the paper does not have, DULA and DMALA are below the "
        "baselines at equal time",
        judge_mmd_by_time,
        experiment="rbm_sampling_compiled", own_reading=True),
    Claim("fig9-mediocre", "fig9", "ebm_samples_small",
        "With a small network (not in the paper), images of DULA are farther from the data than "
        "those of DMALA on Omniglot and Caltech, by the MMD in place of the eye",
        f"{DLP}, Figure 9", langevin_rbm.fig9_mediocre, own_reading=True),
    LEARNED_ISING("iterations",
        "DULA and DMALA learn the coupling better than GWG at equal iterations",
        partial(langevin_learning.fig5, axis="step")),
    LEARNED_ISING("data",
        "On three data sets DULA and DMALA learn the coupling better than GWG at equal iterations",
        partial(langevin_learning.fig5, axis="step"), experiment="ising_learning_data",
        own_reading=True),
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
            f"{DLP}, Section 7.3.2", partial(langevin_images.judge_table1, data=data),
            cell=(data.replace("_", " "), "the paper's networks"))
        for data in IMAGES
    ),
    *(
        Claim(f"table1-{kind}-{data}", "table1", "ais_small",
            f"With a small network (not in the paper) and {words}, on {data.replace('_', ' ')} the "
            "model learned with DMALA has the highest likelihood",
            f"{DLP}, Section 7.3.2",
            partial(langevin_images.judge_table1, data=data, chosen=chosen), own_reading=True,
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
        TEXT(f"diversity{end}",
            f"With {text}, DULA and DMALA infill with more diversity than Gibbs and GWG",
            partial(langevin_text.table3_diversity, model=model))
        for end, model, text in LANGUAGE_MODELS[:2]
    ),
    # DMALA has one step size for mini_bert, at which it changes fewer words than GWG.
    TEXT("diversity-mini",
        "With mini_bert (not in the paper), DULA infills with more diversity than Gibbs and GWG",
        partial(langevin_text.table3_diversity, model="mini_bert", ours=("dula",)),
        own_reading=True, fresh=MINI),
    *(
        TEXT(f"quality{end}",
            f"With {text}, DULA and DMALA infill with similar quality (corpus BLEU)",
            partial(langevin_text.table3_quality, model=model), own_reading=end == "-mini",
            fresh=MINI if end == "-mini" else None)
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
    *(
        Claim(f"appC-{name}", "appC", "unbounded", f"On {{0, 1, 2, ...}}^10 {words}",
            f"{DLP}, Appendix C", measure, own_reading=True)
        for name, words, measure in (
            ("means", "the means of DMALA tend to the exact ones with a proposal window of 1, 2 "
             "and 4", langevin_theory.app_c_means),
            ("windows", "windows of 2 and 4 have a smaller error of DMALA's means than a window of "
             "1 after as many steps", langevin_theory.app_c_windows),
        )
    ),
    Claim("appD-acceptance", "appD", "rbm_step_term",
        "DMALA accepts 51 % of its moves on the RBM, and 0.005 % without the step-size term",
        f"{DLP}, Appendix D", langevin_rbm.app_d),
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
)  # fmt: skip
