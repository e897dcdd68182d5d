"""Compression of pseudo-gradients."""
