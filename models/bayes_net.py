"""A Bayesian neural network with binary weights: one hidden layer, full batch or a minibatch.

    log pi(x) = -scale * mean_j (sigmoid(out_j) - y_j)^2
    out_j = w' tanh(W' [f_j, 1]) + b,    all of W, w, b in {-1, 1},  rows (f_j, y_j), y_j in [0, 1]

R. Zhang, X. Liu and Q. Liu, "A Langevin-like Sampler for Discrete Distributions", ICML 2022,
Section 7.4, whose U is minus the sum of the squares, the same law with scale = rows; scale 100 is
that of their released scripts. The state x in {0, 1}^d holds W (a row for
each feature and one for the hidden biases, a column for each hidden unit), then w, then b, with
weights 2x - 1: d = (features + 2) hidden + 1, as in the paper (7,501 for COMPAS, 45,001 for Adult).

With p = sigmoid(2z), tanh z is 2p - 1 and its derivative is 4 p (1 - p), at a tenth of the cost.
Hidden units are computed for a chunk of chains and rows at a time that fits a core's cache. A flip
of one weight changes one term of each row's output, so a difference needs no pass through the
network; the gradient after a flip has no such shortcut.
"""

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from latticework.models.abilities import Predictor
from latticework.models.base import Cache
from latticework.models.constant_columns import Columns, product
from latticework.models.domains import Binary, one_hot

CHUNK = {"cpu": 2**18, "cuda": 2**27}  # hidden activations at a time: a core's cache, 0.5 GB


class BayesNet(Predictor):
    """Targets `[rows]` predicted from features `[rows, features]` by `hidden` tanh units.

    `scale` multiplies the mean squared error; None is the number of rows, which makes log pi minus
    the sum of squares. A minibatch keeps the scale of all rows.
    `chunk` is the number of hidden activations held at a time; None chooses it for the device.
    Raises ValueError unless features and targets have the same number of rows, at least one.
    """

    inputs: Tensor  # [rows, features + 1], the last column 1
    targets: Tensor  # [rows]

    def __init__(
        self,
        features: Tensor,
        targets: Tensor,
        hidden: int = 500,
        scale: float | None = 100.0,
        chunk: int | None = None,
    ) -> None:
        super().__init__()
        if features.ndim != 2 or targets.shape != features.shape[:1] or not len(targets):
            raise ValueError(
                "features must be [rows, features] and targets [rows], "
                f"got {list(features.shape)} and {list(targets.shape)}"
            )
        if hidden < 1 or not (scale is None or scale > 0):
            raise ValueError(f"hidden and scale must be positive, got {hidden} and {scale}")
        self.rows, self.hidden, self.chunk = len(targets), hidden, chunk
        self.summed = scale is None
        self.scale = float(self.rows) if scale is None else scale
        self.domain = Binary((features.shape[1] + 2) * hidden + 1)
        self.register_buffer("inputs", with_ones(features))
        self.register_buffer("targets", targets)
        self._kept: tuple[Tensor, int, Columns] | None = None

    def on(self, features: Tensor, targets: Tensor) -> "BayesNet":
        scale = None if self.summed else self.scale
        return BayesNet(features, targets, self.hidden, scale, self.chunk)

    def minibatch(self, batch: Tensor) -> "BayesNet":
        features, targets = self.inputs[batch, :-1], self.targets[batch]
        return BayesNet(features, targets, self.hidden, self.scale, self.chunk)

    def predict(self, x: Tensor, features: Tensor) -> Tensor:
        return self.outputs(x, with_ones(features)).sigmoid()

    def forward(self, x: Tensor) -> Tensor:
        return self._log_prob(self.outputs(x, self.inputs))

    def _log_prob(self, outputs: Tensor) -> Tensor:
        """The value of log pi from the outputs `[..., rows]`, `[...]`."""
        return (outputs.sigmoid() - self.targets).square().mean(-1).mul(-self.scale)

    def _weights(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Twice W `[chains, features + 1, hidden]`, twice w `[chains, hidden, 1]`; b - sum w."""
        twice = 4 * x - 2
        first, second, bias = twice.split((x.shape[1] - self.hidden - 1, self.hidden, 1), 1)
        offset = (bias - second.sum(1, keepdim=True)) / 2
        return first.unflatten(1, (-1, self.hidden)), second.unsqueeze(2), offset

    def _units(self) -> int:
        """Rows in a chunk."""
        return max(1, (self.chunk or CHUNK[self.inputs.device.type]) // self.hidden)

    def _columns(self) -> Columns:
        """The inputs, with near-constant columns split off if one chain fills a chunk."""
        if self._kept is not None:
            inputs, version, columns = self._kept
            if inputs is self.inputs and version == inputs._version:
                return columns
        # Made again where the inputs were loaded, changed in place or moved to another device.
        parts = [rows for _, rows in self._chunks(1, self.rows)]
        columns = Columns(self.inputs, parts, split=self.rows >= self._units())
        self._kept = self.inputs, self.inputs._version, columns
        return columns

    def _chunks(self, chains: int, rows: int) -> Iterator[tuple[slice, slice]]:
        """Slices of chains and rows that cover all pairs, each of about `chunk` activations."""
        units = self._units()
        high = min(rows, units)
        high = -(-rows // -(-rows // high))  # parts of equal heights
        wide = min(chains, max(1, units // high))
        for chain in range(0, chains, wide):
            for row in range(0, rows, high):
                yield slice(chain, chain + wide), slice(row, row + high)

    def outputs(self, x: Tensor, inputs: Tensor) -> Tensor:
        """Inputs of the last sigmoid, `[chains, n]`, for `inputs` `[n, features + 1]`."""
        first, second, offset = self._weights(x)
        outputs = x.new_empty(len(x), len(inputs))
        for chains, rows in self._chunks(*outputs.shape):
            p = product(inputs[rows], first[chains]).sigmoid()
            outputs[chains, rows] = add_product(offset[chains], p, second[chains])
        return outputs

    @torch.no_grad()
    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """In closed form, with g_j = d log pi / d out_j, for hidden unit u and feature f.

        d / dw_u = sum_j g_j (2 p_uj - 1) and d / dW_fu = 4 w_u sum_j g_j f_j p_uj (1 - p_uj).
        """
        first, second, offset = self._weights(x)
        columns = self._columns()
        whole, few = columns.weights(first)
        errors = x.new_zeros(len(x))  # sums of squares
        total = torch.zeros_like(errors)  # sum_j g_j
        ahead = torch.zeros_like(second).mT  # [chains, 1, hidden], sum_j g_j p_uj
        # sum_j g_j f_j p_uj (1 - p_uj)
        below, below_few = torch.zeros_like(whole), torch.zeros_like(few)
        for chains, rows in self._chunks(len(x), self.rows):
            p = columns.times(rows, whole[chains], few[chains]).sigmoid_()
            prediction = add_product(offset[chains], p, second[chains]).sigmoid_()
            error = prediction - self.targets[rows]
            errors[chains] += error.square().sum(1)
            g = error.mul_(prediction).mul_(1 - prediction).unsqueeze(1)  # less a factor
            total[chains] += g.sum((1, 2))
            ahead[chains].baddbmm_(g, p)
            p.addcmul_(p, p, value=-1)
            columns.add_back(rows, g, p, below[chains], below_few[chains])
        below = columns.full(below, below_few).mul_(second.mT).mul_(2)
        ahead = ahead.squeeze(1).mul_(2).sub_(total.unsqueeze(1))
        grad = torch.cat([below.flatten(1), ahead, total.unsqueeze(1)], 1)
        # Now the factor of g, and the 2 of the weights 2x - 1.
        return errors.mul_(-self.scale / self.rows), grad.mul_(-4 * self.scale / self.rows)

    # Local structure.

    def cache(self, x: Tensor) -> Cache:
        """The outputs `[chains, rows]`, to which `update_cache` adds changes, and log pi.

        The outputs are in double precision, so that changes add up without drift.
        """
        outputs = self.outputs(x, self.inputs)
        return outputs.double(), self._log_prob(outputs)

    def _change(self, x: Tensor, sites: Tensor) -> Tensor:
        """Change of the outputs by a flip of each of `sites` `[n]`, `[chains, n, rows]`.

        A site is in row `sites // hidden` of [W; w] and belongs to the unit `sites % hidden`. The
        last site, the output bias, belongs to no unit and counts as one more row.
        """
        unit, row = sites.remainder(self.hidden), sites.div(self.hidden, rounding_mode="floor")
        columns = x[:, :-1].unflatten(1, (-1, self.hidden)).index_select(2, unit)
        bias = x[:, -1:].unsqueeze(2).expand(-1, -1, len(sites))
        before = torch.cat([columns, bias], 1).mT.mul(2).sub_(1)  # [chains, n, features + 3]
        after = before * (1 - 2 * one_hot(row, before.shape[-1]).to(x.dtype))
        return self._term(after).sub_(self._term(before))

    def _term(self, unit: Tensor) -> Tensor:
        """w_u tanh(z_u) + b of units `[chains, n, features + 3]`, for all rows `[.., .., rows]`."""
        first, second, bias = unit.split((unit.shape[2] - 2, 1, 1), 2)
        z = torch.mm(2 * first.flatten(0, 1), self._columns().across)
        return z.sigmoid_().unflatten(0, first.shape[:2]).mul_(2 * second).add_(bias - second)

    def _evaluate_flips(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Tensor]:
        """`_change`, and log pi after each flip, `[chains, n]`."""
        change = self._change(x, sites)
        outputs = cache[0].to(change.dtype).unsqueeze(1)
        error = (outputs + change).sigmoid_().sub_(self.targets)
        return change, error.square_().mean(-1).mul_(-self.scale)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        chunk = self.chunk or CHUNK[self.inputs.device.type]
        several = sites.split(max(1, chunk // (len(x) * self.rows)))
        after = torch.cat([self._evaluate_flips(x, cache, part)[1] for part in several], 1)
        return after - cache[1].unsqueeze(1)

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        """For one site, the cache also gets the outputs' change by a flip, and log pi after it."""
        if len(sites) > 1:
            return super().conditional(x, cache, sites)
        change, after = self._evaluate_flips(x, cache, sites)
        signs = 1 - 2 * x.index_select(1, sites)
        return (after - cache[1].unsqueeze(1)) * signs, (*cache, change.squeeze(1), after)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        if len(cache) == 2:
            return self.cache(x.index_copy(1, sites, new.to(x.dtype)))
        outputs, log_prob, change, after = cache
        flips = new != x.index_select(1, sites)  # [chains, 1]
        outputs += change.mul_(flips)
        return outputs, torch.where(flips, after, log_prob.unsqueeze(1)).squeeze(1)


def add_product(offset: Tensor, p: Tensor, second: Tensor) -> Tensor:
    """`offset + p w`, `[chains, rows]`; p is `[chains, rows, hidden]`, w `[chains, hidden, 1]`."""
    if len(p) == 1 or p.is_cuda:
        return torch.baddbmm(offset.unsqueeze(2), p, second).squeeze(2)
    return torch.linalg.vecdot(p, second.mT).add_(offset)


def with_ones(features: Tensor) -> Tensor:
    """`[n, features]` with one more column, of ones."""
    return torch.cat([features, torch.ones_like(features[:, :1])], 1)


def synthetic_bayes_net(
    features: int = 13,
    hidden: int = 500,
    *,
    rows: int = 200,
    scale: float | None = 100.0,
    seed: int = 0,
) -> BayesNet:
    """Normal features, targets 0 or 1 on either side of a random hyperplane; needs no data."""
    rng = Generator().manual_seed(seed)
    inputs = torch.randn(rows, features, generator=rng)
    direction = torch.randn(features, generator=rng)
    return BayesNet(inputs, (inputs @ direction > 0).float(), hidden, scale)
