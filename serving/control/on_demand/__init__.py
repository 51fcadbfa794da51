"""On-demand loading on slices with too little memory for all of their models."""
