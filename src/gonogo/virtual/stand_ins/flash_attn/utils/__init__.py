"""What flash-attn has beside attention."""
