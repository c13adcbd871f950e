"""The engine `coreml`: a program of one length in half precision, for a Mac's Neural Engine."""
