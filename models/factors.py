"""Markov and Bayesian networks: products of tables over any number of variables.

    log pi(x) = sum_f log T_f(the values of the variables in the scope of f)

Variables may have different numbers of values. States are in {0, 1} if all have two, else one-hot,
on `Mixed` where the numbers differ. Between the states, log
pi is continued as the polynomial that is linear in each variable, so the gradient gives the changes
by one move exactly. A table may hold zeros. Then there is no gradient, and Gibbs sampling,
which reads the tables of one site, is the choice.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from itertools import combinations, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from latticework.models.base import (
    ZERO_PRICE,
    Cache,
    EnergyModel,
    NotDifferentiableError,
    SupportTable,
)
from latticework.models.domains import Binary, Categorical, Domain, Mixed
from latticework.models.graph import Graph
from latticework.models.tables import Factor, kind_of, variable_sizes

if TYPE_CHECKING:
    from latticework.models.evidence import Evidence, Known

PADDING = 4  # places of a table of each site's factors for one that is taken, at most


class Factors(EnergyModel):
    """The product of `factors`, pairs of a scope and the logarithm of a table.

    `sites` is the number of variables, needed where no scope has the last of them, or the list of
    their numbers of values. `labels` are the names of the values of each variable, which
    `condition_on` then reads. Raises ValueError for a variable that is twice in a scope or does not
    exist, tables that do not fit their scopes or each other, NaN or +inf.
    """

    closed_differences = True
    flat: Tensor
    start: Tensor
    scope: Tensor
    stride: Tensor
    first: Tensor
    holder: Tensor
    step: Tensor
    holds: Tensor
    near_all: Tensor | None

    def __init__(
        self,
        factors: Iterable[tuple[Sequence[int], NDArray | Tensor | Sequence]],
        sites: int | Sequence[int] | None = None,
        names: Iterable[Hashable] | None = None,
        labels: Iterable[Iterable[Hashable]] | None = None,
    ) -> None:
        super().__init__()
        tables = [
            Factor(tuple(map(int, scope)), np.asarray(log, np.float64)) for scope, log in factors
        ]
        self.sizes = variable_sizes(tables, sites)
        sites, values = len(self.sizes), set(self.sizes)
        self.domain: Domain
        if len(values) > 1:
            self.domain = Mixed(self.sizes)
        else:
            self.domain = Binary(sites) if values == {2} else Categorical(sites, values.pop())
        self.factors = sorted(tables, key=kind_of)
        self.names = None if names is None else tuple(names)
        if self.names is not None and len(set(self.names)) != sites:
            raise ValueError(f"names must be {sites} different ones, got {len(set(self.names))}")
        self.labels = None if labels is None else tuple(map(tuple, labels))
        if self.labels is not None and tuple(map(len, self.labels)) != self.sizes:
            raise ValueError(f"labels must name the values of each variable, {self.sizes} of them")
        self.positive = all(np.isfinite(log).all() for _, log in self.factors)
        self._colours: Tensor | None = None

        # Entry v of a table is at start + the sum of v_j stride_j. Scopes are padded to one length
        # with strides of 0. The factors that hold a site, and its strides there, are the entries
        # `first` to the next one of `holder` and `step`: a hub may have as many as all sites.
        longest = max((len(scope) for scope, _ in self.factors), default=0)
        padded = np.zeros((2, len(self.factors) + 1, longest), np.int64)
        places: list[list[tuple[int, int]]] = [[] for _ in range(sites)]
        starts = np.cumsum([0, *(log.size for _, log in self.factors)])
        self._starts: list[int] = starts.tolist()
        for f, (scope, _) in enumerate(self.factors):
            sizes = [self.sizes[i] for i in scope]
            steps = [math.prod(sizes[j + 1 :]) for j in range(len(scope))]
            padded[:, f, : len(scope)] = scope, steps
            for site, step in zip(scope, steps, strict=True):
                places[site].append((f, step))
        counts = np.array(list(map(len, places)), np.int64)
        self.most = int(counts.max())  # factors that hold one site
        pairs = np.array([pair for each in places for pair in each], np.int64).reshape(-1, 2)
        logs = [log.ravel() for _, log in self.factors]
        self._groups: list[tuple[int, int, tuple[int, ...]]] = []  # first factor, number, shape
        for _, group in groupby(range(len(self.factors)), lambda f: kind_of(self.factors[f])):
            members = list(group)
            self._groups.append((members[0], len(members), self.factors[members[0]].log.shape))
        for name, array in {
            "start": starts,
            "scope": padded[0],
            "stride": padded[1],
            "first": np.concatenate(([0], counts.cumsum())),
            "holder": pairs[:, 0],
            "step": pairs[:, 1],
            "holds": np.arange(sites).repeat(counts),
        }.items():
            self.register_buffer(name, torch.from_numpy(array.copy()), persistent=False)
        self.register_buffer("near_all", None, persistent=False)
        if sites * self.most <= PADDING * len(self.holder):
            self.near_all = torch.stack(self.factors_at(torch.arange(sites)))
        flat = torch.from_numpy(np.concatenate([*logs, [0.0]])).float()
        self.flat = torch.nn.Parameter(flat, requires_grad=False)

    @classmethod
    def from_pgmpy(cls, network: Any, beta: float = 1.0) -> "Factors":
        """Beta times the logarithms of the tables of a Bayesian or Markov network of pgmpy.

        Its variables become `names` and their states `labels`. Variables of one state are left out.
        Raises ValueError for a network that pgmpy's `check_model` refuses, such as one that lacks a
        table, and if two tables list the states of a variable differently.
        """
        _require_complete(network)
        bayesian = hasattr(network, "get_cpds")
        tables = [cpd.to_factor() for cpd in network.get_cpds()] if bayesian else network.factors
        states: dict[Any, list[Any]] = {}
        for name, labels in (pair for table in tables for pair in table.state_names.items()):
            if states.setdefault(name, labels) != labels:
                raise ValueError(
                    f"the states of {name!r} are {states[name]} in one table and {labels} in "
                    "another; give them in one order"
                )
        if missing := [name for name in network.nodes() if name not in states]:
            raise ValueError(f"the network has no table for {', '.join(map(repr, missing))}")
        names = [name for name, labels in states.items() if len(labels) > 1]
        place = {name: i for i, name in enumerate(names)}
        factors = []
        for table in tables:
            scope = [place[name] for name in table.variables if name in place]
            with np.errstate(divide="ignore"):
                log = beta * np.log(np.asarray(table.values, np.float64))
            factors.append((scope, log.reshape([len(states[names[i]]) for i in scope])))
        return cls(factors, len(names), names, [states[name] for name in names])

    @classmethod
    def from_bif(cls, file: str | Path, beta: float = 1.0) -> "Factors":
        """The Bayesian network of a BIF file, which pgmpy reads (`pip install pgmpy`)."""
        try:
            from pgmpy.readwrite import BIFReader  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ImportError(f"{file}: a BIF file is read by pgmpy; pip install pgmpy") from error
        return cls.from_pgmpy(BIFReader(str(file)).get_model(), beta)

    def condition_on(self, known: "Known") -> EnergyModel:
        """As for any model; values are `labels`, where there are some, else numbers from 0."""
        if self.labels is None or isinstance(known, Tensor):
            return super().condition_on(known)
        place: dict[Any, Any] = {name: i for i, name in enumerate(self.names or ())}
        numbers = {}
        for key, value in known.items():
            site: Any = place.get(key, key)
            if site not in range(len(self.labels)):
                return super().condition_on(known)  # which says so
            labels = self.labels[site]
            if value not in labels:
                raise ValueError(f"{key!r} must be one of {', '.join(map(str, labels))}: {value!r}")
            numbers[key] = labels.index(value)
        return super().condition_on(numbers)

    def support_tables(self) -> list[SupportTable] | None:
        if type(self).forward is not Factors.forward:
            return None  # a subclass may define another target
        zeros = (self.flat.detach() == -math.inf).nonzero().squeeze(1).cpu().numpy()
        holders = np.unique(np.searchsorted(self._starts, zeros, side="right") - 1)
        tables = map(self.table, holders.tolist())
        return [(scope, log > -math.inf) for scope, log in tables]

    def colours(self) -> Tensor:
        """Greedy; variables of one scope have different colours."""
        if self._colours is None:
            edges: set[tuple[int, int]] = set()
            for scope, _ in self.factors:
                edges.update(combinations(sorted(scope), 2))
            self._colours = Graph(sorted(edges), 0.0, sites=self.domain.dim).colours()
        return self._colours.to(self.flat.device)

    def scopes(self, sites: int) -> Tensor:
        """The windows of each scope; a shorter one is filled up with variables that are near."""
        near: list[dict[int, None]] = [{} for _ in range(self.domain.dim)]  # in order
        for scope, _ in reversed(self.factors):
            for site in scope:
                near[site] |= dict.fromkeys(scope)
        windows = set()
        for scope in [*(scope for scope, _ in self.factors), *((i,) for i in range(len(near)))]:
            for first in range(max(1, len(scope) - sites + 1)):
                block = dict.fromkeys(scope[first : first + sites])
                while len(block) < sites:
                    missing, around = sites - len(block), (j for i in block for j in near[i])
                    more = _different_sites(around, block, missing)
                    block |= more or _different_sites(range(len(near)), block, missing)
                windows.add(tuple(sorted(block)))
        return torch.tensor(sorted(windows), device=self.flat.device)

    def table(self, f: int) -> Factor:
        """Factor `f` as it is now."""
        scope, log = self.factors[f]
        now = self.flat[self._starts[f] : self._starts[f + 1]].detach().double().cpu().numpy()
        return Factor(scope, now.reshape(log.shape))

    def soften(self) -> "Factors | None":
        if self.positive or type(self).forward is not Factors.forward:
            return None
        made = Factors(map(self.table, range(len(self.factors))), self.sizes)
        made.domain, made.positive = self.domain, True
        flat = self.flat.double()
        made.flat = torch.nn.Parameter(
            flat.where(flat.isfinite(), -ZERO_PRICE), requires_grad=False
        )
        return made.to(self.flat.device)

    def restrict(self, evidence: "Evidence") -> "Factors":
        """Tables at the known values. Tables without a free variable become one number."""
        codes = self._codes(evidence.state)[0].tolist()
        place = {site: k for k, site in enumerate(evidence.free.tolist())}
        factors, constant = [], 0.0
        for scope, log in map(self.table, range(len(self.factors))):
            at = tuple(slice(None) if site in place else codes[site] for site in scope)
            if free := tuple(place[site] for site in scope if site in place):
                factors.append(Factor(free, log[at]))
            else:
                constant += float(log[at])
        if constant:
            factors.append(Factor((), np.array(constant)))
        smaller = Factors(factors, [self.sizes[site] for site in place])
        logs = [log.ravel() for _, log in smaller.factors]
        smaller.to(self.flat)  # then again the tables, which were in single precision
        smaller.flat.data = torch.from_numpy(np.concatenate([*logs, [0.0]])).to(self.flat)
        smaller.domain = evidence.domain  # one-hot if this one is, also where two values are left
        return smaller

    def _codes(self, x: Tensor) -> Tensor:
        """The values as whole numbers, `[chains, sites]`."""
        return x.argmax(-1) if x.ndim == 3 else x.long()

    def forward(self, x: Tensor) -> Tensor:
        weights = torch.stack((1 - x, x), -1) if x.ndim == 2 else x  # [chains, sites, values]
        total = x.new_zeros(len(x))
        for place, count, shape in self._groups:
            entries = self.flat[self._starts[place] : self._starts[place + count]]
            sums = entries.view(1, count, -1)  # [chains or 1, factors, values ** variables left]
            scopes = self.scope[place : place + count]
            for j in range(len(shape)):
                share = weights.index_select(1, scopes[:, j])[..., : shape[j]].unsqueeze(-1)
                sums = sums.unflatten(-1, (shape[j], -1))
                part = sums * share
                if not self.positive:
                    part = torch.where(share > 0, part, 0)  # 0 times -inf
                sums = part.sum(2)
            total = total + sums.sum((1, 2))
        return total

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if not self.positive:
            raise NotDifferentiableError(
                "tables with zeros have no gradient; use gibbs, with several sites where variables "
                "determine one another: gibbs(sites=3, scan=scopes)"
            )
        return super().log_prob_and_grad(x)

    def _of_sites(self, x: Tensor, sites: Tensor) -> Tensor:
        """The tables that hold each site, as functions of it, `[chains, n, values]`.

        Arbitrary at values that the site does not have.
        """
        codes = self._codes(x)
        if self.near_all is not None or len(sites) * self.most <= len(self.holder):
            holders, step = self.factors_at(sites)
            here = codes.index_select(1, sites).unsqueeze(-1)
            return self._entries(codes, here, holders, step).sum(2)
        here = codes.index_select(1, self.holds)  # all sites, where that is less
        entries = self._entries(codes, here, self.holder, self.step)
        total = entries.new_zeros(len(x), self.domain.dim, entries.shape[-1])
        return total.index_add_(1, self.holds, entries).index_select(1, sites)

    def factors_at(self, sites: Tensor) -> tuple[Tensor, Tensor]:
        """The factors that hold each of `sites` `[n]`, and its strides there, both `[n, most]`.

        A place beyond the last factor has a table of one zero.
        """
        if self.near_all is not None:
            holders, steps = self.near_all.index_select(1, sites)
            return holders, steps
        first = self.first.index_select(0, sites).unsqueeze(1)
        slot = first + torch.arange(self.most, device=sites.device)
        exists = slot < self.first.index_select(0, sites + 1).unsqueeze(1)
        flat = torch.where(exists, slot, 0).view(-1)
        holders = self.holder.index_select(0, flat).view_as(slot)
        steps = self.step.index_select(0, flat).view_as(slot)
        return torch.where(exists, holders, len(self.factors)), steps * exists

    def _entries(self, codes: Tensor, here: Tensor, holders: Tensor, step: Tensor) -> Tensor:
        """The entries of `holders` `[...]` at each value of a site that each holds.

        `here` `[chains, ...]` is the site's value now. Returns `[chains, ..., values]`.
        """
        flat = holders.view(-1)
        scope, stride = self.scope.index_select(0, flat), self.stride.index_select(0, flat)
        near = codes.index_select(1, scope.view(-1)).view(len(codes), *scope.shape)
        at = (near * stride).sum(-1).view(len(codes), *holders.shape) + self.start[holders]
        at = at - here * step  # with the value 0 at the site
        values = max(2, self.domain.moves)
        places = at.unsqueeze(-1) + step.unsqueeze(-1) * torch.arange(values, device=codes.device)
        if isinstance(self.domain, Mixed):
            places = places.clamp_(max=len(self.flat) - 1)
        return self.flat[places]

    def log_odds(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        low, high = self._of_sites(x, sites).unbind(-1)
        return high - low

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        log_probs = self._of_sites(x, sites)
        if x.ndim == 2:
            return (log_probs[..., 1] - log_probs[..., 0]) * (1 - 2 * x.index_select(1, sites))
        here = self._codes(x).index_select(1, sites).unsqueeze(-1)
        return log_probs - log_probs.gather(-1, here)

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        new = patterns.argmax(-1) if x.ndim == 3 else patterns.long()
        codes = self._codes(x).unsqueeze(1).repeat(1, new.shape[1], 1)
        codes[:, :, sites] = new.expand(len(x), -1, -1)
        holders, _ = self.factors_at(sites)
        scope, stride = self.scope[holders], self.stride[holders]  # [n, holders, longest]
        values = self.flat[(codes[:, :, scope] * stride).sum(-1) + self.start[holders]]
        # A table that holds several of the sites counts at the first of them.
        holds = ((scope.unsqueeze(-1) == sites) & (stride.unsqueeze(-1) > 0)).any(-2)
        order = torch.arange(len(sites), device=x.device)
        again = (holds & (order < order.view(-1, 1, 1))).any(-1)
        return values.masked_fill(again, 0).sum((2, 3))

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        return self._of_sites(x, site).squeeze(1)


def _different_sites(sites: Iterable[int], block: dict[int, None], count: int) -> dict[int, None]:
    """The first `count` different sites that are not in the block, in order."""
    more: dict[int, None] = {}
    for site in sites:
        if site not in block:
            more[site] = None
        if len(more) == count:
            break
    return more


def _require_complete(network: Any) -> None:
    """Raise ValueError for what `check_model` of a pgmpy network refuses, or without variables."""
    try:
        valid = network.check_model()
    except ValueError as error:
        raise ValueError(f"pgmpy refuses this {type(network).__name__}: {error}") from error
    if not valid or not network.nodes():
        raise ValueError(
            f"pgmpy refuses this {type(network).__name__}: it has no variables, or its tables do "
            "not fit them"
        )
