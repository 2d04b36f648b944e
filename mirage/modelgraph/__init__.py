"""ONNX files before a runtime loads them: what is in the graph, and whether it may run."""
