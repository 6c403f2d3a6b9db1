"""The allocators of the default set, one a file."""
