"""eACGM: performance tracing and anomaly detection for machine-learning jobs, without touching them."""
