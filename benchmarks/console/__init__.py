"""Console: time of pages on a large market, and their screenshots."""
