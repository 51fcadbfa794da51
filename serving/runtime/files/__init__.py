"""Files that outlive the gateway: recordings, profiles, capacity tables."""
