"""Every method of a model against another model of its target, such as its function alone."""

import torch
from torch import Generator, Tensor

import latticework as lw


def agree(
    model: lw.EnergyModel,
    plain: lw.EnergyModel,
    x: Tensor,
    tolerance: float = 1e-6,
    gradient: bool = True,
) -> None:
    """All methods of `model` at the states `x` are those of `plain`, if asked also gradients.

    Blocks have up to four sites, in any order. Log-probabilities of a block count up to a constant
    a chain, and values that a site does not have do not count.
    """

    def close(found, expected):
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)

    close(model.log_prob(x), plain.log_prob(x))
    for found in (model.gradient(x), model.log_prob_and_grad(x)[1]) if gradient else ():
        assert not found.requires_grad
        close(found, plain.gradient(x))
    order = torch.randperm(model.domain.movers, generator=Generator().manual_seed(1)).to(x.device)
    blocks = {len(block): block for block in (order[:1], order[:2], order[:4])}.values()
    for sites in (*blocks, order):
        found = _possible(model, model.differences(x, model.cache(x), sites), sites)
        close(found, _possible(model, plain.differences(x, (), sites), sites))
        if isinstance(model.domain, lw.Binary):
            odds = plain.log_odds(x, (), sites)
            close(model.log_odds(x, model.cache(x), sites), odds)
            close(model.conditional(x, model.cache(x), sites)[0].to(odds), odds)  # or in float64
    _blocks_agree(model, plain, x, blocks, close)
    if gradient:
        _moves_agree(model, plain, x, blocks, close)


def _possible(model, values: Tensor, sites: Tensor) -> Tensor:
    """The entries `[chains, sites, values]` of values that the sites have."""
    allowed = model.domain.allowed_values(sites)
    return values if allowed is None else values[:, allowed]


def _blocks_agree(model, plain, x, blocks, close) -> None:
    """With the same patterns for all chains, and with patterns of their own."""
    for sites in blocks:
        patterns, _ = model.domain.block(x, sites)
        chosen = torch.randint(patterns.shape[1], (len(x), 3), generator=Generator().manual_seed(1))
        own = patterns.expand(len(x), *patterns.shape[1:])[torch.arange(len(x))[:, None], chosen]
        for each in (patterns, own):
            found = model.block_log_probs(x, model.cache(x), sites, each)
            expected = plain.block_log_probs(x, (), sites, each)
            close(found - found[:, :1], expected - expected[:, :1])
        if len(sites) == 1:
            found = _possible(model, model.site_log_probs(x, model.cache(x), sites)[:, None], sites)
            expected = _possible(model, plain.site_log_probs(x, (), sites)[:, None], sites)
            close(found - found[:, :1], expected - expected[:, :1])


def _moves_agree(model, plain, x, blocks, close) -> None:
    """Caches after a block changed, and evaluation after flips: a site drawn twice flips once."""
    domain, rng = model.domain, Generator().manual_seed(1)
    y = domain.uniform(len(x), rng).to(x)
    for sites in blocks:
        after = x.clone()
        after[:, sites] = y[:, sites]
        close(
            list(model.update_cache(model.cache(x), x, sites, y[:, sites])),
            list(model.cache(after)),
        )
    for flips in (1, 3) if isinstance(domain, lw.Binary) else (1,):
        index = torch.randint(domain.movers * domain.moves, (len(x), flips), generator=rng)
        index[0] = index[0, 0]
        index = index.to(x.device)
        y = domain.move_one(x, index)
        log_prob, grad, cache = model.evaluate_flipped(model.cache(x), x, y, index)
        close(log_prob, plain.log_prob(y))
        close(grad, plain.gradient(y))
        close(list(cache), list(model.evaluate_with_cache(y)[2]))
