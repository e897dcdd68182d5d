"""The training library: what a job is, how a unit of it is trained, replayed, compressed and joined.

Importing this package does not import torch; only ``models.decoder``, ``models.generate``, ``determinism``,
``environment``, ``distributed.unit`` and ``evaluation.loss`` do.
"""
