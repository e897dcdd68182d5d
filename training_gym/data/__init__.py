"""Datasets of byte tokens: the manifest, the splits and the order in which samples are drawn."""
