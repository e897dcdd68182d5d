"""Units of work of a job that many untrusted workers train together."""
