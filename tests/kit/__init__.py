"""Real engines, fakes and builders for the tests."""

import os

# Before torch and NumPy load: threads that spin for a tiny model take the cores from the engines.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"})
