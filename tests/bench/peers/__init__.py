"""Published ways to narrow a Llama-like model, for comparison; none finetunes.

Each is a function ``(model, batches, neurons) -> None`` that changes the model in place: ``batches`` are the
calibration windows of ``prune.data.calibration``, ``neurons`` is the width of an FFN to reach (on average
where the method shares it out itself). At full width none changes a logit.
"""

from .flap import flap
from .llm_pruner import element, vector
from .slicegpt import slicegpt, slicegpt_blocks
from .torch_pruning import group_magnitude
from .wanda import wanda_sp

PEERS = {
    "torch-pruning": group_magnitude,
    "llm-pruner-element": element,
    "llm-pruner-vector": vector,
    "wanda-sp": wanda_sp,
    "flap": flap,
    "slicegpt": slicegpt,
    "slicegpt-blocks": slicegpt_blocks,
}
