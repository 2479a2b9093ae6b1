"""Exact efficiencies of kernels on targets whose states can be listed: no Monte Carlo error.

python -m workshop.exact_efficiency   # writes the table of docs/efficiency.md, a CSV and a figure

With P the matrix of a step, pi the target and h a centred function, the asymptotic variance of the
mean of h over that in independent draws is (2 <h, Y> - <h, h>) / <h, h> in pi, where
(I - P + 1 pi) Y = h. It is how many steps are worth one independent draw. The matrices are the
enumerated laws of workshop/laws/, written from the papers. A kernel with several closed classes
makes the equation singular, and its inefficiency is infinite.

Left out: AVG, PAVG, DHAMS and EDLP, whose steps have continuous noise; PT-DMALA and Tempered, whose
states are of several replicas; samplers that adapt or relax.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import latticework as lw
from latticework.experiments.papers.docs_pages import replace_block
from latticework.sampling.checking.targets import Target
from latticework.sampling.targets import why_unsupported
from workshop.laws import blocks, steps, variants

Matrix = NDArray[np.float64]
SITES = 6  # sites of the targets on the page
PAGE = Path(__file__).resolve().parents[1] / "docs" / "efficiency.md"
SINGULAR = 1e-10  # a smallest singular value that stands for zero


class Kernel(NamedTuple):
    sampler: Any
    law: Callable[[Any, Target], Any]


class Efficiency(NamedTuple):
    """Steps for one independent draw of each function; infinite if classes are closed."""

    inefficiency: Matrix
    gap: float  # 1 - the second largest modulus of an eigenvalue
    classes: int  # eigenvalues at 1


def kernels() -> dict[str, Kernel]:
    return {
        "gibbs_sweep": Kernel(lw.GibbsSweep(), blocks.gibbs_sweep),
        "metropolis_sweep": Kernel(lw.MetropolisSweep(), blocks.metropolis_sweep),
        "gibbs(scan=random)": Kernel(lw.Gibbs(1, "random"), blocks.gibbs),
        "random_walk": Kernel(lw.RandomWalk(1), steps.random_walk),
        "gwg": Kernel(lw.GWG(), steps.gwg),
        "gwg(flips=2)": Kernel(lw.GWG(2), steps.gwg),
        "locally_balanced": Kernel(lw.LocallyBalanced(), steps.locally_balanced),
        "locally balanced, Barker": Kernel(lw.LocallyBalanced(), variants.locally_balanced_barker),
        "dmala(step_size=0.2)": Kernel(lw.DMALA(0.2), steps.dmala),
        "dmala(step_size=0.5)": Kernel(lw.DMALA(0.5), steps.dmala),
        "dmala(step_size=0.2), exact differences": Kernel(
            lw.DMALA(0.2), variants.dmala_exact_differences
        ),
        "dmala(step_size=0.5), exact differences": Kernel(
            lw.DMALA(0.5), variants.dmala_exact_differences
        ),
        "dlmc(step_size=0.5)": Kernel(lw.DLMC(0.5), steps.dlmc),
        "pafs(length=2)": Kernel(lw.PAFS(2), steps.pafs),
        "block_gibbs": Kernel(lw.BlockGibbs(), blocks.block_gibbs),
        "hamming_ball": Kernel(lw.HammingBall(3, 1, "random"), blocks.hamming_ball),
        "swendsen_wang": Kernel(lw.SwendsenWang(), blocks.swendsen_wang),
    }


def kernels_for(target: Target) -> dict[str, Kernel]:
    """The kernels that support the target."""
    supported = {}
    for name, kernel in kernels().items():
        if not why_unsupported(kernel.sampler, target.model):
            supported[name] = kernel
    return supported


def efficiency_targets(sites: int) -> dict[str, Target]:
    pairs = [[i, j] for i in range(sites) for j in range(i)]
    rng = np.random.default_rng(sites)
    weights = (rng.standard_normal(len(pairs)) / np.sqrt(sites)).tolist()
    field = (0.2 * rng.standard_normal(sites)).tolist()
    ring = [[i, (i + 1) % sites] for i in range(sites)]
    return {
        "ring, coupling 0.5": Target(lw.Graph(ring, 0.5)),
        "ring, coupling 0.9": Target(lw.Graph(ring, 0.9)),
        "spin glass with a field": Target(lw.Graph(pairs, weights, field)),
        "RBM with three hidden units": Target(_coupled_rbm(sites)),
    }


def _coupled_rbm(sites: int) -> lw.RBM:
    """An RBM whose hidden units couple several sites at once, so gradients are not exact."""
    model = lw.RBM(sites, 3)
    rng = torch.Generator().manual_seed(0)
    model.weight.copy_(2 * torch.randn(sites, 3, generator=rng))
    model.visible_bias.copy_(-model.weight.sum(1) / 2)
    return model


def measure_efficiency(matrix: Matrix, law: Matrix, functions: Matrix) -> Efficiency:
    """The efficiency of a kernel for each column of `functions` `[states, n]`."""
    modulus = np.sort(np.abs(np.linalg.eigvals(matrix)))[::-1]
    classes = int((np.abs(np.linalg.eigvals(matrix) - 1) < 1e-9).sum())
    system = np.eye(len(law)) - matrix + law
    centred = functions - law @ functions
    if np.linalg.svd(system, compute_uv=False)[-1] < SINGULAR:
        return Efficiency(np.full(functions.shape[1], np.inf), 0.0, classes)
    solved = np.linalg.solve(system, centred)
    variance = law @ centred**2
    inefficiency = (2 * law @ (centred * solved) - variance) / variance
    return Efficiency(inefficiency, float(1 - modulus[1]), classes)


def efficiency_table(sites: int) -> pd.DataFrame:
    """A row a target and kernel."""
    rows = []
    for name, target in efficiency_targets(sites).items():
        energy = target.log_prob[:, None]
        total = (2 * target.z - 1).sum(1, keepdims=True)
        functions = np.concatenate((energy, total, target.z), 1)
        for label, kernel in kernels_for(target).items():
            law = kernel.law(kernel.sampler, target)
            matrix = law.after[-1]
            efficiency = measure_efficiency(matrix, target.law, functions)
            energy_steps, total_steps, *site_steps = efficiency.inefficiency.tolist()
            rows.append(
                {
                    "target": name,
                    "sampler": label,
                    "energy": energy_steps,
                    "sum of spins": total_steps,
                    "worst site": max(site_steps),
                    "spectral gap": efficiency.gap,
                    "closed classes": efficiency.classes,
                }
            )
    return pd.DataFrame(rows)


def with_table(page: str, frame: pd.DataFrame) -> str:
    """The page with the table of `frame`."""
    shown = frame.drop(columns="target").replace(np.inf, "infinite")
    parts = []
    for name in frame["target"].unique():
        rows = shown[frame["target"] == name]
        heading = name[0].upper() + name[1:]
        parts.append(f"### {heading}\n\n{rows.to_markdown(index=False, floatfmt='.3g')}")
    return replace_block(page, "efficiency", "\n\n".join(parts))


def draw_figure(frame: pd.DataFrame, file: Path) -> None:
    """Steps for one independent draw of the worst site, a panel a target."""
    names, samplers = list(frame["target"].unique()), list(kernels())[::-1]
    figure, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names) + 2, 4.2), sharey=True)
    for axis, name in zip(axes, names, strict=True):
        steps_by_sampler = frame[frame["target"] == name].set_index("sampler")["worst site"]
        shown = [sampler for sampler in samplers if sampler in steps_by_sampler]
        places = [samplers.index(sampler) for sampler in shown]
        axis.hlines(places, 0.5, steps_by_sampler[shown], color="0.8", lw=1)
        axis.plot(steps_by_sampler[shown], places, "o", color="#1f4e79", ms=5)
        axis.set(title=name, xscale="log", xlim=(0.5, 400))
        axis.title.set_fontsize(9)
        axis.axvline(1, color="0.5", lw=0.8, ls=":")
    axes[0].set_yticks(range(len(samplers)), samplers, fontsize=8)
    figure.supxlabel("steps for one independent draw of the worst site", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sites", type=int, default=SITES, help="2^sites states; 6 takes seconds")
    parser.add_argument("--out", type=Path, default=Path("build/efficiency"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    frame = efficiency_table(arguments.sites)
    if arguments.sites == SITES:
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), frame), encoding="utf-8")
        draw_figure(frame, PAGE.with_suffix(".png"))
    frame.to_csv(arguments.out / "exact_efficiency.csv", index=False, float_format="%.6g")
    draw_figure(frame, arguments.out / "exact_efficiency.svg")
    print(frame.to_string(index=False, float_format="%.4g"))


if __name__ == "__main__":
    main()
