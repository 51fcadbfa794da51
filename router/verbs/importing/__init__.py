"""`penstock import`: the model repository of another server becomes settings."""
