"""The provider's and the verifier's node."""
