"""A report as of a 30-layer model of 1536 neurons a layer, narrowed to 1152 and stored at q8."""

import math
import random
from typing import Any

from prune.gates import GateOptions, judge

LAYERS, FULL, KEPT = 30, 1536, 1152
WIDTHS = [
    FULL if i == 0 else KEPT - 128 if i in (10, 11, 12) else KEPT for i in range(LAYERS)
]  # sum: 30 × KEPT
HOSTILE = (
    "<script>alert('x')</script> **bold** | [a](javascript:alert(1)) <img src=https://evil.example/x.png>"
)


def candidate(
    name: str, role: str, size: int, params: int, nll: float, delta: Any, **more: Any
) -> dict[str, Any]:
    base = {
        "name": name,
        "role": role,
        "bytes": size,
        "params": params,
        "nll": nll,
        "delta": None if delta is None else dict(zip(("mean", "low", "high"), delta, strict=True)),
        "perplexity": math.exp(nll),
        "records": 64,
        "tokens": 3891,
        "general_perplexity": None,
        "generation": None,
        "kl": None if delta is None else {"mean": 0.0166, "low": 0.0121, "high": 0.0214},
    }
    return {**base, **more}


def generation(loops: int, ratio: float, stops: float) -> dict[str, Any]:
    return {"prompts": 16, "loops": loops, "median_length_ratio": ratio, "stop_rate": stops}


def candidates() -> list[dict[str, Any]]:
    return [
        candidate(
            "source",
            "source",
            269_060_552,
            134_515_008,
            0.4310,
            None,
            general_perplexity=19.28,
            generation=generation(0, 1.0, 0.9375),
        ),
        candidate(
            "fold",
            "step",
            229_242_152,
            114_608_448,
            0.4367,
            (0.0057, -0.0041, 0.0162),
            general_perplexity=24.91,
            generation=generation(0, 1.01, 0.9375),
        ),
        candidate(
            "quant",
            "final",
            131_804_264,
            114_608_448,
            0.4382,
            (0.0072, -0.0028, 0.0179),
            general_perplexity=25.06,
            generation=generation(0, 1.01, 0.875),
        ),
        candidate("tiny-90m", "compare", 180_355_072, 90_177_536, 0.6127, (0.1817, 0.1391, 0.2254)),
    ]


def layers(seed: int = 7) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {
            "layer": i,
            "full": FULL,
            "kept": WIDTHS[i],
            "protected": i == 0,
            "rel_train": rel(i, WIDTHS[i]) * draw.uniform(0.9, 1.0),
            "rel_val": rel(i, WIDTHS[i]),
            "tokens_per_neuron": 32_768 / WIDTHS[i],
        }
        for i in range(LAYERS)
    ]


def rel(layer: int, width: int) -> float:
    """A refit-error curve of the usual shape: falling, steeper toward the full width."""
    depth = 0.15 + 0.5 * math.sin(math.pi * (layer + 1) / (LAYERS + 1))
    left = 1 - width / FULL
    return depth * left**2.2


def realistic() -> dict[str, Any]:
    report = ungated()
    return {**report, "gates": [r.as_dict() for r in judge(report, vars(GateOptions()))]}


def ungated() -> dict[str, Any]:
    widths = list(range(384, FULL + 1, 128))
    return {
        "prune": "0.1.0",
        "source": {
            "name": "some-org/Model-135M",
            "identity": "9f2c1e0b7a55",
            "layout": "llama",
            "dtype": "bfloat16",
        },
        "data": {
            "name": "extract.jsonl",
            "records": {"train": 512, "val": 64, "test": 64},
            "tokens": {"train": 61_440, "val": 7_702, "test": 7_815},
            "counts": {"lines": 310, "prompts": 300, "duplicates": 2, "assistant_turns_dropped": 0},
            "rejected": {"truncated": 3, "empty": 1},
            "warnings": ["2 prompts occur twice; each pair stays in one split"],
            "teacher": {"name": "local (the source itself)", "sampling": "greedy", "max_tokens": 2048},
        },
        "target": {
            "asked": "ffn=0.75",
            "shared_by": "allocator uniform",
            "loader": "transformers",
            "neurons_before": LAYERS * FULL,
            "neurons_after": LAYERS * KEPT,
            "params_before": 134_515_008,
            "params_after": 114_608_448,
            "share_pruned": 0.148,
            "share_quantized": 0.7531,
        },
        "plan": {"layers": layers(), "warnings": ["layer 0 is kept whole: plan.protect_first=1"]},
        "curves": {"widths": widths, "rel": [[rel(i, w) for w in widths] for i in range(LAYERS)]},
        "fold": {"layers": [folded(i) for i in range(LAYERS)]},
        "codec": {"name": "q8", "bits_per_weight": 8.125, "notes": ["embeddings and head stay bfloat16"]},
        "candidates": candidates(),
        "samples": samples(),
        "gates": [],
        "passed": True,
        "next": ["prune source=some-org/Model-135M data=extract.jsonl output=OUT ffn=0.65 codec=q8"],
    }  # fmt: skip


def folded(layer: int) -> dict[str, Any]:
    error = rel(layer, WIDTHS[layer])
    choice = "plain" if layer == 0 else "ridge 0.03" if layer % 9 == 4 else "ridge 0.1"
    damping = 0.0 if layer == 0 else 1.0 if layer == 17 else float(choice.split()[1])
    plain = error * 1.9
    return {"layer": layer, "choice": choice, "error_plain": plain, "error": error, "damping": damping}


def samples() -> list[dict[str, Any]]:
    text = '{"name": "The Eagle", "food": "Fast food", "area": "riverside", "family_friendly": true}'
    return [
        {
            "prompt": "Extract the restaurant as JSON: The Eagle is a family friendly fast food place.",
            "teacher": text,
            "answers": {"source": text, "fold": text, "quant": text.replace("Fast", "fast")},
        },
        {
            "prompt": HOSTILE,
            "teacher": "I cannot run that.\n\nHere is a list:\n- one\n- two",
            "answers": {"source": HOSTILE, "fold": "```\nx\n```", "quant": "</pre></article>" + HOSTILE},
        },
    ]
