"""Targets from what a user has: a function of a tensor, a module, or an EnergyModel."""

import copy
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TypedDict, Unpack

import torch
from torch import Generator, Tensor, nn

from latticework.models.base import EnergyModel, Function, NotDifferentiableError
from latticework.models.domains import Binary, Categorical, Domain, Integer, Mixed, Ordinal, Subset
from latticework.samplers.base import Sampler, UnsupportedModelError, require_count
from latticework.samplers.checks import check_start, evaluate_start, refusing_training
from latticework.sampling.naming import load_object
from latticework.sampling.starts import draw_possible

DOMAINS_BY_WORD: dict[str, Callable[..., Domain]] = {  # domains as words of a command line
    "binary": Binary,
    "spins": lambda sites: Binary(sites, -1, 1),
    "categorical": Categorical,
    "mixed": lambda *sizes: Mixed(sizes),
    "ordinal": Ordinal,
    "integers": Integer,
    "naturals": lambda sites, window=1: Integer(sites, window, 0),
    "subset": Subset,
}
ROUNDING = 3e-5  # a difference of two log-probabilities that single precision explains
DOMAIN_HINT = (
    "give domain=, such as domain=Binary(20), or sites=20, with values=(-1, 1) for spins, "
    "values=3 for three categories (one-hot), values=range(5) for the numbers 0..4"
)


class States(TypedDict, total=False):
    """Ways to say which states a function has: the arguments of `sample` with these names."""

    domain: Domain | None
    sites: int | None
    values: int | Sequence[float] | None


def as_model(
    target: EnergyModel | nn.Module | Callable[[Tensor], Tensor], **states: Unpack[States]
) -> EnergyModel:
    """The target as an EnergyModel on these states.

    A function or module maps `[chains, *domain.shape]` to `[chains]`. An EnergyModel has its own
    domain. Raises ValueError if the domain is missing or another one, TypeError for anything else.
    """
    domain = domain_of(**states)
    if isinstance(target, EnergyModel):
        if domain not in (None, target.domain):
            raise ValueError(
                f"{type(target).__name__} has the domain {target.domain}, got {domain}; "
                "leave domain, sites and values out"
            )
        return target
    if not callable(target):
        raise TypeError(
            "the target must be a function of a tensor, an nn.Module or an EnergyModel, "
            f"got {type(target).__name__}"
        )
    if domain is None:
        raise ValueError(f"the states of {target_name(target)} are not known: {DOMAIN_HINT}")
    return Function(target, domain)


def target_name(target: object) -> str:
    """The name of a function, or the class of an object."""
    return getattr(target, "__name__", type(target).__name__)


def domain_of(
    domain: Domain | None = None,
    sites: int | None = None,
    values: int | Sequence[float] | None = None,
) -> Domain | None:
    """The domain that the three describe; None if all are None.

    `values` are two numbers (Binary), 0, 1, .., k - 1 (Ordinal), or the number k of categories
    (Categorical, one-hot). Raises ValueError for anything else.
    """
    if domain is not None and not isinstance(domain, Domain):
        raise ValueError(f"domain must be a Domain, got {type(domain).__name__}; {DOMAIN_HINT}")
    if sites is None:
        if values is not None:
            raise ValueError(f"values needs sites, the number of sites; {DOMAIN_HINT}")
        return domain
    if domain is not None:
        raise ValueError("give either domain or sites, not both")
    require_count(sites=sites)
    sites = int(sites)
    if values is None:
        return Binary(sites)
    if isinstance(values, Integral) and not isinstance(values, bool):
        return Categorical(sites, int(values))
    try:
        numbers = [float(value) for value in values]  # type: ignore[union-attr]
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) == 2:
        return Binary(sites, *sorted(numbers))
    if numbers == list(range(len(numbers))) and numbers:
        return Ordinal(sites, len(numbers))
    raise ValueError(
        f"values must be two numbers, range(k), or the number k of categories, got {values!r}; "
        f"{DOMAIN_HINT}"
    )


def parse_domain(text: str) -> Domain:
    """The domain that a command line writes as `binary:20`, `categorical:10,3` or `integers:5`.

    The numbers are the sites, then the values of a site (categorical, ordinal) or the window
    (integers, naturals). Raises ValueError for anything else.
    """
    kind, _, numbers = text.partition(":")
    try:
        return DOMAINS_BY_WORD[kind](*[int(number) for number in numbers.split(",")])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{text!r} is not a domain; write binary:SITES, spins:SITES, categorical:SITES,VALUES, "
            "mixed:VALUES,VALUES,.. (a number a site), ordinal:SITES,VALUES, integers:SITES, "
            "naturals:SITES or subset:SITES,ONES"
        ) from error


def load_target(text: str, domain: str | None) -> EnergyModel:
    """The target `file.py:Name` of a command line, on the `domain` that it writes.

    A class is called without arguments. Raises ValueError if there is no such target, and if a
    function or module has no domain.
    """
    target = load_object(text)
    target = target() if isinstance(target, type) else target
    if domain is None and callable(target) and not isinstance(target, EnergyModel):
        raise ValueError(
            f"the states of {target_name(target)} are not known: give --domain, such as --domain "
            "binary:20, spins:20 or categorical:10,3"
        )
    states = None if domain is None else parse_domain(domain)
    return as_model(target, domain=states).requires_grad_(False)


def why_unsupported(sampler: Sampler, model: EnergyModel) -> str:
    """Why the sampler does not support the model; "" if it does, or fails in another way."""
    try:
        x = draw_possible(model, 2, torch.Generator().manual_seed(0))
        with torch.no_grad():
            copy.deepcopy(sampler).require_support(x, model)
    except (UnsupportedModelError, NotDifferentiableError) as error:
        return str(error)
    except Exception:  # noqa: BLE001, S110 - the caller will meet it again
        pass
    return ""


@refusing_training()
def check_target(model: EnergyModel, x: Tensor) -> Tensor:
    """Raise ValueError unless chains can begin at `x`, each with a value of its own.

    The checks are those of `samplers.checks`, and three more: a second call must give the values of
    the first; each chain must keep its value when the chains change places and every other one is
    replaced by one random state; and one chain alone must give one number. Differences are rounding
    up to `ROUNDING`, to 8 units in the last place of the largest log-probability, and to one of a
    sum with a term of 1 for each number of a state, since terms may cancel.
    Costs five evaluations of all chains. `x` is `[chains, *domain.shape]`.

    Returns the log-probability at `x`, `[chains]`.
    """
    check_start(x, model, gradient=False)
    if model.chains is not None:  # no row can take another's place
        return _values(x, model)
    more = x if len(x) > 1 else torch.cat((x, x))
    first, again, alone = (_values(states, model) for states in (more, more, more[:1]))
    if not first.shape == again.shape == (len(more),) or alone.shape != (1,):
        raise ValueError(
            "the target must give one number a chain, [chains, ...] -> [chains]; it gave "
            f"{list(first.shape)} for {len(more)} chains and {list(alone.shape)} for one chain; "
            "sum over the sites (-1) and not over the chains (0)"
        )
    largest = max(8 * float(first.abs().max()), x[0].numel())
    rounding = max(ROUNDING, torch.finfo(first.dtype).eps * largest)
    if float((first - again).abs().max()) > rounding:
        raise ValueError(
            "the target is random or changes from call to call: a second call with the same states "
            f"gave log-probabilities that differ by {float((first - again).abs().max()):.3g}; make "
            "it deterministic: module.eval() switches dropout off"
        )
    rng = Generator(x.device).manual_seed(0)
    strangers = model.domain.uniform(2, rng).to(x.dtype)
    for k in (0, 1):  # the chains that keep their states, at the places of their neighbours
        beside = strangers[k].expand_as(more).clone()
        beside[1 - k :: 2] = more.roll(1, 0)[1 - k :: 2]
        moved = _values(beside, model).roll(-1, 0)
        stays = torch.arange(len(more), device=x.device).add(1).remainder(len(more)) % 2 == 1 - k
        difference = (first - moved).abs().nan_to_num(torch.inf).where(stays, 0)
        if float(difference.max()) > rounding:
            odd = int(difference.argmax())
            raise ValueError(
                f"the log-probability of chain {odd} is {float(first[odd]):.6g} beside some chains "
                f"and {float(moved[odd]):.6g} beside others; each chain's must depend on its own "
                "row of x only, so sum over the sites (-1) and not over the chains (0), and call "
                "module.eval() on a module with batch normalisation"
            )
    allowed = max(1e-3, rounding)  # another size rounds otherwise
    if not torch.allclose(first[:1], alone, rtol=1e-3, atol=allowed):
        raise ValueError(
            f"the log-probability of chain 0 is {float(first[0]):.6g} among {len(more)} chains and "
            f"{float(alone[0]):.6g} alone; it must not depend on the number of chains"
        )
    return first[: len(x)]


def _values(x: Tensor, model: EnergyModel) -> Tensor:
    return evaluate_start(x, model, gradient=False)[0]
