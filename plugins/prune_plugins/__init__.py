"""The default plugin set: one module a plugin."""

PLUGINS: tuple[str, ...] = (
    "prune_plugins.selector.importance",
    "prune_plugins.selector.greedy",
    "prune_plugins.selector.obs",
    "prune_plugins.selector.dtgma",
    "prune_plugins.allocator.uniform",
    "prune_plugins.allocator.curve",
    "prune_plugins.allocator.abs",
    "prune_plugins.allocator.fisher",
    "prune_plugins.allocator.sensitivity",
    "prune_plugins.heal.none",
    "prune_plugins.codec.floats",
    "prune_plugins.codec.q8",
    "prune_plugins.teacher.local",
    "prune_plugins.observer.progress",
    "prune_plugins.observer.journal",
    "prune_plugins.observer.metrics",
    "prune_plugins.observer.summary",
)
