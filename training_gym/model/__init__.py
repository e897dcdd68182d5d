"""Models: parameter layout (no torch), network, text generation."""
