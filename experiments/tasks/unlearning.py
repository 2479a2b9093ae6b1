"""Task: a chain that stays less often keeps its stationary distribution and mixes faster.

O. Breuleux, Y. Bengio and P. Vincent (2011), Section 3. For a transition matrix A that leaves p
invariant, and for 0 <= lambda <= min_i A_ii with lambda < 1, the chain

    A_lambda = (A - lambda I) / (1 - lambda),

leaves p invariant too. An eigenvalue m of A becomes (m - lambda) / (1 - lambda), which is smaller.
Here A is random-scan Gibbs, which resamples a random site from its conditional; its eigenvalues are
not negative.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latticework.experiments.records.estimates import KeyNumber
from latticework.experiments.records.record import Record
from latticework.experiments.runs.run import Run
from latticework.models.base import EnergyModel
from latticework.models.domains import Binary
from latticework.sampling.exact import distribution

Matrix = NDArray[np.float64]  # [states, states], rows sum to 1


def unlearning(
    *, model: EnergyModel, sampler: object, data: object, run: Run, lambdas: int, steps: int
) -> None:
    """Log exact properties of A_lambda for `lambdas` values of lambda, from 0 to the largest.

    The columns are the second and the smallest eigenvalue, the total variation of p after one step
    to p itself (0 if p is invariant), and that of the distribution after `steps` steps from the
    least likely state to p. `mixing` stores the latter after every step, for lambda 0 and the
    largest. The run's sampler is not used. Raises ValueError for a model that is not binary.
    """
    states, law = distribution(model)
    p = law.cpu().numpy()
    chain = random_scan_gibbs(model.domain, states.cpu().numpy(), p)
    start = np.eye(len(p))[p.argmin()]
    grid = np.linspace(0, largest(chain), lambdas)
    for index, amount in enumerate(grid):
        less = staying_less(chain, amount)
        values = eigenvalues(less, p)
        after = np.linalg.matrix_power(less, steps)
        run.log(
            index,
            **{"lambda": amount},
            second_eigenvalue=values[-2],
            smallest_eigenvalue=values[0],
            law_error=np.abs(p @ less - p).sum() / 2,
            distance=np.abs(start @ after - p).sum() / 2,
        )
    run.save(
        "mixing",
        **{
            name: distances(staying_less(chain, amount), start, p, steps)
            for name, amount in (("chain", 0.0), ("staying_less", grid[-1]))
        },
    )


def headline(record: Record) -> list[KeyNumber]:
    """The second eigenvalue of the chain, and that of the chain that stays least often."""
    first, *_, last = record.metrics["second_eigenvalue"]
    return [
        KeyNumber("second_eigenvalue", first),
        KeyNumber("second_eigenvalue_staying_less", last),
    ]


def random_scan_gibbs(domain: Any, states: NDArray, p: Matrix) -> Matrix:
    """Transition matrix over `states` `[n, dim]` of a binary model with probabilities `p` `[n]`."""
    if not isinstance(domain, Binary):
        raise ValueError(f"random-scan Gibbs is written for binary models, got {domain}")
    count, dim = states.shape
    matrix = np.zeros((count, count))
    different = (states[:, None] != states).sum(-1)
    for x, y in np.argwhere(different == 1):
        matrix[x, y] = p[y] / (p[x] + p[y]) / dim
    np.fill_diagonal(matrix, 1 - matrix.sum(-1))
    return matrix


def largest(chain: Matrix) -> float:
    """The largest lambda: the smallest probability to stay, capped below 1."""
    return float(min(chain.diagonal().min(), 1 - 1e-9))


def staying_less(chain: Matrix, amount: float) -> Matrix:
    """A_lambda. Raises ValueError unless 0 <= lambda <= min_i A_ii and lambda < 1."""
    if not 0 <= amount <= largest(chain):
        raise ValueError(f"lambda must be in [0, {largest(chain):.4g}], got {amount}")
    return (chain - amount * np.eye(len(chain))) / (1 - amount)


def eigenvalues(chain: Matrix, p: Matrix) -> Matrix:
    """Eigenvalues in ascending order of a chain that is reversible with respect to `p`."""
    root = np.sqrt(p)
    symmetric = chain * root[:, None] / root
    return np.asarray(np.linalg.eigvalsh((symmetric + symmetric.T) / 2), dtype=np.float64)


def distances(chain: Matrix, start: Matrix, p: Matrix, steps: int) -> Matrix:
    """Total variation to `p` after 0, 1 .. `steps` steps from the distribution `start`."""
    law, result = start, []
    for _ in range(steps + 1):
        result.append(np.abs(law - p).sum() / 2)
        law = law @ chain
    return np.array(result)
