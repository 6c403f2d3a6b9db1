"""Torch-Pruning: Fang et al., DepGraph: Towards Any Structural Pruning (arXiv 2301.12900).

Of ``pip install torch-pruning`` the importance of its LLM example, the mean squared norm over a group's
weights, each layer to the same width; its dependency graph starts from the read-ins alone, so that heads and
hidden size stay.
"""

from torch import nn


def group_magnitude(model, batches, neurons):
    import torch_pruning as tp

    roots = {linear for layer in model.model.layers for linear in (layer.mlp.gate_proj, layer.mlp.up_proj)}
    model.requires_grad_(True)  # the graph is traced by autograd
    pruner = tp.pruner.MetaPruner(
        model,
        example_inputs=batches[0].ids[:1, :8],
        forward_fn=lambda model, ids: model(input_ids=ids, use_cache=False).logits,
        importance=tp.importance.GroupMagnitudeImportance(p=2, group_reduction="mean"),
        global_pruning=False,
        pruning_ratio=1 - neurons / model.config.intermediate_size,
        ignored_layers=[m for m in model.modules() if not list(m.children()) and m not in roots],
        root_module_types=[nn.Linear],
    )
    pruner.step()
