"""Draws from the target by the sampler, without the command line."""

from barker import Barker
from sensors import log_prob

import latticework

result = latticework.sample(log_prob, Barker(), sites=12, chains=8, steps=4000, burn_in=1000)
print(result)
print("each sensor is on with probability", *(f"{p:.2f}" for p in result.draws.mean((0, 1))))
