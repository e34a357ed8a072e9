"""Facts about a failure in a log: exceptions, parsed messages, frames with their packages, collectives."""
