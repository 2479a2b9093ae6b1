"""Graphs whose couplings are equal up to their signs, as `compiled.bits.columns` reads them."""

from functools import lru_cache

import numpy as np

from latticework.models.forms import GraphForm
from latticework.samplers.compiled.bits.columns import (
    BLOCK_CHAINS,
    GraphColumns,
    SignedSites,
    pack_graph,
)
from latticework.samplers.compiled.bits.decisions import STORED_PLANES, count_terms
from latticework.samplers.compiled.bits.sweep_chances import chances_of
from latticework.samplers.compiled.bits.vectors import BYTES, WORDS
from latticework.samplers.compiled.compiled_sampler import SameObjects

MAX_DEGREE = 7  # three bits hold their number
MAX_PLANE_BYTES = 2**27


@lru_cache(maxsize=16)
def find_columns(of: SameObjects, metropolis: bool, chains: int) -> GraphColumns | None:
    """The columns for groups of so many chains on these graphs, or None if they do not serve.

    The graphs differ by a factor of all weights and biases only. Couplings must be equal up to
    their signs, and a site must have at most seven of them.
    """
    groups = len(of.objects)
    if not _is_signed(of.objects[-1]):
        return None
    sites = signed_sites(of.objects)
    terms = count_terms(sites.near.shape[1]) * (2 if metropolis else 1)
    blocks = 1 if groups == 1 else -(-groups * chains // BLOCK_CHAINS)
    rows = min(len(sites.odds[0]), len(sites.kind) // WORDS + len(np.unique(sites.colours)))
    if blocks * rows * STORED_PLANES * terms * BYTES > MAX_PLANE_BYTES:
        return None
    return pack_graph(sites, chances_of(sites.odds, metropolis), chains)


def _is_signed(form: GraphForm) -> bool:
    strength = np.abs(form.slope)
    degrees = np.diff(form.starts)
    if not len(strength):
        return True
    return bool((strength == strength[0]).all() and strength[0] > 0) and degrees.max() <= MAX_DEGREE


def signed_sites(forms: tuple[GraphForm, ...]) -> SignedSites:
    """The sites of graphs that differ by a factor of all weights and biases only.

    A neighbour at 1 by a negative slope adds to the log-odds what one at 0 by its opposite would,
    and a constant.
    """
    form = forms[-1]  # the first one's weights may be 0
    degrees = np.diff(form.starts)
    sites, degree = len(degrees), int(degrees.max(initial=0))
    row = np.repeat(np.arange(sites), degrees)
    slot = np.arange(len(form.neighbours)) - form.starts[row]
    near, negative = np.full((sites, degree), -1, np.int32), np.zeros((sites, degree), bool)
    near[row, slot], negative[row, slot] = form.neighbours, form.slope < 0
    colours = np.empty(sites, np.int32)
    colours[form.order] = np.repeat(np.arange(len(form.classes) - 1), np.diff(form.classes))
    strengths = [float(np.abs(each.slope).max(initial=0)) for each in forms]
    pairs = zip(forms, strengths, strict=True)
    low = np.stack([each.offset - strength * negative.sum(1) for each, strength in pairs])
    kinds, kind = np.unique(low, axis=1, return_inverse=True)
    numbers = np.arange(degree + 1)
    odds = [
        alone[:, None] + strength * numbers
        for alone, strength in zip(kinds, strengths, strict=True)
    ]
    return SignedSites(near, negative, colours, kind.ravel().astype(np.int64), odds)
