"""The library by itself: `import latticework` without what only the experiments need."""

import subprocess
import sys

import pytest

# In a process of its own, in which these packages cannot be imported.
BLOCKED = """
import sys

class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {refused}:
            raise ImportError(name + " is not to be imported here")

sys.meta_path.insert(0, Refused())
import latticework
{code}
"""
EXPERIMENTS = ("hydra", "omegaconf", "antlr4", "pandas", "transformers", "matplotlib")


def blocked(code: str, refused: tuple[str, ...] = EXPERIMENTS) -> str:
    """What the code prints where no package of `refused` can be imported."""
    words = [sys.executable, "-W", "ignore", "-c", BLOCKED.format(code=code, refused=refused)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SAMPLE = """
def log_prob(x):
    return 2 * x[:, 0] - x.sum(-1) ** 2 / 8

for named in ("dmala", "gwg(flips=2)", "dmala_without_step_term", "pt_dmala"):
    result = latticework.sample(log_prob, named, sites=6, steps=40, burn_in=10)
    assert result.draws.shape == (4, 40, 6) and "4 chains x 40 draws" in str(result)
    print(result.sampler)
"""


def test_a_function_is_sampled_without_the_packages_of_experiments():
    printed = blocked(SAMPLE)
    assert printed.splitlines() == [
        "DMALA(step_size=0.2, preconditioner=None, preconditioner_power=1)",
        "GWG(flips=2)",
        "DMALA(step_size=inf, preconditioner=None, preconditioner_power=1)",
        "PTDMALA(step_size=0.2, ladder=[1.0, 0.8, 0.6, 0.4], burn_in=0)",
    ]


def test_the_block_holds():
    """Control: what reads configurations fails in it."""
    with pytest.raises(AssertionError, match="hydra is not to be imported here"):
        blocked("import latticework.experiments.config.options")
