"""The default plugin set: one module a plugin."""

PLUGINS: tuple[str, ...] = ()
