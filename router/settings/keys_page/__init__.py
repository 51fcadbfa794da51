"""What each key of `penstock.yaml` and `model.yaml` means: for editors, and as a page."""
