"""The codecs of the default set, one a file."""
