"""`penstock import`: the models of another server become settings."""
