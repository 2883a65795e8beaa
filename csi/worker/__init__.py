"""The worker process around the pipeline: leader, alerting, reload, retention."""
