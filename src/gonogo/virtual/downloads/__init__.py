"""What libraries download by themselves at first use, generated instead: a rehearsal has no network."""
