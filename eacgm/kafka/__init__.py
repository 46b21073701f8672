"""What everything that speaks Kafka stands on: how to connect, and which topics there are."""
