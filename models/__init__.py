"""Targets."""

from latticework.models import conditioned  # noqa: F401 - sets what `condition_on` gives
