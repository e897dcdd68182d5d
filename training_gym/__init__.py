"""Training library: specifications, training, replay, compression and aggregation.

Importing this package does not import torch. Only ``model.decoder``, ``model.generate``, ``runtime.determinism``,
``optimise``, ``units.environment_class``, ``units.unit``, ``verify.adversaries``, ``evaluate.loss`` and
``hardware.prover`` do.
"""
