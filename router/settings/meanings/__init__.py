"""What each key of `penstock.yaml` and `model.yaml` means."""
