"""Eager steps that read their numbers from a tape, as recorded and compiled ones do."""

from dataclasses import dataclass

from latticework.models.distributions import Tape
from latticework.samplers.base import Wrapper


@dataclass(frozen=True)
class OnTape(Wrapper):
    """The sampler's steps, on tapes that the generator fills."""

    def init(self, x, model):
        return self.sampler.init(x, model)

    def at(self, x, model):
        return self.sampler.at(x, model)

    def step(self, state, model, rng):
        tape = Tape()
        tape._own = rng
        return self.sampler.step(state, model, tape)
