"""Check ONNX files before a runtime loads them: content of the graph, and whether it may run."""
