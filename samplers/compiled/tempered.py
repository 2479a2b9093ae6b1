"""Tempering with compiled kernels: the kernel's own twin on the form of every level.

The form at b is that of the target with scaled parameters, so no kernel is new. Swaps are those of
the eager sampler.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Generator, Tensor

from latticework.models.base import AnnealedModel, Cache, EnergyModel
from latticework.models.forms import (
    Form,
    LatticeForm,
    PottsGraphForm,
    PottsLatticeForm,
    RBMForm,
    change,
    forbids,
    temper_form,
)
from latticework.samplers.base import Info
from latticework.samplers.checks import check_start
from latticework.samplers.compiled.compiled_sampler import (
    CompiledSampler,
    GroupTwin,
    NoCompiledKernelError,
    form_of,
)
from latticework.samplers.compiled.lattice_values import lattice_values
from latticework.samplers.compiled.philox import step_keys
from latticework.samplers.compiled.sweeps.sweep_potts import potts_values
from latticework.samplers.ladder import LadderState
from latticework.samplers.sums import NOTHING, MultiStepSampler, SumRequest, Sums, empty_sums
from latticework.samplers.tempered import Tempered


class LevelStates(NamedTuple):
    x: Tensor  # states of all replicas, [replicas * chains, *domain.shape]
    levels: tuple[Any, ...]  # the state of the kernel's twin at each level, whose memory counts


class _Level(NamedTuple):
    """The form that a twin reads of a model."""

    made: Form

    def form(self) -> Form:
        return self.made


@dataclass(frozen=True)
class TemperedTwin(Tempered, MultiStepSampler):
    twin: CompiledSampler | None = None  # the twin of the kernel

    def init(self, x: Tensor, model: EnergyModel) -> LadderState:
        check_start(x, model, self.uses_gradient, partial(change, form_of(model)))
        return self.at(x, model)

    def kernel_at_levels(
        self, replicas: Tensor, level: Tensor, schedule: Tensor, scales: Tensor, model: EnergyModel
    ) -> tuple[Any, Cache]:
        assert self.twin is not None
        forms = _forms(form_of(model), tuple(schedule.tolist())[-len(level) :])
        order = level.argsort(0)[:, 0]  # all chains have the same levels at first
        parts = replicas.unflatten(0, (len(level), -1))[order]
        twins = _twins(self.twin, tuple(scales.tolist())[-len(level) :], len(level))
        states = tuple(
            twin.at(part, _Level(form))  # type: ignore[arg-type]
            for twin, part, form in zip(twins, parts, forms, strict=True)
        )
        path = self.path(model, replicas)
        path.move_to(schedule[level].flatten())
        return LevelStates(replicas, states), path.know(replicas)

    def refresh(self, state: LadderState, model: EnergyModel) -> LadderState:
        path = self.path(model, state.x)
        path.move_to(state.schedule[state.level].flatten())
        return state._replace(known=path.know(state.kernel.x))

    def move_replicas(
        self, state: LadderState, model: EnergyModel, path: AnnealedModel, rng: Generator
    ) -> tuple[Any, Cache, Info]:
        x, level, target, chains = state.kernel.x, state.level, form_of(model), len(state.x)
        forms = _forms(target, tuple(state.schedule.tolist())[-len(level) :])
        rows = level.argsort(0) * chains + torch.arange(chains)  # by level
        twins = _twins(self.twin, tuple(state.scales.tolist())[-len(level) :], len(level))
        states, hot = state.kernel.levels, int(self.hot * len(level))
        made = [1] * hot + [self.steps] * (len(level) - hot)
        twin = self.twin if isinstance(self.twin, GroupTwin) else None
        if twin and not len(state.scales) and twin.serves_groups(states[0], forms, chains):
            accepted = np.zeros(rows.shape)
            for first, steps in ((0, made[0]), (hot, made[-1] - made[0])):
                if not steps:
                    break
                sums = empty_sums(x[: rows[first:].numel()], steps, NOTHING)
                flat, keys = x.flatten(1).numpy(), step_keys(steps, rng)
                twin.run_groups(flat, rows[first:].numpy(), forms[first:], keys, sums)
                accepted[first:] += sums.accept.reshape(-1, chains)
            accept = torch.from_numpy(accepted / np.array(made)[:, None])
        else:
            levels = zip(twins, states, forms, made, strict=True)
            states, accept = self._move_each_level(x, rows, levels, rng)
        path.move_to(state.schedule[level].flatten())
        values: Tensor | None = None  # in a third of the time of `know`
        if isinstance(target, LatticeForm):
            values = lattice_values(target, x)
        elif isinstance(target, PottsGraphForm | PottsLatticeForm):
            values = potts_values(target, x.flatten(1))
        known: Cache
        if values is None:
            known = path.know(x)
        else:  # up to a constant
            known = x, (values + (path.know(x[:1])[1] - values[:1])).to(x)
        by_row = torch.empty(len(x)).index_copy_(0, rows.flatten(), accept.flatten().float())
        return LevelStates(x, states), known, Info(by_row)

    def _move_each_level(
        self,
        x: Tensor,
        rows: Tensor,
        levels: Iterable[tuple[CompiledSampler, Any, Form, int]],
        rng: Generator,
    ) -> tuple[tuple[Any, ...], Tensor]:
        """Overwrite `x`, one level after another: its twin, state, form and number of steps.

        The kernels' states, and mean acceptances `[levels, chains]`.
        """
        after, accept = [], torch.empty(rows.shape, dtype=torch.float64)
        for number, (twin, before, form, steps) in enumerate(levels):
            part = x.index_select(0, rows[number])  # one level, which fits the cache
            state = twin.relocate(part, before, _Level(form))  # type: ignore[arg-type]
            sums = empty_sums(state.x, steps, NOTHING, twin.loops)
            state = twin.run(state, form, twin.draw_keys(state, steps, rng), sums)
            x.index_copy_(0, rows[number], state.x)
            accept[number] = torch.from_numpy(sums.accept / steps)
            after.append(state)
        return tuple(after), accept

    def advance(
        self,
        state: Any,
        model: EnergyModel,
        rng: Generator,
        steps: int,
        wanted: SumRequest = NOTHING,
    ) -> tuple[Any, Sums]:
        sums = empty_sums(state.x, steps, wanted)
        draws, traced = sums.trace.shape[:2]
        for number in range(steps):
            before = state.x
            state, info = self.step(state, model, rng)
            flat, changed = state.x.flatten(1), before != state.x
            sums.accept[:] += info.accept_prob.numpy()
            sums.changed[:] += (changed.any(-1) if changed.ndim > 2 else changed).sum(-1).numpy()
            if wanted.total:
                sums.total[:] += flat.numpy()
            if number >= steps - draws:
                sums.trace[number - (steps - draws)] = flat[:traced].numpy()
        return state, sums


def tempered_twin(sampler: Tempered, twin: Any, model: EnergyModel) -> TemperedTwin:
    """The twin of `sampler`, whose kernel has the twin `twin`.

    Raises NoCompiledKernelError on an RBM, and from a law other than the uniform one.
    """
    if sampler.log_odds is not None:
        raise NoCompiledKernelError(
            "compiled kernels temper from the uniform law, and log_odds are given"
        )
    if isinstance(form_of(model), RBMForm):
        raise NoCompiledKernelError(
            "on an RBM one product moves the replicas of all levels, in half the time of a kernel "
            "for each level, so tempering runs eagerly"
        )
    if forbids(form_of(model)):
        raise NoCompiledKernelError(
            "couplings and biases of -inf have a finite price below b = 1, which the forms of "
            "compiled kernels do not have, so tempering runs eagerly"
        )
    settings = {field.name: getattr(sampler, field.name) for field in fields(sampler)}
    return TemperedTwin(**{**settings, "learn_base": None}, twin=twin)


_scaled: list[
    tuple[CompiledSampler, tuple[float, ...], tuple[CompiledSampler, ...]]
] = []  # the last


def _twins(
    twin: CompiledSampler | None, scales: tuple[float, ...], levels: int
) -> tuple[CompiledSampler, ...]:
    """The twin of each level. Those with scales of their own are kept, as they hold tables."""
    assert twin is not None
    if not scales:
        return (twin,) * levels
    if not (_scaled and _scaled[0][0] is twin and _scaled[0][1] == scales):
        samplers = [replace(twin.sampler, **{twin.sampler.scale: scale}) for scale in scales]
        _scaled[:] = [(twin, scales, tuple(replace(twin, sampler=each) for each in samplers))]
    return _scaled[0][2]


_made: list[tuple[Form, tuple[float, ...], tuple[Form, ...]]] = []  # the last, by its form's values


def _forms(form: Form, schedule: tuple[float, ...]) -> tuple[Form, ...]:
    """The form at every b of `schedule`; the last ones are kept, as each may hold a matrix."""
    if _made and _made[0][1] == schedule and _equal(_made[0][0], form):
        return _made[0][2]
    kind: Any = type(form)
    copy = kind._make(np.copy(p) if isinstance(p, np.ndarray) else p for p in form)
    _made[:] = [(copy, schedule, tuple(temper_form(copy, b) for b in schedule))]
    return _made[0][2]


def _equal(one: Form, other: Form) -> bool:
    if type(one) is not type(other):
        return False
    pairs: Any = zip(one, other, strict=True)
    return all(a is b or np.array_equal(a, b) for a, b in pairs)
