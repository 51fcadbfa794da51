"""`penstock serve MODEL`: a model file becomes settings, without YAML."""
