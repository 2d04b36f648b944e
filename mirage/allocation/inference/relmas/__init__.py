"""The trained policies at run time: features, ONNX networks, scores."""
