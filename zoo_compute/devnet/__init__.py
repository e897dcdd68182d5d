"""The whole network on one machine: real engines, small thresholds."""
