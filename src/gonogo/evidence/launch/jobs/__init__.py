"""Jobs of various queues as launches: each queue's file format, and the workload that all are converted to."""
