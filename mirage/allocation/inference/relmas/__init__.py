"""The learned policies at run time: features, networks by ONNX, scores."""
