"""Train a restricted Boltzmann machine by contrastive divergence, as a shared artifact.

G. Hinton, "Training Products of Experts by Minimizing Contrastive Divergence", 2002. Negative
samples come from k block-Gibbs steps that start at the training batch; the gradient is that of
mean log p(data) - mean log p(negatives).
"""

from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam

from data.base import Dataset
from experiments.artifacts import artifact, fingerprint
from experiments.context import Run
from models.base import EnergyModel
from samplers.base import Sampler


def pretrained(
    *,
    model: EnergyModel,
    data: Dataset | None,
    run: Run,
    sampler: Sampler,
    epochs: float,
    batch: int,
    learning_rate: float,
) -> EnergyModel:
    """`model` trained on `data` for `epochs` epochs of updates, loaded where it was made before.

    `sampler` makes the negative samples (BlockGibbs(steps=k) is CD-k). An epoch counts the images
    of the set that was asked for, so a substitute is trained for as many updates.
    """
    if data is None:
        raise ValueError("training needs a data set; give one, such as data=mnist")
    updates = max(1, round(epochs * data.epoch_size / batch))
    spec: dict[str, Any] = {
        "model": fingerprint(model),
        "data": data.fingerprint,
        "sampler": repr(sampler),
        "updates": updates,
        "batch": batch,
        "learning_rate": learning_rate,
        "seed": run.model_seed,
    }

    def make() -> dict[str, Tensor]:
        train(model, data, run, sampler, updates=updates, batch=batch, learning_rate=learning_rate)
        return model.state_dict()

    model.load_state_dict(artifact(run, "rbm", spec, make))
    return model


def train(
    model: EnergyModel,
    data: Dataset,
    run: Run,
    sampler: Sampler,
    *,
    updates: int,
    batch: int,
    learning_rate: float,
) -> None:
    """Contrastive divergence with Adam, in place."""
    rng, shuffle = run.shared_rng("training"), run.shared_rng("batches", device="cpu")
    model.start_from_data(data.mean.to(run.device))  # type: ignore[operator]
    model.requires_grad_(True)
    optimiser = Adam(model.parameters(), lr=learning_rate)
    order = torch.empty(0, dtype=torch.long)
    for _ in run.progress(range(updates), "training"):
        if len(order) < batch:  # a new pass, in a new order
            order = torch.randperm(len(data.train), generator=shuffle)
        rows, order = order[:batch], order[batch:]
        positive = data.batch(rows, shuffle).to(run.device)
        with torch.no_grad():
            state, _ = sampler.step(sampler.init(positive, model), model, rng)
        loss = model(state.x).mean() - model(positive).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
    model.requires_grad_(False)
