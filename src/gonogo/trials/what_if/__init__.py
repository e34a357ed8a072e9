"""The run with other settings: a copy in which they are changed is rehearsed, as it is or beside the run itself."""
