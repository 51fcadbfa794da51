"""What is promised of each served model, and who shares it."""
