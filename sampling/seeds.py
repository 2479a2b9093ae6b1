"""Seeds of separate streams of random numbers, one for each purpose."""

import hashlib


def derive_seed(seed: int, purpose: str) -> int:
    """A seed that only `seed` and the purpose determine."""
    digest = hashlib.sha256(f"{seed}/{purpose}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1
