"""Other sources on a failure: other releases of a package, and a language model."""
