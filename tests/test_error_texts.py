"""The text of an error: one line, the part that refused, the type that was expected."""

import errno
import math
from collections.abc import Callable, Sequence
from typing import Literal

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate

import latticework as lw
import latticework.run
from latticework.experiments.runs.errors import ConfigurationError, describe_error
from latticework.models.base import NotDifferentiableError
from latticework.sampling.annotations import describe_annotation, fits

pytestmark = pytest.mark.usefixtures("eager")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "memory ran out (OutOfMemoryError: CUDA "),
        (MemoryError("Unable to allocate"), "; take a smaller model, fewer chains, a smaller"),
        (OSError(errno.ENOSPC, "No space left on device"), "make room in the folder of outputs"),
        (ValueError("one\n  two"), "ValueError: one two"),
        (ConfigurationError("seed must be an integer"), "seed must be an integer"),
    ],
    ids=repr,
)
def test_the_summary_of_an_error_is_one_line(error, line):
    assert line in describe_error(error)
    assert "\n" not in describe_error(error)


def refused(threshold: float) -> None:
    raise KeyError("two\nlines")


def test_the_summary_names_the_part():
    node = {"_target_": "test_error_texts.refused", "threshold": 1}
    with pytest.raises(InstantiationException) as raised:
        instantiate({"part": node})
    assert (
        describe_error(raised.value) == "part (test_error_texts.refused): KeyError: 'two\\nlines'"
    )


NODE = {"_target_": "latticework.samplers.gwg.GWG"}


@pytest.mark.parametrize(
    ("hint", "good", "bad", "phrase"),
    [
        (int, [0, -3], [True, 1.5, "1", None, 2**63], "an integer"),
        (float, [0, 1.5], [True, "1", None, math.inf, math.nan, 10**30, [1.0]], "a number"),
        (bool, [True], [0, "true", None], "true or false"),
        (str, ["", "a"], [1, None, True], "a string"),
        (str | None, ["a", None], [1], "a string or null"),
        (Literal["a", 1], ["a", 1], ["b", True, None], "a or 1"),
        (Sequence[int], [[], [1, 2]], [[1.5], 1, "12", {"a": 1}], "a list of integers"),
        (tuple[float, ...], [[1, 2.0]], [["x"]], "a list of numbers"),
        (float | Sequence[float], [1, [1]], ["x", ["x"]], "a number or a list of numbers"),
        (dict[str, float], [{"a": 1}], [{"a": "x"}, [1]], "a mapping"),
        (Callable[..., int], [NODE], [1, "f", None], "a function (a group with a _target_)"),
        (torch.Tensor, [NODE], [1, [1.0]], "a Tensor (a group with a _target_)"),
    ],
)
def test_values_fit_annotations(hint, good, bad, phrase):
    assert describe_annotation(hint) == phrase
    assert all(fits(value, hint) for value in good)
    assert not any(fits(value, hint) for value in bad)


def test_a_gradient_under_inference_mode_is_refused_by_its_cause():
    """The target is differentiable; samplers without gradients run."""

    def target(x):
        return x.sum(-1)

    with torch.inference_mode():
        with pytest.raises(NotDifferentiableError, match=r"torch.inference_mode\(\) switches off"):
            lw.sample(target, "dmala", sites=4, chains=2, steps=5, diagnose=False)
        made = lw.sample(target, "gibbs", sites=4, chains=2, steps=5, diagnose=False).draws
    x = torch.as_tensor(made)[:, -1].float()
    assert lw.Function(target, lw.Binary(4)).log_prob_and_grad(x)[1].eq(1).all()
