"""SliceGPT: Ashkboos et al., Compress Large Language Models by Deleting Rows and Columns (arXiv 2401.15024).

RMSNorm weights go into the matrices behind them; before each norm the residual stream is rotated to its
principal axes (of the calibration tokens, as the sliced layers before produce them) and cut to the
first d; a d x d matrix carries the shortcut from one basis to the next. d is the largest at which all
parameters together do not exceed those of a model whose FFNs were cut to ``neurons``.
"""

import types

import torch
from torch import nn

from .common import Walk, frozen


def slicegpt(model, batches, neurons):
    """Embedding and head are rotated differently: those of a tied model become two, and both count."""
    rotate_and_slice(model, batches, _dimension(model, neurons, 2))


def slicegpt_blocks(model, batches, neurons):
    """Without counting the second vocabulary matrix of a tied model: what the blocks are worth."""
    rotate_and_slice(model, batches, _dimension(model, neurons, 1 if model.config.tie_word_embeddings else 2))


@torch.no_grad()
def rotate_and_slice(model, batches, d):
    """At d = the hidden size nothing is lost."""
    _fuse_norms(model)
    walk = Walk(model, batches)
    axes = _axes(walk.real(walk.states))[:, :d]
    model.model.embed_tokens.weight = frozen(model.model.embed_tokens.weight @ axes)
    walk.states = [state @ axes for state in walk.states]
    for layer in model.model.layers:
        axes = _slice_layer(walk, layer, axes)
    model.lm_head.weight = frozen(model.lm_head.weight @ axes)


class _Norm(nn.Module):
    """RMSNorm without weights; the mean is over the original hidden size."""

    def __init__(self, norm):
        super().__init__()
        self.size, self.eps = len(norm.weight), norm.variance_epsilon

    def forward(self, x):
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) / self.size + self.eps)


def _slice_layer(walk, layer, axes):
    """Slice one layer, whose input has the given axes [D, d]; its output's axes."""
    attention, mlp = layer.self_attn, layer.mlp
    _read(axes, attention.q_proj, attention.k_proj, attention.v_proj)
    layer.attention_shortcut, layer.mlp_shortcut = frozen(axes.T), None
    layer.forward = types.MethodType(_forward, layer)
    seen = []
    walk.through(layer, layer.post_attention_layernorm, seen.append)
    middle = _axes(seen)[:, : axes.shape[1]]
    layer.attention_shortcut = frozen(axes.T @ middle)
    _write(middle, attention.o_proj)
    _read(middle, mlp.gate_proj, mlp.up_proj)
    layer.mlp_shortcut = frozen(middle.T)
    outputs = walk.through(layer)
    after = _axes(walk.real(outputs))[:, : axes.shape[1]]
    layer.mlp_shortcut = frozen(middle.T @ after)
    _write(after, mlp.down_proj)
    walk.states = [output @ after for output in outputs]
    return after


def _forward(layer, hidden_states, **arguments):
    """A decoder layer with its shortcuts rotated."""
    attended, _ = layer.self_attn(hidden_states=layer.input_layernorm(hidden_states), **arguments)
    middle = hidden_states @ layer.attention_shortcut + attended
    shortcut = middle if layer.mlp_shortcut is None else middle @ layer.mlp_shortcut
    return shortcut + layer.mlp(layer.post_attention_layernorm(middle))


def _fuse_norms(model):
    model.lm_head.weight = frozen(model.lm_head.weight)  # no longer tied
    for layer in model.model.layers:
        attention, mlp = layer.self_attn, layer.mlp
        _scale(layer.input_layernorm, attention.q_proj, attention.k_proj, attention.v_proj)
        _scale(layer.post_attention_layernorm, mlp.gate_proj, mlp.up_proj)
        layer.input_layernorm = _Norm(layer.input_layernorm)
        layer.post_attention_layernorm = _Norm(layer.post_attention_layernorm)
    _scale(model.model.norm, model.lm_head)
    model.model.norm = _Norm(model.model.norm)


def _axes(states):
    """Eigenvectors of the second moments of states [n, D], by falling eigenvalue, float32 [D, D]."""
    moments = sum(x.double().T @ x.double() for x in states)
    moments.diagonal().add_(0.01 * moments.diagonal().mean())
    return torch.linalg.eigh(moments).eigenvectors.flip(1).float()


def _scale(norm, *linears):
    for linear in linears:
        linear.weight = frozen(linear.weight * norm.weight)


def _read(axes, *linears):
    for linear in linears:
        linear.weight = frozen(linear.weight @ axes)


def _write(axes, linear):
    linear.weight = frozen(axes.T @ linear.weight)
    if linear.bias is not None:
        linear.bias = frozen(axes.T @ linear.bias)


def _dimension(model, neurons, vocabularies):
    """The largest d within the parameters of the model with its FFNs cut."""
    layers, hidden = model.model.layers, model.config.hidden_size
    cut = 3 * hidden * len(layers) * (model.config.intermediate_size - neurons)
    target = model.num_parameters() - cut
    own = [p for layer in layers for p in layer.parameters()]
    sides = vocabularies * model.config.vocab_size + sum(p.numel() // hidden for p in own if p.dim() == 2)
    biases = sum(p.numel() for layer in layers for n, p in layer.named_parameters() if n.endswith("bias"))
    return max(d for d in range(1, hidden + 1) if d * sides + 2 * len(layers) * d * d + biases <= target)
