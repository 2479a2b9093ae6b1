"""Judge draws of any source against a target.

The draws are compared with as many from a reference: exact draws where the states can be listed,
else the ends of independent chains that have converged. If all are independent draws from one law,
every division of them into two such sets is equally likely. A difference between the sets is
therefore compared with its values under random divisions (a permutation test; Gretton et al., "A
Kernel Two-Sample Test", JMLR 2012, Section 6), whatever the law is. Dependent draws are thinned to
two autocorrelation times.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Unpack

import numpy as np
import torch
from rich.console import RenderableType
from rich.table import Table as Grid
from rich.text import Text
from torch import Generator, Tensor, nn

from latticework.models.abilities import KnownTarget
from latticework.models.base import EnergyModel
from latticework.models.domains import Categorical, Domain
from latticework.models.given_numbers import read_numbers
from latticework.samplers.base import Sampler, require_count
from latticework.sampling.chain import seconds_per_step
from latticework.sampling.checking.permutation import DrawsOutcome, compare_states, evaluate_draws
from latticework.sampling.checking.report import COLOURS, TableReport
from latticework.sampling.comparisons import require_same_domain
from latticework.sampling.diagnostics import largest_r_hat, quantities
from latticework.sampling.drawing import METRICS
from latticework.sampling.engine import select_kernel
from latticework.sampling.exact import distribution, few_states
from latticework.sampling.naming import short_repr
from latticework.sampling.sample import sample
from latticework.sampling.sample_arguments import sampler_of
from latticework.sampling.starts import draw_possible
from latticework.sampling.targets import ROUNDING, States, as_model, check_target, why_unsupported
from latticework.sampling.watch import part_of_other_work

MAX_COMPARED_DRAWS, MIN_REFERENCE_DRAWS = 4000, 1000
ENDS = 8  # draws of each chain of the reference that show whether it has converged
DEFAULTS = ("gibbs_sweep", "gibbs", "random_walk")  # samplers of the reference
SWEEPS = 100  # sweeps of each chain of the reference
LONGEST_UNTOLD = 60  # seconds of a reference, above which they are told beforehand


@dataclass(frozen=True, eq=False)
class DrawsReport(TableReport):
    """The outcomes of all comparisons of draws with a target."""

    outcomes: list[DrawsOutcome]
    about: str  # the draws and the reference
    error: float  # the probability that independent draws from the target fail, at most

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(outcome.status != "fails" for outcome in self.outcomes)

    def _parts(self) -> Iterator[RenderableType]:
        grid = Grid("check", "", "p", "", box=None, pad_edge=False)
        for outcome in self.outcomes:
            p = "" if outcome.p is None else f"{outcome.p:.3g}"
            grid.add_row(
                outcome.check,
                Text(outcome.status, COLOURS[outcome.status]),
                p,
                Text(outcome.detail),
            )
        yield grid
        yield ""
        failures = sum(outcome.status == "fails" for outcome in self.outcomes)
        result = f"failures: {failures}" if failures else "no differences were found"
        yield Text(f"{self.about}: {result}.")
        yield Text(
            "For independent draws from the target, the probability that anything fails is at most "
            f"{self.error:g}."
        )


def check_draws(
    draws: Tensor | np.ndarray,
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor],
    *,
    log_prob: Tensor | np.ndarray | None = None,
    reference: Sampler | str | KnownTarget | None = None,
    steps: int | None = None,
    seed: int = 0,
    error: float = 0.01,
    **states: Unpack[States],
) -> DrawsReport:
    """Compare `draws` with draws from `target`: energies, sites, pairs of sites, repeats, distance.

    At most 4000 of the draws are compared. At this size, a difference of about 0.05 in the
    probability of a value at a site is found.

    Args:
        draws: independent draws `[draws, *domain.shape]`, also as a pandas table, or chains
            `[chains, draws, *domain.shape]`, which are thinned to two autocorrelation times.
            Categories may be whole numbers in place of one-hot rows.
        target: the unnormalised log-probability, as in `latticework.sample`.
        log_prob: their log-probabilities by the source, without the last dimensions. They are
            compared with the target, up to a constant.
        reference: the sampler of the reference, where the target has more than 2^16 states; sweeps
            of Gibbs where the model has classes of independent sites, else Gibbs site by site, or a
            random walk where Gibbs cannot be used. A `latticework.reference` gives its certified
            draws instead, and nothing is run.
        steps: steps of each chain of the reference, half of them burn-in; 100 sweeps, which are 100
            steps of a sampler that draws all sites in a step, and else 100 a site.
        seed: seeds the reference and the divisions.
        error: the probability that anything fails for independent draws from the target, at most.
            10 / error divisions are computed.
        states: `domain`, `sites` and `values` of a function, as in `latticework.sample`.

    Warns:
        UserWarning: before a reference that takes more than a minute. Site by site, a function of x
            is evaluated for each site of a sweep, so its time grows with the square of the sites.

    Raises:
        ValueError: if an argument is invalid, if the draws are not states of the domain, or if the
            reference has not converged.
        UnsupportedModelError: if the sampler of the reference does not support the target.
    """
    if not 0.001 <= error < 1:
        raise ValueError(f"error is a probability between 0.001 and 1, got {error:g}")
    model, rng = as_model(target, **states), Generator().manual_seed(seed)
    if steps is not None:
        require_count(steps=steps)
    check_target(model, draw_possible(model, 4, rng))
    x = as_states(draws, model.domain)
    values = evaluate_draws(x.flatten(0, 1), model).view(x.shape[:2])
    outcomes = [_check_support(values), _check_energies(values, log_prob)]

    thinned = _thin_draws(x, values)
    if len(thinned) < 2:
        raise ValueError(
            f"the {x.shape[0] * x.shape[1]} draws are worth fewer than two independent ones, so "
            "they cannot be compared; give more draws, or more chains"
        )
    thinned = thinned[torch.randperm(len(thinned), generator=rng)[:MAX_COMPARED_DRAWS]]
    reference_states, how = _draw_reference(
        model, reference, max(len(thinned), MIN_REFERENCE_DRAWS), steps, seed
    )
    outcomes += compare_states(thinned, reference_states, model, rng, error)
    about = f"{len(thinned)} of {x.shape[0] * x.shape[1]} draws, compared with {how}"
    return DrawsReport(outcomes, about, error)


def as_states(draws: Tensor | np.ndarray, domain: Domain) -> Tensor:
    """The draws as floating-point states `[chains, draws, *domain.shape]`.

    Independent draws become chains of one draw. Raises ValueError if they are not states.
    """
    x, shape = read_numbers(draws, "draws"), domain.shape
    x = x if x.is_floating_point() else x.float()
    if isinstance(domain, Categorical) and x.shape[-2:] != shape and x.shape[-1:] == (domain.dim,):
        if not ((x >= 0) & (x < domain.num_values) & (x == x.round())).all():
            raise ValueError(f"categories must be whole numbers below {domain.num_values}")
        x = torch.nn.functional.one_hot(x.long(), domain.num_values).to(x.dtype)
    leading = x.ndim - len(shape)
    x = x.unsqueeze(1) if leading == 1 else x
    if x.shape[2:] != shape or leading not in (1, 2) or len(x) * x.shape[1] < 2:
        sites = ", ".join(map(str, shape))
        raise ValueError(
            f"draws must have shape [draws, {sites}] or [chains, draws, {sites}], with two draws "
            f"or more, got {list(np.shape(draws))}"
        )
    domain.check(x.flatten(0, 1))
    return x


def _check_support(values: Tensor) -> DrawsOutcome:
    impossible = int((values == -torch.inf).sum())
    detail = f"{impossible} of {values.numel()} draws have probability 0"
    return DrawsOutcome("support", "fails" if impossible else "ok", detail)


def _check_energies(values: Tensor, given: Tensor | np.ndarray | None) -> DrawsOutcome:
    """Whether the source's log-probabilities are those of the target, up to a constant."""
    if given is None:
        return DrawsOutcome("energies", "-", "none are given")
    given = read_numbers(given, "log_prob").double()
    if given.shape not in (values.shape, values.squeeze(1).shape) or given.isnan().all():
        raise ValueError(
            f"log_prob must have one number a draw, {list(values.shape)}, got {list(given.shape)} "
            f"with {int(given.isnan().sum())} NaN"
        )
    off = given.flatten() - values.flatten()
    off = (off - off.median()).nan_to_num(torch.inf).abs()  # both -inf: `_possible` tells
    rounding = max(ROUNDING, 1e-5 * float(given[given.isfinite()].abs().max()))
    wrong = int((off > rounding).sum())
    detail = f"{wrong} of {off.numel()} differ from the target's, up to a constant"
    return DrawsOutcome("energies", "fails" if wrong else "ok", detail)


def _thin_draws(x: Tensor, values: Tensor) -> Tensor:
    """Draws that are two autocorrelation times apart, `[n, *domain.shape]`."""
    chains, length = values.shape
    if length == 1:
        return x[:, 0]
    ess = _measure_draws(values, x, "ess_bulk")
    moving = ess[np.isfinite(ess)]  # entries that are not the same in all draws
    fewest = moving.min() if len(moving) else chains * length
    gap = min(length, ceil(2 * chains * length / max(fewest, 1)))
    return x[:, gap - 1 :: gap].flatten(0, 1)


def _measure_draws(values: Tensor, x: Tensor, measure: str) -> np.ndarray:
    """A measure of the log-probability and of each entry of x; chains and draws first."""
    smallest = torch.finfo(torch.float32).min  # in place of -inf
    traces = torch.cat((values.unsqueeze(-1).nan_to_num(neginf=smallest), x.flatten(2)), -1)
    return quantities(traces.numpy(), [measure])[measure]


def _draw_reference(
    model: EnergyModel,
    named: Sampler | str | KnownTarget | None,
    count: int,
    steps: int | None,
    seed: int,
) -> tuple[Tensor, str]:
    """Independent draws from the target `[count, *domain.shape]`, and how they were made."""
    if isinstance(named, KnownTarget):
        return _certified_draws(model, named)
    if named is None and few_states(model):
        states, law = distribution(model)
        rng = Generator().manual_seed(seed)
        drawn = torch.multinomial(law, count, replacement=True, generator=rng)
        return states[drawn], f"{count} exact draws"
    makes = [sampler_of(name) for name in ([named] if named else DEFAULTS)]
    sampler = next((each for each in makes if not why_unsupported(each, model)), makes[-1])
    if steps is None:
        steps = SWEEPS * (1 if sampler.draws_all_sites else model.domain.dim)
    _warn_of_time(model, sampler, count, steps)
    gap = max(1, steps // (2 * ENDS))
    with part_of_other_work():
        result = sample(
            model, sampler, chains=count, steps=gap * ENDS, burn_in=gap * ENDS, thin=gap, seed=seed,
            engine="auto", diagnose=False,
        )  # fmt: skip
    worst = np.nanmax(_measure_draws(result.log_prob, result.draws, "r_hat"))
    if not worst <= largest_r_hat(count):
        raise ValueError(
            f"the reference does not mix: R-hat {worst:.3g} in {steps} steps of "
            f"{short_repr(sampler)}; "
            "give more steps, or another sampler as the reference"
        )
    return result.draws[:, -1], f"the ends of {count} chains of {short_repr(sampler)}"


def _certified_draws(model: EnergyModel, reference: KnownTarget) -> tuple[Tensor, str]:
    """The draws of a reference target. Raises ValueError if it has none, or is another target."""
    require_same_domain(reference, model)
    if not len(reference.draws):
        raise ValueError(f"the reference {reference.name} has no draws; name a sampler instead")
    return reference.draws, f"{len(reference.draws)} certified draws of {reference.name}"


def _warn_of_time(model: EnergyModel, sampler: Sampler, count: int, steps: int) -> None:
    """Warn before a reference of `count` chains of `steps` steps if it takes long."""
    if why_unsupported(sampler, model):
        return  # `sample` says why
    rng = Generator().manual_seed(0)
    starts = draw_possible(model, 4, rng)
    x = starts.repeat_interleave(ceil(count / len(starts)), 0)[:count]
    kernel, _ = select_kernel(sampler, model, "auto", METRICS, x)
    seconds = steps * seconds_per_step(kernel, model, x, rng, steps=2, blocks=3)
    if seconds > LONGEST_UNTOLD:
        warnings.warn(
            f"the reference takes about {seconds / 60:.0f} minutes: {steps} steps of {count} "
            f"chains of {short_repr(sampler)}; fewer draws, fewer steps (steps=), or a sampler "
            "that moves all sites in a step (reference=) and so needs fewer, take less",
            stacklevel=4,
        )


# Statistics: each maps divisions [k, states], 1.0 for a state of the first set, to [k] numbers.
