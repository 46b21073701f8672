"""Per-node collection: processes found and identified, probes attached, events published."""
