"""What the kernel's world can't know: files that are made, weights without bytes, the answers of hubs and trackers."""
