"""What a dying run leaves beside its logs: records of its collectives and of its ranks' stacks."""
