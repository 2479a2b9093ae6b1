"""Independent draws that have exactly the law of a model: coupling from the past.

A law is monotone if no site becomes less probable when another rises: models of two values without
a negative coupling, whatever their fields. `samplers.compiled.coupling` has the algorithm, and
`samplers.compiled.perfect_rows` has it in bits for lattices.
"""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.models.forms import GraphForm, LatticeForm, RBMForm
from latticework.samplers.base import require_count
from latticework.samplers.compiled.compiled_sampler import NoCompiledKernelError, form_of
from latticework.samplers.compiled.jit import over_chains
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.compiled.sweeps import coupling

FIRST_SWEEPS = 16  # sweeps of the first attempt at a draw
NANOSECONDS = 40_000.0  # roughly, for the first attempts at a draw of a hundred sites


class NotMonotoneError(ValueError):
    """The law of a model is not known to be monotone."""


class NotCoupledError(RuntimeError):
    """A draw did not couple within the sweeps that were allowed to it."""


class CoupledDraws(NamedTuple):
    x: Tensor  # [draws, sites]
    sweeps: NDArray[np.int64]  # [draws], of the attempt that coupled: a power of 2


def perfect(
    model: EnergyModel, draws: int = 1000, seed: int = 0, *, max_sweeps: int = 2**16
) -> Tensor:
    """Independent draws `[draws, sites]` from exactly the law of `model`, without a burn-in.

    Serves lattices and graphs of spins without negative couplings, with any fields, and RBMs
    without negative weights. Equal arguments give equal draws, and fewer draws are the first of
    more. How long a draw takes is random: at low temperature without a field, too long. To leave
    such draws out would bias the others, so none is returned if one fails.

    Args:
        model: the target, on the CPU in single precision.
        draws: how many.
        seed: seeds the random numbers.
        max_sweeps: sweeps from the past that are tried for each draw, at most. Choose it before you
            see any draw.

    Raises:
        NotMonotoneError: if a coupling is negative, or the model has no such form.
        NotCoupledError: if a draw needs more than `max_sweeps`.
    """
    return couple_from_the_past(model, draws, seed, max_sweeps).x


def couple_from_the_past(
    model: EnergyModel, draws: int, seed: int, max_sweeps: int, first_sweeps: int = FIRST_SWEEPS
) -> CoupledDraws:
    """`perfect`, and how many sweeps each draw took.

    The first attempt has `first_sweeps`, each further one twice as many. The draws do not depend on
    it.
    """
    require_count(draws=draws, max_sweeps=max_sweeps)
    form = _monotone_form(model)
    (key,) = step_keys(1, Generator().manual_seed(seed))
    limits = first_sweeps, max_sweeps
    if isinstance(form, LatticeForm):
        x, sweeps = _couple_lattice(form, draws, key, *limits)
    else:
        x, sweeps = _couple_sites(_sites_from(form), draws, key, *limits)
    failures = int((sweeps < 0).sum())
    if failures:
        raise NotCoupledError(
            f"{failures} of {draws} draws did not couple in {max_sweeps} sweeps, so there are none:"
            " draws without these would be biased; give a larger max_sweeps, or sample by "
            "swendsen_wang or temper=True, which are not exact in finite time"
        )
    return CoupledDraws(torch.from_numpy(x[:, : model.domain.dim]), sweeps)


def _couple_lattice(
    form: LatticeForm, draws: int, key: int, first_sweeps: int, max_sweeps: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The draws `[draws, sites]` of a lattice, a bit a site, and the sweeps of each."""
    from latticework.samplers.compiled.bits import perfect_rows, sweep_lattice  # which take a while

    if why := sweep_lattice.refuse_degree(form):
        raise ValueError(f"perfect draws of a Lattice have no kernel for {why}")
    if max_sweeps > perfect_rows.MAX_SWEEPS:
        raise ValueError(
            f"max_sweeps must be {perfect_rows.MAX_SWEEPS} at most on a Lattice, got {max_sweeps}"
        )
    rows = sweep_lattice.pack_sweeps((form,), False, perfect_rows.PAST_WORDS)
    x, sweeps = np.empty((draws, len(form.kind)), np.float32), np.empty(draws, np.int64)
    chains = rows.rows * (2 if rows.paired else 1)
    arguments = rows, key, first_sweeps, max_sweeps, x, sweeps
    work = NANOSECONDS * x.size / 100
    over_chains(perfect_rows.couple_rows, -(-draws // chains), work, *arguments)
    return x, sweeps


def _couple_sites(
    sites: coupling.MonotoneSites, draws: int, key: int, first_sweeps: int, max_sweeps: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The draws `[draws, sites]`, site by site, and the sweeps of each."""
    states = np.empty((draws, 2, len(sites.offset)), np.uint8)
    sweeps = np.empty(draws, np.int64)
    work = NANOSECONDS * draws * len(sites.offset) / 100
    arguments = *sites, key, first_sweeps, max_sweeps, states, sweeps
    over_chains(coupling.couple, draws, work, *arguments)
    return states[:, 0].astype(np.float32), sweeps


def _sites_from(form: GraphForm | RBMForm) -> coupling.MonotoneSites:
    if isinstance(form, GraphForm):
        return coupling.sites_of_graph(form)
    return coupling.sites_of_rbm(form)


def _monotone_form(model: EnergyModel) -> LatticeForm | GraphForm | RBMForm:
    """The form of the model. Raises NotMonotoneError for a law that may not be monotone."""
    try:
        form = form_of(model)
    except NoCompiledKernelError as error:
        raise NotMonotoneError(f"perfect draws need a Lattice, Graph or RBM: {error}") from error
    if isinstance(form, LatticeForm):
        slope = form.odds[0, 1] - form.odds[0, 0]
        if slope < 0 and form.degree.any():
            raise _not_monotone(f"the coupling of all sites is {slope / 8:.6g}")
        return form
    if isinstance(form, GraphForm):
        worst = int(form.price.argmin()) if len(form.price) else 0
        if (form.price < 0).any():
            first, second = form.edges[worst]
            raise _not_monotone(
                f"edge ({first}, {second}) has the weight {form.price[worst] / 2:.6g}"
            )
        return form
    if isinstance(form, RBMForm):
        if (form.weight < 0).any():
            visible, hidden = np.unravel_index(form.weight.argmin(), form.weight.shape)
            weight = form.weight.min()
            raise _not_monotone(
                f"visible {visible} and hidden {hidden} have the weight {weight:.6g}"
            )
        return form
    raise NotMonotoneError(
        f"perfect draws need a Lattice, Graph or RBM, got a {type(model).__name__}; "
        "a DenseIsing is also a Graph: Graph.from_scipy(matrix)"
    )


def _not_monotone(negative: str) -> NotMonotoneError:
    return NotMonotoneError(
        f"coupling from the past needs couplings that are not negative, and {negative}; sample by "
        "gibbs_sweep or with temper=True, which are not exact in finite time"
    )
