"""Pictures of results: what they show, also in grey and for colour-blind readers."""

import io

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from PIL import Image

import latticework as lw
from latticework.sampling import pictures

pytestmark = pytest.mark.filterwarnings("ignore::latticework.sampling.sample.ConvergenceWarning")
RING = lw.Graph([[i, (i + 1) % 6] for i in range(6)], 0.2, bias=0.1)
MODELS = {
    "graph": RING,
    "potts": lw.GraphPotts([[0, 1], [1, 2]], 0.4, 3),
    "integers": lw.Function(lambda x: -x.abs().sum(-1), lw.Integer(3)),
    "many": lw.Function(lambda x: x[:, 0], lw.Binary(500)),
}


def png(picture):
    """The picture as an array [rows, columns, 3] of bytes, as a notebook shows it."""
    return np.asarray(Image.open(io.BytesIO(picture._repr_png_())).convert("RGB"))


@pytest.mark.parametrize("keep", ["draws", "summary"])
@pytest.mark.parametrize("model", MODELS)
def test_a_result_shows_its_trace_ranks_means_and_worst_entries(model, keep):
    sampler = "dmala" if model == "integers" else "random_walk"
    result = lw.sample(MODELS[model], sampler, steps=200, chains=3, keep=keep)
    picture = result.plot()
    trace, ranks, means, worst = picture.axes
    running = trace.lines[1].get_ydata()
    assert running[-1] == pytest.approx(float(result.log_prob[0].mean()), abs=1e-4)
    shares = [stairs.get_data().values for stairs in ranks.patches]
    np.testing.assert_allclose([share.mean() for share in shares], 1)
    entries = min(int(np.prod(result.domain.shape)), pictures.MAX_ENTRIES)
    heights = means.lines[0].get_ydata()
    assert len(heights) == entries
    if model == "graph":
        table = result.summary(None).loc["x[0]":"x[5]"]
        np.testing.assert_allclose(heights, table["mean"], atol=1e-6)
        worst_name = table["r_hat"].astype(float).idxmax()
        assert worst.get_yticklabels()[-1].get_text() == worst_name
    assert png(picture).std() > 5


def test_a_race_shows_its_rates():
    table = lw.race(RING, [lw.Gibbs(), lw.DULA(0.2)], budget="400evaluations", seeds=3)
    (axes,) = table.plot().axes
    names = [label.get_text().split()[-1] for label in axes.get_yticklabels()]
    assert names == list(table["sampler"])[::-1]
    shown = [line.get_xdata()[0] for line in axes.lines[1::2]]
    np.testing.assert_allclose(shown, table["ess_per_evaluation"][::-1])
    hollow = [line.get_markerfacecolor() == "none" for line in axes.lines[1::2]]
    assert hollow == list(table["rank"][::-1] == "-")
    assert axes.get_xlabel() == "effective samples for an evaluation of each chain"


def test_log_z_shows_the_barrier():
    result = lw.sample(RING, "gibbs", temper=True, steps=60, chains=2, diagnose=False)
    left, right = result.log_z.plot().axes
    assert left.lines[0].get_ydata()[-1] == pytest.approx(result.ladders.barrier)
    log_z = result.log_z
    np.testing.assert_allclose(
        right.lines[0].get_xdata(), [log_z.forward, log_z.value, log_z.backward]
    )
    assert lw.sample(RING, "gibbs", steps=20, diagnose=False).log_z is None


# Colours as a reader without red or green cones sees them: G. M. Machado, M. M. Oliveira and
# L. A. F. Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency",
# IEEE TVCG 2009, severity 1.
VISION = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}  # fmt: skip


@pytest.mark.parametrize("vision", VISION)
def test_neighbouring_chains_differ_for_every_reader(vision):
    """In colour or, where colours are near, in the line style, which also tells them in grey."""
    looks = [pictures._look_of(number) for number in range(pictures.MAX_TRACES)]
    seen = [np.array(VISION[vision]) @ to_rgb(look["color"]) for look in looks]
    for first in range(len(looks)):
        for second in range(first):
            far = np.abs(seen[first] - seen[second]).max() > 0.15
            assert far or looks[first]["ls"] != looks[second]["ls"]
    in_grey = {look["ls"] for look in looks[:4]}
    assert len(in_grey) == 4
    luminance = torch.tensor([to_rgb(look["color"]) for look in looks]) @ torch.tensor(
        [0.2126, 0.7152, 0.0722]
    )
    assert luminance.max() < 0.4  # dark on white
