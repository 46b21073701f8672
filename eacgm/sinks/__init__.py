"""Where alerts go: Alertmanager, webhooks, Slack, PagerDuty."""
