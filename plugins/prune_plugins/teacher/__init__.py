"""Teachers of the default set, one file each."""
