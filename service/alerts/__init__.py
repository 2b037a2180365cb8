"""Notices told to others: to webhooks, as a comment on a pull request, and as a feed."""
