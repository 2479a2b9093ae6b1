"""Checks of the rules of a step (`samplers.base`). Each returns its outcome, or raises."""

import io
import random
import re
import sys
import traceback
from typing import Any

import numpy as np
import torch
from torch import Generator
from torch.utils import _pytree as pytree

from latticework.models.domains import Moves
from latticework.sampling.chain import Chain, Poisoned
from latticework.sampling.checking.check_case import CheckCase, CheckOutcome
from latticework.sampling.checking.host_reads import HostReadError, NoHostReads
from latticework.sampling.loop_state import to_checkpoint

LIBRARIES = {"latticework", "torch", "numpy", *sys.stdlib_module_names}
KERNELS = re.compile(r"latticework\.(samplers|models)\.(?!base|checks|domain)\w+")


def valid_states(case: CheckCase) -> CheckOutcome:
    """States in the domain, of the shape of x, and acceptance probabilities in [0, 1]."""
    sampler, x, rng = case.fresh(), case.start(), case.rng(2)
    state = sampler.init(x, case.target.model)
    for step in range(1, 11):
        state, info = sampler.step(state, case.target.model, rng)
        if state.x.shape != x.shape:
            return CheckOutcome(
                "fails", f"state.x must have the shape {list(x.shape)}, got {list(state.x.shape)}"
            )
        case.target.domain.check(state.x)
        accept = info.accept_prob
        if accept.shape != (len(x),) or not ((accept >= 0) & (accept <= 1)).all():
            return CheckOutcome(
                "fails",
                f"info.accept_prob must be [{len(x)}] numbers in [0, 1], got "
                f"{list(accept.shape)} with {accept.min():g} to {accept.max():g} in step {step}",
            )
    return CheckOutcome("ok")


def cached_values(case: CheckCase) -> CheckOutcome:
    """After steps, a state's fields are those of a new state at its x, but for declared `memory`.

    A field that follows the past unseen, such as a scale that adapts for ever, changes the law.
    """
    state, model = case.run_steps(case.start(), 10), case.target.model
    names, memory = getattr(state, "_fields", ()), case.sampler.memory
    if unknown := sorted(set(memory) - set(names)):
        return CheckOutcome("fails", f"memory names {', '.join(unknown)}, which no state has")
    new = case.fresh().at(state.x, model)
    expected = {name: getattr(new, name) for name in names if name not in ("x", *memory)}
    if "log_prob" in expected:  # which others read as that of the target
        expected["log_prob"] = model.log_prob(state.x)
    if "grad" in expected and case.sampler.uses_gradient:
        expected["grad"] = model.log_prob_and_grad(state.x)[1]
    for name, value in expected.items():
        if error := largest_error(getattr(state, name), value):
            return CheckOutcome(
                "fails",
                f"after 10 steps, state.{name} is off by {error:.3g} from that of state.x; what "
                "must follow the past, such as a scan, is named in `memory` of the class",
            )
    return CheckOutcome("ok", ", ".join(expected))


def largest_error(tree: Any, expected: Any) -> float:
    """The largest difference of two entries; 0 if none exceeds 1e-3 of the size of its tensor."""
    largest = 0.0
    pairs = zip(pytree.tree_leaves(tree), pytree.tree_leaves(expected), strict=True)
    for a, b in ((a.double().flatten(), b.double().flatten()) for a, b in pairs):
        error = torch.where((a == b) | (a.isnan() & b.isnan()), 0, (a - b).abs())
        error = error.nan_to_num(torch.inf)
        rounding = 1e-3 * (1 + b.nan_to_num(0, 0, 0).abs().max()) if len(b) else 0
        largest = max(largest, *error[error > rounding].tolist(), 0.0)
    return largest


def unaliased_states(case: CheckCase) -> CheckOutcome:
    """`init` leaves x as it is, and no step reads the memory of an earlier state."""
    x = case.start()
    given = x.clone()
    plain = case.run_steps(x, 10)
    if not torch.equal(x, given):
        return CheckOutcome(
            "fails",
            "a step changed the x given to init; copy it in `at` if steps overwrite state.x",
        )
    poisoned = case.run_steps(x, 10, Poisoned(case.fresh()))
    if not are_equal(plain, poisoned):
        return CheckOutcome(
            "fails",
            "other draws when each old state is overwritten after the step: some step reads the "
            "memory of an earlier state; copy what must outlive a step into the new state",
        )
    return CheckOutcome("ok")


def host_reads(case: CheckCase) -> CheckOutcome:
    """A step makes no host read, so it can be captured as a CUDA graph."""
    sampler, rng, model = case.fresh(), case.rng(2), case.target.model
    state = sampler.init(case.start(8), model)
    target_passed = False
    try:
        with NoHostReads():
            model.log_prob(case.target.states)
            if isinstance(model.domain, Moves):
                model.domain.propose(case.target.states, rng)
            target_passed = True
            for _ in range(2):
                state, _ = sampler.step(state, model, rng)
    except HostReadError as error:
        if target_passed:
            return CheckOutcome("fails", f"{error}{format_place(error)}")
        return CheckOutcome("-", f"the target itself reads: {error}{format_place(error)}")
    return CheckOutcome("ok")


def chance_from_generator(case: CheckCase) -> CheckOutcome:
    """All chance comes from the generator passed last."""
    states = []
    before = random.getstate(), np.random.get_state()  # noqa: NPY002 - whether it is touched
    with torch.random.fork_rng(devices=[]):
        for seed in (1, 2):
            torch.manual_seed(seed)
            untouched = torch.get_rng_state()
            states.append(case.run_steps(case.start(), 5))
            if not torch.equal(untouched, torch.get_rng_state()):
                return CheckOutcome(
                    "fails", "a step draws from PyTorch's global generator; pass generator=rng"
                )
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    if repr(before) != repr(after):
        return CheckOutcome("fails", "a step draws from Python's or NumPy's global generator")
    if not are_equal(*states):
        return CheckOutcome("fails", "two runs with the same seed differ")
    return CheckOutcome("ok")


def exact_resumption(case: CheckCase) -> CheckOutcome:
    """Chains restored from a checkpoint, with a new sampler object, go on bit for bit."""
    x, model = case.start(), case.target.model

    def chain(seed: int) -> Chain:
        return Chain(case.fresh(), model, x, Generator(x.device).manual_seed(seed), every=1)

    whole = chain(5)
    for _ in range(3):
        whole.advance()
    buffer = io.BytesIO()
    torch.save(to_checkpoint(whole), buffer)
    buffer.seek(0)
    again = chain(6)
    again.load_state_dict(torch.load(buffer, weights_only=True))
    for _ in range(3):
        whole.advance()
        again.advance()
    if are_equal(whole.state, again.state):
        return CheckOutcome("ok")
    return CheckOutcome(
        "fails",
        "chains restored from a checkpoint continue differently; keep all memory in the state "
        "and none on self",
    )


def are_equal(one: Any, other: Any) -> bool:
    """Whether two states have equal bits."""
    pairs = zip(pytree.tree_leaves(one), pytree.tree_leaves(other), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def format_place(error: BaseException) -> str:
    """The user's line of code that led to `error`; without one, that of a sampler or model.

    The lines are those of `error` and of the errors that caused it.
    """
    users, ours = [], []
    cause: BaseException | None = error
    while cause:
        frames = traceback.walk_tb(cause.__traceback__)
        names = [frame.f_globals.get("__name__", "") for frame, _ in frames]
        for name, line in zip(names, traceback.extract_tb(cause.__traceback__), strict=True):
            if name.partition(".")[0] not in LIBRARIES:
                users.append(line)
            elif KERNELS.fullmatch(name):
                ours.append(line)
        cause = cause.__cause__
    last = (users or ours)[-1:]
    return "".join(f" (line {line.lineno} of {line.filename}: {line.line})" for line in last)
