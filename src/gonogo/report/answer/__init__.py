"""The top of a report: the verdict and its subject, the reasons, its figures, and the next command."""
