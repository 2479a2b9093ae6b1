"""Made-up records that make each claim of the ledger true, and false, by paper."""

from made_records import langevin_learning, langevin_sampling, later, rates, rates_training

PARTS = (langevin_sampling, langevin_learning, rates, rates_training, later)
MADE = {name: made for part in PARTS for name, made in part.MADE.items()}
