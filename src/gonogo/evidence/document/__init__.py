"""Files with places: JSON and YAML read tolerantly, and changed without touching their other bytes."""
