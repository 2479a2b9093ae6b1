"""The samplers by name. A sampler's module is imported when its name is first used."""

import ast
from functools import lru_cache
from importlib import import_module
from math import inf
from typing import Any

# PT-DMALA (L. Zheng et al., "Exploring non-convex discrete energy landscapes", 2025): replicas of
# DMALA at a few levels.
PT_DMALA = {"kernel": "dmala(step_size=0.2)", "schedule": [0.4, 0.6, 0.8, 1.0]}
# The module and the class of each name. A variant also has the fields that it sets. All other
# fields have the defaults of the class; conf/sampler lists them for experiments.
# Not read from conf/sampler: these files are Hydra's (defaults, interpolations), which the library
# does without. A test compares the two.
NAMES: dict[str, str | tuple[str, dict[str, Any]]] = {
    "acs": "acs.ACS",
    "avg": "avg.AVG",
    "block_gibbs": "block_gibbs.BlockGibbs",
    "dhams": "dhams.DHAMS",
    "dlmc": "dlmc.DLMC",
    "dlmcf": "dlmc.DLMCf",
    "dmala": "langevin.DMALA",
    "dmala_without_step_term": ("langevin.DMALA", {"step_size": inf}),
    "dsvgd": "svgd.DiscreteSVGD",
    "dula": "langevin.DULA",
    "edlp": "edlp.EDLP",
    "gibbs": "gibbs.Gibbs",
    "gibbs_sweep": "sweep.GibbsSweep",
    "gwg": "gwg.GWG",
    "gwg4": ("gwg.GWG", {"flips": 4}),
    "hamming_ball": "hamming.HammingBall",
    "locally_balanced": "locally_balanced.LocallyBalanced",
    "metropolis_sweep": "sweep.MetropolisSweep",
    "pafs": "path_auxiliary.PAFS",
    "pafs_with_replacement": "path_auxiliary.PAFSWithReplacement",
    "pavg": "pavg.PAVG",
    "pt_dmala": ("tempered.Tempered", PT_DMALA),
    "random_walk": "random_walk.RandomWalk",
    "rates_fpcd": "rates.RatesFPCD",
    "rates_herding": "rates.RatesHerding",
    "rmala": "relaxed.RMALA",
    "sample_penalization": "rates.SamplePenalization",
    "stochastic_dula": "stochastic_dula.StochasticDULA",
    "swendsen_wang": "swendsen_wang.SwendsenWang",
    "tempered": "tempered.Tempered",
    "tempered_gibbs": ("tempered.Tempered", {"kernel": "gibbs"}),
}


def find_sampler_class(name: str) -> tuple[type, dict[str, Any]]:
    """The class of a name of NAMES, and the fields that the name sets."""
    entry = NAMES[name]
    path, fields = entry if isinstance(entry, tuple) else (entry, {})
    module, _, made = path.rpartition(".")
    return getattr(import_module(f"{__name__}.{module}"), made), fields


@lru_cache
def make_sampler(text: str) -> Any:
    """The sampler that `text` calls, such as `gwg(flips=2)`. Raises ValueError for other names."""
    name, fields = parse_sampler_call(text)
    if name not in NAMES:
        raise ValueError(f"kernel must be one of {', '.join(NAMES)}, got {text!r}")
    kind, defaults = find_sampler_class(name)
    return kind(**{**defaults, **fields})


def parse_sampler_call(text: str) -> tuple[str, dict[str, Any]]:
    """`name(field=value, ...)` as the name and the fields. A bare word is a string, or infinity.

    Raises ValueError for text of another form.
    """
    name, bracket, inside = text.partition("(")
    if not bracket:
        return text, {}
    wanted = f"{text!r} is not a sampler with settings; write {name}(field=value)"
    try:
        call = ast.parse(f"f({inside}", mode="eval").body
    except SyntaxError as error:
        raise ValueError(wanted) from error
    if not isinstance(call, ast.Call) or call.args:
        raise ValueError(wanted)

    def value(node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return inf if node.id == "inf" else node.id
        try:
            return ast.literal_eval(node)
        except ValueError as error:
            raise ValueError(wanted) from error

    return name.strip(), {str(each.arg): value(each.value) for each in call.keywords}
