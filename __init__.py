"""Samplers for discrete distributions, and the experiments that compare them."""
