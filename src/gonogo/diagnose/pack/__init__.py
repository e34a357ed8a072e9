"""The evidence of a failure, for a reader who has not seen the log: a person, a coding agent, a language model."""
