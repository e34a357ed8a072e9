"""``torch.distributed`` without other processes: process groups, collectives, what the ranks call and send."""
