"""What all verbs share: options, keys, reading a running gateway, guesses at mistyped names."""
