"""Teacher data: prompts, answers, finalized sets."""
