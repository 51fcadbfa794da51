"""What is lost when something dies or changes under load."""
