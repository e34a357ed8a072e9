"""Other releases of the failing package, downloaded and compared by symbol; their code is never executed."""
