"""Text infilling: a masked language model as a target over the words at a sentence's blanks.

R. Zhang, X. Liu and Q. Liu (ICML 2022), Section 7.5 and Appendix I.6.

    U(theta) = sum_i log f(theta_i | X with position i masked)

    paper            here
    theta            x, one-hot `[chains, sites, values]`: the words at the blanks
    X                the sentence, its blanks filled with theta
    f(. | X)         `MaskedLM.log_probs`, normalised over the vocabulary

For each blank of each chain, the network sees one sequence with that blank masked; all sequences
form a batch. Words enter as x times the embedding matrix E, so that one backward pass gives the
gradient for the whole vocabulary: log f at the site itself, plus (dU / d embedding) E' from the
contexts of the other blanks.

U is a pseudo-log-likelihood. Its conditional at a site is not f, because theta_i is also part of
the contexts of the other blanks.
"""

from collections.abc import Callable, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from latticework.models.abilities import FillsBlanks
from latticework.models.base import Cache, EnergyModel
from latticework.models.domains import Categorical
from latticework.models.masked_lm import MASK, MaskedLM

GibbsLaw = Literal["masked", "exact"]
MAX_SEQUENCES = 100_000  # sequences that a step may evaluate for exact conditionals


class TextInfilling(EnergyModel, FillsBlanks):
    """The words at the blanks of one sentence; `with_blanks` makes the target of another sentence.

    Args:
        language: the masked language model.
        text: the sentence with "[MASK]" at its blanks, or its words.
        mask_each: False masks nothing: U = sum_i log f(theta_i | X), one sequence per chain. The
            network then sees the word that it predicts, and BERT mostly copies it.
        gibbs: the law from which Gibbs resamples a site. "masked" is f(. | X with the site masked),
            with one sequence per chain, as in Wang and Cho (2019). Its stationary law is not
            exp(U), and depends on the order of the sites. "exact" is the conditional of exp(U),
            which evaluates every word at the site.
        batch: number of sequences that the network processes at once.

    Raises ValueError if the text has no blank.
    """

    places: Tensor
    fixed: Tensor

    def __init__(
        self,
        language: MaskedLM,
        text: str | Sequence[str],
        mask_each: bool = True,
        gibbs: GibbsLaw = "masked",
        batch: int = 128,
    ) -> None:
        super().__init__()
        if gibbs not in get_args(GibbsLaw):
            raise ValueError(f"gibbs must be masked or exact, got {gibbs!r}")
        words = text.replace(MASK, f" {MASK} ").split() if isinstance(text, str) else list(text)
        if MASK not in words:
            raise ValueError(f"the text must hold one {MASK} or more, got {' '.join(words)!r}")
        self.language, self.mask_each = language, mask_each
        self.gibbs, self.batch = gibbs, batch
        ids, places = language.tokens(words)
        self.register_buffer("places", places)  # [sites] of the sequence
        self.register_buffer("fixed", language.embed(ids))  # [length, width], masks at the blanks
        self.domain = Categorical(len(places), len(language.values))

    def with_blanks(self, sentence: Sequence[str], positions: Sequence[int]) -> "TextInfilling":
        """The target of the blanks at `positions` (indices of words) of `sentence`."""
        blanks = set(positions)
        words = [MASK if i in blanks else word for i, word in enumerate(sentence)]
        settings = (self.mask_each, self.gibbs, self.batch)
        return TextInfilling(self.language, words, *settings)

    def forward(self, x: Tensor) -> Tensor:
        parts = [
            (part * self.log_probs(part)).sum((-2, -1)) for part in self._parts(x, self.mask_each)
        ]
        return torch.cat(parts)

    def log_prob_and_grad(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Computed in parts, so that only the graph of one part is in memory."""
        parts = [
            super(TextInfilling, self).log_prob_and_grad(part)
            for part in self._parts(x, self.mask_each)
        ]
        log_prob, grad = zip(*parts, strict=True)
        return torch.cat(log_prob), torch.cat(grad)

    def log_probs(self, x: Tensor) -> Tensor:
        """Log f of every word at every blank, in the target's context: `[chains, sites, values]`.

        The context masks the blank, or nothing if `mask_each` is False.
        """
        if self.mask_each:
            return self._masked_logits(x)
        filled = x @ self.language.embeddings
        return self._ask(filled, lambda hidden: hidden.index_select(1, self.places))

    def _masked_logits(self, x: Tensor) -> Tensor:
        chains, sites = x.shape[:2]
        filled = x @ self.language.embeddings  # [chains, sites, width]
        itself = torch.eye(sites, dtype=torch.bool, device=x.device).unsqueeze(-1)
        mask = self.fixed.index_select(0, self.places)
        copies = torch.where(itself, mask, filled.unsqueeze(1))  # [chains, copies, sites, width]
        places = self.places.repeat(chains).view(-1, 1, 1)
        return self._ask(copies.flatten(0, 1), lambda hidden: _at(hidden, places)).view_as(x)

    def log_likelihood(self, x: Tensor) -> Tensor:
        """U with each position masked, `[chains]`, even if `mask_each` is False."""
        return torch.cat(
            [(p * self._masked_logits(p)).sum((-2, -1)) for p in self._parts(x, masked=True)]
        )

    def blank_log_probs(self) -> Tensor:
        """Log f of every word at every blank, with all blanks masked: `[sites, values]`."""
        mask = self.fixed.index_select(0, self.places).unsqueeze(0)
        return self._ask(mask, lambda hidden: hidden.index_select(1, self.places)).squeeze(0)

    def site_log_probs(self, x: Tensor, cache: Cache, site: Tensor) -> Tensor:
        """Log of the law from which Gibbs draws `site` `[1]`, `[chains, values]` (see `gibbs`)."""
        if self.gibbs == "exact":
            self._require_few(len(x) * len(self.language.values))
            return super().site_log_probs(x, cache, site)
        itself = (torch.arange(self.domain.dim, device=x.device) == site).unsqueeze(-1)
        mask = self.fixed.index_select(0, self.places)
        place = self.places.index_select(0, site)
        parts = [
            self._ask(
                torch.where(itself, mask, part @ self.language.embeddings),
                lambda hidden: hidden.index_select(1, place),
            )
            for part in x.split(self.batch)
        ]
        return torch.cat(parts).squeeze(1)

    def block_log_probs(self, x: Tensor, cache: Cache, sites: Tensor, patterns: Tensor) -> Tensor:
        self._require_few(len(x) * patterns.shape[1])
        return super().block_log_probs(x, cache, sites, patterns)

    def differences(self, x: Tensor, cache: Cache, sites: Tensor) -> Tensor:
        self._require_few(len(x) * len(sites) * len(self.language.values))
        return super().differences(x, cache, sites)

    def words(self, x: Tensor) -> list[list[str]]:
        """The words at each chain's blanks. A piece `##ing` continues the word before it."""
        return self.language.words(x.argmax(-1))

    def _parts(self, x: Tensor, masked: bool) -> tuple[Tensor, ...]:
        """Split the chains, so that the sequences of each part form a batch."""
        return x.split(max(1, self.batch // (self.domain.dim if masked else 1)))

    def _ask(self, filled: Tensor, pick: Callable[[Tensor], Tensor]) -> Tensor:
        """Log-probabilities for the sentence with embeddings `filled` `[n, sites, width]`."""
        embedded = self.fixed.expand(len(filled), -1, -1).index_copy(1, self.places, filled)
        return self.language.log_probs(embedded, pick)

    def _require_few(self, states: int) -> None:
        sequences = states * (self.domain.dim if self.mask_each else 1)
        if sequences > MAX_SEQUENCES:
            raise ValueError(
                f"exact conditionals would take {sequences:,} sequences per step, at most "
                f"{MAX_SEQUENCES:,} are allowed; use sampler=gwg, dula or dmala, gibbs=masked "
                "with sampler=gibbs, or restrict the vocabulary (language.words)"
            )


def _at(hidden: Tensor, places: Tensor) -> Tensor:
    """The hidden state at each place, `[n, length, width], [n, 1, 1] -> [n, 1, width]`."""
    return hidden.gather(1, places.expand(-1, -1, hidden.shape[-1]))
