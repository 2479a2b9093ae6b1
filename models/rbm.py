"""Restricted Boltzmann machine (RBM) with binary units, as a distribution over visible units.

    log p(x, h) = x' W h + b' x + c' h            up to a constant
    log p(x)    = b' x + sum_j softplus(W' x + c)_j      (minus the free energy)

Zhang et al. (2022), App. I.3. x in {0, 1}^visible, h in {0, 1}^hidden. The value and the gradient
b + W sigmoid(W'x + c) share the product W'x. Flipping a visible unit changes the hidden inputs
W'x + c by one row of W.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus

from latticework.models.abilities import HasHiddenUnits
from latticework.models.base import Cache, EnergyModel
from latticework.models.distributions import bernoulli, softplus_sum
from latticework.models.domains import Binary, Domain
from latticework.models.flip_updates import add_rows, flip_changes
from latticework.models.forms import RBMForm, array
from latticework.models.matmul import affine

if TYPE_CHECKING:
    from latticework.models.evidence import Evidence


class RBM(HasHiddenUnits, EnergyModel):
    """Bernoulli RBM. `weight` `[visible, hidden]`, `visible_bias` b, `hidden_bias` c.

    Weights start from N(0, 0.01^2) by the global generator (`Run.seed_global_rng` seeds it), biases
    at 0. The model is `untrained` until a state is loaded, or the attribute is set to False.
    """

    closed_differences = True
    offset = 0.0  # the share of known units (`condition_on`) in log p

    def __init__(self, visible: int = 784, hidden: int = 500) -> None:
        super().__init__()
        if visible < 1 or hidden < 1:
            raise ValueError(f"an RBM needs visible and hidden units, got {visible} and {hidden}")
        self.domain, self.untrained = Binary(visible), True
        self.weight = nn.Parameter(torch.randn(visible, hidden) * 0.01, requires_grad=False)
        self.visible_bias = nn.Parameter(torch.zeros(visible), requires_grad=False)
        self.hidden_bias = nn.Parameter(torch.zeros(hidden), requires_grad=False)

    def start_from_data(self, mean: Tensor) -> None:
        """Set visible biases to the log-odds of the data mean `[visible]`, within [.01, .99]."""
        self.visible_bias.data.copy_(mean.clamp(0.01, 0.99).logit())

    def hidden_inputs(self, x: Tensor) -> Tensor:
        """W'x + c, the log-odds of each hidden unit given x, `[chains, hidden]`."""
        return affine(self.hidden_bias, x, self.weight)

    def visible_inputs(self, h: Tensor) -> Tensor:
        """W h + b, the log-odds of each visible unit given h, `[chains, visible]`."""
        return affine(self.visible_bias, h, self.weight.T)

    def form(self) -> RBMForm:
        return RBMForm(array(self.weight), array(self.visible_bias), array(self.hidden_bias))

    def restrict(self, evidence: "Evidence") -> "RBM":
        """The rows of known units are added to the hidden biases; their biases are the offset."""
        with torch.random.fork_rng(devices=[]):  # for weights that are replaced
            smaller = RBM(len(evidence.free), len(self.hidden_bias))
        smaller.weight.data = self.weight.index_select(0, evidence.free)
        smaller.visible_bias.data = self.visible_bias.index_select(0, evidence.free)
        rows, values = self.weight.index_select(0, evidence.known), evidence.values.double()
        inputs = self.hidden_bias.double() + values @ rows.double()
        smaller.hidden_bias.data = inputs.to(self.hidden_bias)
        known = self.visible_bias.index_select(0, evidence.known).double()
        smaller.offset = self.offset + float(values @ known)
        return smaller

    def path_inputs(self, x: Tensor) -> Tensor:
        """`hidden_inputs` for a path of RBMs; counted as an evaluation (sampling.evaluations)."""
        return self.hidden_inputs(x)

    # A path of RBMs (models.scaled_rbm.ScaledRBM) overrides these, as its chains differ in beta.

    def linear(self, x: Tensor, sites: Tensor | None = None) -> Tensor:
        """The sum of b'x over all visible units, or over `sites`, for x `[chains, ..., units]`."""
        return x @ (self.visible_bias if sites is None else self.biases(sites))

    def scale_changes(self, change: Tensor) -> Tensor:
        """Changes of units `[chains, ...]` times the scale of W."""
        return change

    def constant(self) -> Tensor | float:
        """The offset, a number or `[chains]`."""
        return self.offset

    def biases(self, sites: Tensor) -> Tensor:
        """The biases of some visible units, `[sites]`, or `[chains, sites]`."""
        return self.visible_bias.index_select(0, sites)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + softplus(self.hidden_inputs(x)).sum(-1) + self.constant()

    def gradient(self, x: Tensor) -> Tensor:
        return self.visible_inputs(self.hidden_inputs(x).sigmoid_())

    def _evaluate_inputs(self, x: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor, Cache]:
        total = softplus_sum(inputs)
        log_prob = total + self.linear(x)
        if self.offset:
            log_prob += self.constant()
        return log_prob, self.visible_inputs(inputs.sigmoid()), (inputs, total)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._evaluate_inputs(x, self.hidden_inputs(x))[:2]

    def evaluate_with_cache(self, x: Tensor) -> tuple[Tensor, Tensor, Cache]:
        return self._evaluate_inputs(x, self.hidden_inputs(x))

    def evaluate_flipped(
        self, cache: Cache, x: Tensor, y: Tensor, index: Tensor
    ) -> tuple[Tensor, Tensor, Cache]:
        changes = self.scale_changes(flip_changes(x, y, index))
        return self._evaluate_inputs(y, add_rows(cache[0], changes, self.weight, index))

    @torch.no_grad()
    def log_z_and_mean(self) -> tuple[Tensor, Tensor] | None:
        """Enumerate the hidden layer, if it is the smaller one and has at most 16 units."""
        visible, hidden = self.weight.shape
        if hidden >= visible or hidden > 16:
            return None
        h = Binary(hidden).enumerate().to(self.weight)
        inputs = self.visible_inputs(h)
        log_prob = (h @ self.hidden_bias + softplus(inputs).sum(-1)).double()
        return self.offset + log_prob.logsumexp(0), log_prob.softmax(0) @ inputs.sigmoid().double()

    def hidden_layer(self) -> tuple[Domain, int, Callable[[Tensor], tuple[Tensor, Tensor]]] | None:
        """In the precision of the weights, in a fifth of the time of float64."""
        visible, hidden = self.weight.shape
        if hidden >= visible:
            return None

        def evaluate(h: Tensor) -> tuple[Tensor, Tensor]:
            h = h.to(self.weight)
            inputs = self.visible_inputs(h)
            return h @ self.hidden_bias + softplus_sum(inputs), inputs.sigmoid_()

        return Binary(hidden), visible, evaluate

    def cache(self, x: Tensor) -> Cache:
        """Hidden inputs `[chains, hidden]` and the sum of their softplus `[chains]`."""
        inputs = self.hidden_inputs(x)
        return inputs, softplus_sum(inputs)

    def update_cache(self, cache: Cache, x: Tensor, sites: Tensor, new: Tensor) -> Cache:
        change = new - x.index_select(1, sites)
        inputs = cache[0].addmm_(self.scale_changes(change), self.weight.index_select(0, sites))
        if len(cache) == 2:
            return inputs, softplus_sum(inputs)
        return inputs, torch.where(change.squeeze(1) == 0, cache[1], cache[2])

    def conditional(self, x: Tensor, cache: Cache, sites: Tensor) -> tuple[Tensor, Cache]:
        """`log_odds` and the cache. For a single site, it also holds the flip's softplus sum."""
        if len(sites) > 1:
            return super().conditional(x, cache, sites)
        inputs, total = cache
        signs = 1 - 2 * x.index_select(1, sites)  # [chains, 1]
        row = self.weight.index_select(0, sites)
        flipped = softplus_sum(torch.addcmul(inputs, self.scale_changes(signs), row))
        # The change of the softplus sum when the unit goes from 0 to 1, plus its bias.
        log_odds = (flipped - total).unsqueeze(1).mul_(signs)
        log_odds += self.biases(sites)
        return log_odds, (inputs, total, flipped)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        change = 1 - 2 * x.index_select(1, sites)  # [chains, n]
        rows = self.weight.index_select(0, sites)
        linear = change * self.biases(sites)
        scaled = self.scale_changes(change)
        columns = [
            softplus_sum(torch.addcmul(cache[0], scaled[:, i : i + 1], rows[i]))
            for i in range(len(sites))
        ]
        return torch.stack(columns, -1).sub_(cache[1].unsqueeze(-1)).add_(linear)

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        change = patterns.to(x) - x.index_select(1, sites).unsqueeze(1)  # [chains, patterns, n]
        rows = self.weight.index_select(0, sites)
        inputs = self.scale_changes(change) @ rows + cache[0].unsqueeze(1)
        return softplus(inputs).sum(-1) + self.linear(change, sites)

    def sample_hidden(self, x: Tensor, rng: Generator) -> Tensor:
        """A draw of h given x, `[chains, hidden]`."""
        return bernoulli(self.hidden_inputs(x), rng)

    def sample_visible(self, h: Tensor, rng: Generator) -> Tensor:
        """A draw of x given h, `[chains, visible]`."""
        return bernoulli(self.visible_inputs(h), rng)
