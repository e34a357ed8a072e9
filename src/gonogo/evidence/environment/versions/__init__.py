"""Files that tell versions, one kind a module."""
