"""What others say of a failure: the other releases of a package, and a language model."""
