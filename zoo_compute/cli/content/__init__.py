"""Commands for datasets and models in storage."""
