"""The facade of ``torch.cuda``."""
