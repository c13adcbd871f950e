"""The engine `onnx`: a laya model as an ONNX graph, run by ONNX Runtime on a CPU."""
