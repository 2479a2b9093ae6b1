"""The laws of samplers' steps, written from the papers and by enumeration, not by our kernels."""
