"""Parts of every load run: a gateway, clients on the wire, the clock of arrivals, records and reports."""
