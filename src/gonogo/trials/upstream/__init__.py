"""Other releases of the package that fails, fetched as archives and compared by symbol; nothing of them is ever run."""
