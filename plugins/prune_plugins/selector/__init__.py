"""The selectors of the default set, one a file."""
