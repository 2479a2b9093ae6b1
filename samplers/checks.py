"""Checks of the states where chains begin, made once by `Sampler.init`, never in a step."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.module import register_module_forward_pre_hook

from latticework.models.base import EnergyModel, NotDifferentiableError
from latticework.models.domains import Binary, Moves, Subset

PROBES = 4  # sites at which a model's shortcuts are compared with its log-probability
MOST_MOVES = 64  # moves of a site whose local methods are compared: each may cost a row
BY_NUMPY = (
    "compute with torch functions, which also give gradients; for a sampler without gradients, "
    "lambda x: torch.as_tensor(f(x.numpy())) calls a NumPy function f"
)
LOCAL = ("differences", "log_odds", "block_log_probs")
ByForm = Callable[[Tensor, Tensor, int], float]  # log pi(y) - log pi(x), where y moved one site


class TrainingModeError(ValueError):
    """Batch normalisation would mix the chains and change its running statistics."""


@contextmanager
def refusing_training() -> Iterator[None]:
    """Raise TrainingModeError before a module with batch normalisation is called in training mode.

    It holds for every module that the target calls, also inside a function.
    """

    def refuse(module: nn.Module, _: Any) -> None:
        if isinstance(module, _BatchNorm) and module.training:
            raise TrainingModeError(
                f"the target calls {type(module).__name__} in training mode, which mixes the "
                "chains and changes its running statistics; call module.eval() first"
            )

    with register_module_forward_pre_hook(refuse):
        yield


def check_start(
    x: Tensor, model: EnergyModel, gradient: bool, by_form: ByForm | None = None
) -> None:
    """Raise ValueError unless chains can begin at `x` `[chains, *domain.shape]`.

    `x` must be floating point states of the model's domain, and the model must give one finite
    log-probability a chain there. With `gradient`, its gradient must be finite and shaped as `x`.
    A chain at log-probability -inf is refused too: a Metropolis test never lets it go, because no
    finite ratio leads out. The gradient and local methods that a model defines must agree with its
    `log_prob` (`check_shortcuts`). Costs one evaluation of the model and some of a few rows, and
    reads the host.
    """
    _check_states(x, model)
    name = type(model).__name__
    log_prob, grad = evaluate_start(x, model, gradient)
    _check_log_prob(log_prob, x, name)
    if grad is not None:
        if grad.shape != x.shape:
            raise ValueError(
                f"the gradient of {name} must have the shape of x, {list(x.shape)}, "
                f"got {list(grad.shape)}"
            )
        bad = ~grad.isfinite().reshape(len(x), -1).all(1)
        _refuse(
            bad,
            f"the gradient of {name} is NaN or inf",
            "use finite penalties in place of -inf, or a sampler that reads no gradient, such as "
            "gibbs or random_walk",
        )
    if model.chains is None:
        with torch.no_grad():
            check_shortcuts(x[:1], model, gradient, by_form)


def check_shortcuts(
    x: Tensor, model: EnergyModel, gradient: bool, by_form: ByForm | None = None
) -> None:
    """Raise ValueError unless the model's shortcuts give the differences of its `log_prob`.

    Shortcuts are `differences`, `log_odds` and `block_log_probs`, where a model defines them. With
    `gradient`, they are also the value of `log_prob_and_grad` and, if the model is `quadratic`, the
    gradients, which then give differences exactly. A compiled kernel gives `by_form`. They are
    compared for moves of PROBES sites from `x` `[1, *domain.shape]`. A model with neither local
    methods nor `quadratic` is not looked at.
    """
    domain, dim = model.domain, model.domain.movers
    local = [name for name in LOCAL if _defines(model, name) and domain.moves <= MOST_MOVES]
    if not local and not model.quadratic:
        return
    sites = torch.linspace(0, dim - 1, min(PROBES, dim), device=x.device).long()
    moves = domain.leaving_logits(x, x.new_zeros(1, dim, domain.moves).squeeze(-1)).view(dim, -1)
    move = moves.isfinite().float().argmax(-1).index_select(0, sites)  # the first that leaves x
    y = domain.move_one(x.expand(len(sites), *x.shape[1:]), (sites * domain.moves + move)[:, None])
    rows = torch.cat((x, y))
    log_prob = model.log_prob(rows)
    truth = log_prob[1:] - log_prob[0]
    changes_by_method = {}
    if gradient:
        value, grad = model.log_prob_and_grad(rows)
        changes_by_method["log_prob_and_grad"] = value[1:] - value[0]
        gradients = {"the gradient of log_prob_and_grad": grad, "gradient": model.gradient(rows)}
        for name, g in gradients.items() if model.quadratic else ():
            changes_by_method[name] = ((g[1:] + g[0]) * (y - x)).flatten(1).sum(1) / 2
    cache = model.cache(x)
    if "differences" in local:
        difference = model.differences(x, cache, sites).view(len(sites), -1)
        changes_by_method["differences"] = difference.gather(1, move[:, None]).squeeze(1)
    if "log_odds" in local and isinstance(domain, Binary):
        signs = torch.where(x[0, sites] == domain.high, -1, 1)
        changes_by_method["log_odds"] = model.log_odds(x, cache, sites)[0] * signs
    if "block_log_probs" in local and not isinstance(domain, Subset):
        patterns = torch.stack((x[:, sites[:1]], y[:1, sites[:1]]), 1)
        before, after = model.block_log_probs(x, cache, sites[:1], patterns)[0]
        changes_by_method["block_log_probs"] = (after - before).expand(1)
    if by_form is not None:
        changes = [by_form(x[0], there, i) for there, i in zip(y, sites.tolist(), strict=True)]
        changes_by_method["form"] = truth.new_tensor(changes)
    # Rounding errors grow with the terms of a sum, of which the largest numbers give an idea.
    numbers = torch.cat((log_prob.abs(), torch.ones_like(log_prob[:1])))
    rounding = 100 * torch.finfo(log_prob.dtype).eps * numbers[numbers.isfinite()].max()
    for name, values in changes_by_method.items():
        expected = truth[: len(values)]
        both = values.isfinite() & expected.isfinite()
        size = truth[truth.isfinite()].abs().sum()
        wrong = both & ((values - expected).abs() > 0.02 * (1 + size) + rounding)
        if wrong.any():
            i = int(wrong.nonzero()[0])
            raise ValueError(
                f"{name} of {type(model).__name__} disagrees with its log_prob: a move of site "
                f"{int(sites[i])} of the first chain changes log_prob by {float(expected[i]):.6g}, "
                f"but by {float(values[i]):.6g} according to {name}; override both or neither, and "
                "compute nothing in advance from parameters that may change"
            )


def _defines(model: EnergyModel, name: str) -> bool:
    return getattr(type(model), name) is not getattr(EnergyModel, name)


def evaluate_start(x: Tensor, model: EnergyModel, gradient: bool) -> tuple[Tensor, Tensor | None]:
    """The model's log-probability at `x`, and its gradient if asked for.

    Raises ValueError if the model cannot be evaluated at states of this shape or writes into them,
    and NotDifferentiableError if it has no gradient. Errors of memory that ran out stay as they
    are.
    """
    try:
        given = x.clone()
        value_and_grad: tuple[Tensor, Tensor | None]
        with torch.no_grad():
            if gradient:
                value_and_grad = model.log_prob_and_grad(given)
            else:
                value_and_grad = model.log_prob(given), None
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        unchanged_errors = (
            torch.OutOfMemoryError,
            NotImplementedError,
            NotDifferentiableError,
            TrainingModeError,
        )
        if isinstance(error, unchanged_errors) or "can't allocate memory" in str(error):
            raise
        raise ValueError(
            f"{type(model).__name__} could not evaluate x of shape {list(x.shape)} "
            f"({type(error).__name__}: {error}); it must map "
            f"[chains, {', '.join(map(str, x.shape[1:]))}] to [chains]{_advice(x, str(error))}"
        ) from error
    if not torch.equal(given, x):
        raise ValueError(
            f"{type(model).__name__} writes into the states that it is given, which would move the "
            "chains; work on a copy: x = x.clone()"
        )
    return value_and_grad


def _check_states(x: Tensor, model: EnergyModel) -> None:
    shape = model.domain.shape
    wanted = f"x must have shape [chains, {', '.join(map(str, shape))}], a row for each chain"
    if not isinstance(x, Tensor):
        raise ValueError(f"{wanted}, got {type(x).__name__}")
    if x.shape[1:] != shape or len(x) == 0:
        advice = "; x.unsqueeze(0) is one chain" if x.shape == shape else ""
        raise ValueError(f"{wanted}, got {list(x.shape)}{advice}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}; use x.float()")
    if torch.finfo(x.dtype).bits < 32:
        raise ValueError(f"x must have single or double precision, got {x.dtype}; use x.float()")
    model.domain.check(x)
    if isinstance(model.domain, Moves):
        model.domain.check_moves(x)


def _advice(x: Tensor, said: str = "") -> str:
    """Advice for a target that could not read `x`; `said` is its error. "" if nothing is known."""
    if any(word in said for word in ("numpy", "axis")):
        return f"; {BY_NUMPY}"
    if x.ndim < 3:
        return ""
    return (
        f"; x is one-hot: x.argmax(-1) gives the values 0 to {x.shape[-1] - 1} of the sites, and "
        f"values=range({x.shape[-1]}) makes states of such numbers"
    )


def _check_log_prob(log_prob: Tensor, x: Tensor, name: str) -> None:
    chains = len(x)
    wanted = f"the log-probability of {name} must have shape [{chains}], one number a chain"
    if not isinstance(log_prob, Tensor):
        advice = f"; {BY_NUMPY}" if hasattr(log_prob, "__array__") else ""
        raise ValueError(f"{wanted}, got {type(log_prob).__name__}{advice}")
    if log_prob.shape != (chains,):
        advice = ""
        if log_prob.ndim == 0:
            advice = "; sum over the sites alone, as x.sum(-1) does"
        elif log_prob.shape == (chains, 1):
            advice = "; squeeze(-1) takes the last dimension away"
        elif log_prob.shape[:1] == (chains,):
            advice = _advice(x)
        raise ValueError(f"{wanted}, got {list(log_prob.shape)}{advice}")
    if not log_prob.is_floating_point():
        raise ValueError(
            f"the log-probability of {name} must be floating point, got {log_prob.dtype}"
        )
    for bad, what in (
        (log_prob.isnan(), "NaN"),
        (log_prob == torch.inf, "inf"),
    ):
        _refuse(bad, f"the log-probability of {name} is {what}")
    _refuse(
        log_prob == -torch.inf,
        f"the log-probability of {name} is -inf",
        "list them by the domain, as Subset does where the number of ones is fixed",
    )


def _refuse(bad: Tensor, what: str, instead: str = "look at the target's parameters") -> None:
    """Raise ValueError if `what` holds for any chain of `bad`, bool `[chains]`."""
    rows = bad.nonzero().flatten()
    if len(rows):
        raise ValueError(
            f"{what} at the start of {len(rows)} of {len(bad)} chains, the first of them chain "
            f"{int(rows[0])}; start chains at states of positive probability "
            f"(latticework.sample(..., x=states)), or {instead}"
        )
