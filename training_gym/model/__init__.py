"""Model definitions: the parameter layout (no torch), the network, text generation."""
