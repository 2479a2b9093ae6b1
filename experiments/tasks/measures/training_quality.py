"""How well an RBM was trained: its log-likelihood by AIS, and what its own Gibbs samples are like.

The indirect sampling likelihood of rates-FPCD samples rewards models that this sampler repairs. A
model may score well by it although its own samples are one image. Breuleux et al. (2011, Section 1)
condition their claims on a model that "was trained properly". These numbers say whether it was.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from latticework.data.base import Dataset, fixed_subset
from latticework.experiments.tasks.measures.sampling_likelihood import commonest_state
from latticework.models.base import AnnealedModel, EnergyModel
from latticework.samplers.base import Sampler, require_count
from latticework.sampling.annealing import anneal, estimate_log_normaliser, sigmoid
from latticework.sampling.learning.held_out import log_odds, mean_log_likelihood
from latticework.sampling.starts import data_mean


@dataclass(frozen=True)
class TrainingQuality:
    """Examines an RBM after its training.

    Args:
        kernel: one step of it is a block-Gibbs step, `BlockGibbs(steps=1)`.
        path: builds the path of AIS from the model and the log-odds of independent sites.
            On that of `ScaledRBM` every target is an RBM (Salakhutdinov and Murray 2008).
        chains: AIS chains in each direction.
        betas: steps of each of them.
        burn_in: steps from training rows before chains go back.
        gibbs_chains: chains of block Gibbs from the data mean.
        gibbs_steps: steps of each of them.
        gibbs_samples: samples that they keep together, evenly spaced in time.

    Raises:
        ValueError: if a number is not positive, or the samples are not whole rounds of the chains.
    """

    kernel: Sampler
    path: Callable[..., AnnealedModel]
    chains: int = 100
    betas: int = 5000
    burn_in: int = 500
    gibbs_chains: int = 20
    gibbs_steps: int = 20_000
    gibbs_samples: int = 20_000

    def __post_init__(self) -> None:
        counts = vars(self).copy()
        del counts["kernel"], counts["path"]
        require_count(**counts)
        rounds, remainder = divmod(self.gibbs_samples, self.gibbs_chains)
        if remainder or self.gibbs_steps % rounds:
            raise ValueError(
                "gibbs_samples must be a multiple of gibbs_chains, and gibbs_steps one of their "
                f"ratio, got {self.gibbs_samples}, {self.gibbs_chains} and {self.gibbs_steps}"
            )

    def measure(
        self, model: EnergyModel, data: Dataset, points: int | None, rng: Generator
    ) -> dict[str, float]:
        """The numbers of `model`; log-likelihoods are means over validation rows, in nats.

        `ais_forward` is by chains towards the model, `ais_back` by chains from training rows. Each
        is too high where its chains miss mass of the model: the first where they do not reach it,
        the second where rows are unlike the model's draws. So the lower one counts.
        `commonest_share` is the share of the most frequent state among the Gibbs samples.
        `pixel_error` is the share of pixels that are on in them, less that of the training data.
        """
        rows = fixed_subset(data.valid, points)
        forward, back = self._estimate_log_z(model, data, rng)
        samples = self.draw_gibbs(model, data, rng)
        return {
            "ais_forward": mean_log_likelihood(model, rows, forward)["mean"],
            "ais_back": mean_log_likelihood(model, rows, back)["mean"],
            "commonest_share": commonest_state(samples)["commonest_share"],
            "pixel_error": float(samples.float().mean()) - float(data.mean.mean()),
        }

    def _estimate_log_z(
        self, model: EnergyModel, data: Dataset, rng: Generator
    ) -> tuple[float, float]:
        """Log Z by chains towards the model, and by chains from training rows."""
        path = self.path(model, log_odds(data)).to(rng.device)
        betas = sigmoid(self.betas).to(rng.device)
        base = float(path.log_z_start())
        forward = anneal(self.kernel, path, path.draw(self.chains, rng), betas, rng)
        index = torch.randint(len(data.train), (self.chains,), generator=rng, device=rng.device)
        rows = data.batch(index.cpu(), Generator().manual_seed(0)).to(rng.device)
        back = torch.cat((betas.new_ones(self.burn_in), betas.flip(0)))
        reverse = anneal(self.kernel, path, rows, back, rng)
        return (
            base + estimate_log_normaliser(forward.log_weight, rng).value,
            base - estimate_log_normaliser(reverse.log_weight, rng).value,
        )

    @torch.no_grad()
    def draw_gibbs(self, model: EnergyModel, data: Dataset, rng: Generator) -> Tensor:
        """`gibbs_samples` samples of the kernel from the data mean, uint8 `[samples, sites]`."""
        state = self.kernel.init(data_mean(model, self.gibbs_chains, rng, data), model)
        rounds = self.gibbs_samples // self.gibbs_chains
        samples = []
        for _ in range(rounds):
            for _ in range(self.gibbs_steps // rounds):
                state, _ = self.kernel.step(state, model, rng)
            samples.append(state.x.to(torch.uint8))
        return torch.cat(samples)
