"""Several gateways that serve as one: each calls the one that has a model, and all follow one map."""
