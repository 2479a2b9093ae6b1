"""One step of a contender of the benchmark, in a process that has loaded nothing before.

    python -m workshop.one_step CONTENDER MODEL CHAINS SAMPLER

The exit status is `DECLINED` if the contender declines the workload.
"""

import sys

from workshop.bench_contenders import CONTENDERS, DeclinedError
from workshop.bench_workloads import Workload

DECLINED = 3


def make_one_step(contender: str, model: str, chains: str, sampler: str) -> None:
    """Make the chains, advance them by the fewest steps that the contender takes, read them."""
    maker = CONTENDERS[contender]
    try:
        made = maker.make(Workload(model, int(chains), sampler), 1)
    except DeclinedError:
        sys.exit(DECLINED)
    made.burst(maker.fewest)
    made.states()


if __name__ == "__main__":
    make_one_step(*sys.argv[1:])
