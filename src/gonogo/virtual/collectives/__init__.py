"""``torch.distributed`` without other processes: process groups and collectives, and what ranks call and send."""
