"""JSON and YAML files, read tolerantly with the places of values, and edited without changing other bytes."""
