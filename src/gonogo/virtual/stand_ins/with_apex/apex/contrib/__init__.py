"""Of this, the layer norm."""
