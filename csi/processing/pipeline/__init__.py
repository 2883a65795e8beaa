"""The walk of processing, one file a step: intake, admit, transcribe, summarise, notify, and what keeps it moving."""
