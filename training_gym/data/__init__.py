"""Datasets of byte tokens: manifest, splits and sample order."""
