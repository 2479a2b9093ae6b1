"""The arguments of `sample`, checked and in the form in which it uses them."""

import shutil
from numbers import Integral
from pathlib import Path
from typing import Protocol

import torch
from torch import Generator, Tensor

from latticework.models.base import EnergyModel
from latticework.samplers import NAMES
from latticework.samplers.base import Sampler, require_count
from latticework.sampling.adaptation import OPTIMAL, AcceptanceControl, Adaptation, CycleControl
from latticework.sampling.devices import find_device, free_memory
from latticework.sampling.diagnostics import NUMBERS_AT_ONCE
from latticework.sampling.naming import parse_sampler

# The rules of conf/adapt, by the names of their files.
ADAPTATION_RULES: dict[str, type[Adaptation]] = {
    "acceptance": AcceptanceControl,
    "cycle": CycleControl,
}
MIN_THINNED_DRAWS = 100  # draws of a chain, of which a thinning that is advised leaves no fewer
DIAGNOSTIC_BYTES = 80  # bytes that diagnostics take for each number that they read at once


def describe_equal_starts(x: Tensor) -> str:
    """A warning of starts of which two agree in most sites, on average over pairs; else ""."""
    chains, sites = x.shape[:2]
    if chains == 1:
        return ""
    codes = x.argmax(-1) if x.ndim > 2 else x
    values = codes.sort(0).values
    place = torch.arange(chains, device=x.device).unsqueeze(1)
    begins = torch.cat((torch.ones_like(values[:1], dtype=torch.bool), values[1:] != values[:-1]))
    first = torch.where(begins, place, 0).cummax(0).values  # the first chain with the same value
    alike = float((place - first).sum()) / (chains * (chains - 1) / 2)
    if 4 * alike < 3 * sites:
        return ""
    return (
        f"the starts agree in {alike:.3g} of {sites} sites, so R-hat cannot show modes that "
        'no chain has seen; leave x out, or take start="annealed"'
    )


class Store(Protocol):
    """Draws as they are kept, in memory or in a file."""

    @property
    def chains(self) -> int: ...

    @property
    def file(self) -> Path | None: ...

    def bytes_of(self, draws: int) -> int: ...


def require_memory(
    store: Store, precision: torch.dtype, steps: int, thin: int, diagnose: bool
) -> None:
    """Raise ValueError if what is kept of so many steps, and its diagnostics, does not fit."""
    place = "free"
    if store.file is not None:
        free: int | None = shutil.disk_usage(store.file.absolute().parent).free
        place = f"free at {store.file.absolute().parent}"
    else:
        free = free_memory()
    if free is None:
        return

    def needed(thin: int) -> tuple[int, int]:
        """Bytes of the draws, and of their diagnostics."""
        count = steps // thin * store.chains
        draws = store.bytes_of(steps // thin) + count * precision.itemsize
        large = diagnose and store.file is None and draws > NUMBERS_AT_ONCE
        return draws, DIAGNOSTIC_BYTES * max(NUMBERS_AT_ONCE, count) if large else 0

    draws, diagnostics = needed(thin)
    if draws + diagnostics <= free:
        return
    text = f"draws take {describe_bytes(draws)}"
    if diagnostics:
        text += f", their diagnostics {describe_bytes(diagnostics)}"
    fits = [
        more
        for more in range(2 * thin, steps // MIN_THINNED_DRAWS + 1, thin)
        if steps % more == 0 and sum(needed(more)) <= free / 2
    ]
    advice = "take fewer chains or steps"
    if fits:
        advice = f"thin={fits[0]} needs {describe_bytes(sum(needed(fits[0])))}"
    if store.file is None:
        advice += ', or keep="summary" or a file (keep="draws.npy")'
    raise ValueError(f"{text}; {describe_bytes(free)} {place}: {advice}")


def describe_bytes(size: float) -> str:
    """A size in words, such as `26 MB`."""
    if size >= 1e10:
        return f"{size / 1e9:,.0f} GB"
    return f"{size / 1e9:.2g} GB" if size >= 1e8 else f"{size / 1e6:.2g} MB"


def require_steps(steps: int, burn_in: int, thin: int) -> None:
    """Raise ValueError for a count that is not valid."""
    require_count(steps=steps, thin=thin)
    if not (isinstance(burn_in, Integral) and burn_in >= 0) or isinstance(burn_in, bool):
        raise ValueError(f"burn_in must be a whole number of steps, got {burn_in!r}")
    if steps % thin:
        raise ValueError(f"steps must be a multiple of thin, got {steps} and {thin}")


def sampler_of(sampler: Sampler | str) -> Sampler:
    """The sampler itself, or that of its name. Raises TypeError for a class."""
    if isinstance(sampler, str):
        return parse_sampler(sampler)
    if not isinstance(sampler, Sampler):
        made = f"; write {sampler.__name__}(...)" if isinstance(sampler, type) else ""
        raise TypeError(
            f"the sampler must be a Sampler or one of {', '.join(NAMES)}, got {sampler!r}{made}"
        )
    return sampler


def rule_of(adapt: Adaptation | float | str) -> Adaptation:
    """The rule that the argument `adapt` names. Raises ValueError for anything else."""
    if isinstance(adapt, Adaptation):
        return adapt
    if isinstance(adapt, str) and adapt in ADAPTATION_RULES:
        return ADAPTATION_RULES[adapt]()
    if isinstance(adapt, str) and adapt not in OPTIMAL:
        names = ", ".join([*ADAPTATION_RULES, *OPTIMAL])
        raise ValueError(f"adapt must be a number, an Adaptation or one of {names}, got {adapt!r}")
    return AcceptanceControl(adapt)


def seed_generator(device: torch.device | str, seed: int) -> tuple[torch.device, Generator]:
    """The device and a seeded generator on it. Raises ValueError if either is invalid."""
    whole = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not (whole and -(2**63) <= seed < 2**64):
        raise ValueError(f"seed must be an integer of at most 64 bits, such as 0, got {seed!r}")
    try:
        place = find_device(str(device))
        return place, Generator(place).manual_seed(int(seed))
    except RuntimeError as error:  # PyTorch names devices that it was built without
        raise ValueError(f"device must be cpu, cuda, cuda:1 ... or auto, got {device!r}") from error


def count_chains(model: EnergyModel, x: Tensor | None, chains: int | None) -> int:
    """The number of chains. Raises ValueError for an invalid one, or one that `x` contradicts."""
    if isinstance(x, Tensor) and x.shape[1:] == model.domain.shape:
        if chains not in (None, len(x)):
            raise ValueError(f"x has {len(x)} chains and chains is {chains}; leave chains out")
        return len(x)
    chains = (model.chains or 4) if chains is None else chains
    require_count(chains=chains)
    return int(chains)
