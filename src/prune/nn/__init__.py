"""Torch code shared by stages and plugins; it knows models and matrices, never the configuration."""
