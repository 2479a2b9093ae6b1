"""Errors that readers of records raise, who import no Hydra."""


class DamagedError(ValueError):
    """A record or a bundle cannot be read; the message says which, why, and what to do."""
