"""The facts of a failure in a log: exceptions, messages taken apart, frames with their owners, collectives."""
