"""Where units of work run: in this process, on all cores, or on a Ray cluster; resuming is in one place, the ledger."""
