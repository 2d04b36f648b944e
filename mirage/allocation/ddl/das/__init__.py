"""DAS: two agents that order and place tasks together, as they run. Needs numpy and onnxruntime, no torch."""
