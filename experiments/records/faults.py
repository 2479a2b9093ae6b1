"""The error of what cannot be read."""


class DamagedError(ValueError):
    """A record or a bundle cannot be read; the message says which, why, and what to do."""
