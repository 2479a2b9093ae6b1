"""What must hold where chains begin. Checked once, by `Sampler.init`, and never inside a step."""

import torch
from torch import Tensor

from latticework.models.base import EnergyModel, NotDifferentiableError


def check_start(x: Tensor, model: EnergyModel, gradient: bool) -> None:
    """Raise ValueError unless chains can begin at `x` `[chains, *domain.shape]`.

    `x` must be floating point states of the model's domain, and the model must give one finite
    log-probability a chain there. With `gradient`, its gradient must be finite and shaped as `x`.
    A chain at log-probability -inf is refused too: a Metropolis test never lets it go, because no
    finite ratio leads out. Costs one evaluation of the model, and reads the host.
    """
    _check_states(x, model)
    name = type(model).__name__
    log_prob, grad = evaluated(x, model, gradient)
    _check_log_prob(log_prob, len(x), name)
    if grad is None:
        return
    if grad.shape != x.shape:
        raise ValueError(
            f"the gradient of {name} must have the shape of x, {list(x.shape)}, "
            f"got {list(grad.shape)}"
        )
    _refuse(
        ~grad.isfinite().reshape(len(x), -1).all(1),
        f"the gradient of {name} is NaN or inf",
        "use finite penalties in place of -inf, or a sampler that reads no gradient, such as gibbs, "
        "random_walk or hamming_ball",
    )


def evaluated(x: Tensor, model: EnergyModel, gradient: bool) -> tuple[Tensor, Tensor | None]:
    """The model's log-probability at `x`, and its gradient if asked for.

    Raises ValueError if the model cannot be evaluated at states of this shape, and
    NotDifferentiableError if it has no gradient. Errors of memory that ran out stay as they are.
    """
    try:
        with torch.no_grad():
            return model.log_prob_and_grad(x) if gradient else (model.log_prob(x), None)
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        kept = torch.OutOfMemoryError, NotImplementedError, NotDifferentiableError
        if isinstance(error, kept) or "can't allocate memory" in str(error):
            raise
        raise ValueError(
            f"{type(model).__name__} could not evaluate x of shape {list(x.shape)} "
            f"({type(error).__name__}: {error}); it must map "
            f"[chains, {', '.join(map(str, x.shape[1:]))}] to [chains]"
        ) from error


def _check_states(x: Tensor, model: EnergyModel) -> None:
    shape = model.domain.shape
    wanted = f"x must have shape [chains, {', '.join(map(str, shape))}], a row for each chain"
    if not isinstance(x, Tensor):
        raise ValueError(f"{wanted}, got {type(x).__name__}")
    if x.shape[1:] != shape or len(x) == 0:
        one = "; x.unsqueeze(0) is one chain" if x.shape == shape else ""
        raise ValueError(f"{wanted}, got {list(x.shape)}{one}")
    if not x.is_floating_point():
        raise ValueError(f"x must be floating point, got {x.dtype}; use x.float()")
    model.domain.check(x)


def _check_log_prob(log_prob: Tensor, chains: int, name: str) -> None:
    wanted = f"the log-probability of {name} must have shape [{chains}], one number a chain"
    if not isinstance(log_prob, Tensor):
        raise ValueError(f"{wanted}, got {type(log_prob).__name__}")
    if log_prob.shape != (chains,):
        advice = ""
        if log_prob.ndim == 0:
            advice = "; sum over the sites alone, as x.sum(-1) does"
        elif log_prob.shape == (chains, 1):
            advice = "; squeeze(-1) takes the last dimension away"
        raise ValueError(f"{wanted}, got {list(log_prob.shape)}{advice}")
    if not log_prob.is_floating_point():
        raise ValueError(
            f"the log-probability of {name} must be floating point, got {log_prob.dtype}"
        )
    for bad, what in (
        (log_prob.isnan(), "NaN"),
        (log_prob == torch.inf, "inf"),
        (log_prob == -torch.inf, "-inf"),
    ):
        _refuse(bad, f"the log-probability of {name} is {what}")


def _refuse(bad: Tensor, what: str, instead: str = "look at the target's parameters") -> None:
    """Raise ValueError if `what` holds for any chain of `bad`, bool `[chains]`."""
    rows = bad.nonzero().flatten()
    if len(rows):
        raise ValueError(
            f"{what} at the start of {len(rows)} of {len(bad)} chains, the first of them chain "
            f"{int(rows[0])}; start chains at states of positive probability "
            f"(latticework.sample(..., x=states)), or {instead}"
        )
