"""DAS: two agents that order and place tasks together. Needs numpy and onnxruntime, no torch."""
