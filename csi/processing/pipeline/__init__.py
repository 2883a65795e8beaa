"""The pipeline of processing, one module per step: intake, admit, transcribe, summarise, notify."""
